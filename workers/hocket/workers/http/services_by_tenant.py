"""The services that a section of the configuration names (`http_services`, `mcp_servers`,
`nats_services`), each for the tenants that it names."""

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from hocket.schemas.errors import HocketError

MAX_NAMED = 20
"""Services that the error of an unknown one names."""


class RemoteService(Protocol):
    """A service, and the connections to it."""

    @property
    def tenants(self) -> tuple[str, ...]:
        """Whose nodes may ask; `*` is everybody."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


ServiceT = TypeVar("ServiceT", bound=RemoteService)


class ServicesByTenant(Generic[ServiceT]):
    """Services by name. `unknown` makes the error of one that is not there, of its name and of those
    that are."""

    def __init__(
        self, services: Mapping[str, ServiceT], unknown: Callable[[str, str], HocketError]
    ) -> None:
        self._services = services
        self._unknown = unknown

    def get(self, name: str, tenant: str) -> ServiceT:
        """Return a service, or raise the error of an unknown one; also where it is not for that
        tenant."""
        allowed = {
            known: service
            for known, service in self._services.items()
            if not {"*", tenant}.isdisjoint(service.tenants)
        }
        if name not in allowed:
            raise self._unknown(name, ", ".join(sorted(allowed)[:MAX_NAMED]) or "(none)")
        return allowed[name]

    async def close(self) -> None:
        """Close every connection."""
        for service in self._services.values():
            await service.close()
