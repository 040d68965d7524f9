"""The services in a section of the configuration (`http_services`, `mcp_servers`, `nats_services`), each
for the tenants that it lists."""

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from hocket.schemas.errors import HocketError

MAX_NAMED = 20
"""The most services that the error of an unknown one lists."""


class RemoteService(Protocol):
    """A service, and the connections to it."""

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants whose nodes may call it; `*` stands for all."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


ServiceT = TypeVar("ServiceT", bound=RemoteService)


class ServicesByTenant(Generic[ServiceT]):
    """Services by name. `unknown` makes the error for a service that does not exist, from its name and
    the names of those that do."""

    def __init__(
        self, services: Mapping[str, ServiceT], unknown: Callable[[str, str], HocketError]
    ) -> None:
        self._services = services
        self._unknown = unknown

    def get(self, name: str, tenant: str) -> ServiceT:
        """Return a service; raise the error of an unknown one if it does not exist, or is not for that
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
