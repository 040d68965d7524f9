"""Backends in service, and how they are replaced while calls are in flight.

A reload builds only what has changed; a backend that was replaced or removed finishes its calls and
is closed with the last one.
"""

from collections.abc import Callable, Mapping

from hocket.gateway.backends import build
from hocket.gateway.backends.protocol import Backend
from hocket.gateway.core.config.table import BackendSpec, RoutingTable


class ServedBackend:
    """A backend, its spec, and the number of calls it is serving."""

    def __init__(self, spec: BackendSpec, backend: Backend) -> None:
        self.spec = spec
        self._backend = backend
        self._calls = 0
        self._retired = False

    async def __aenter__(self) -> Backend:
        """Keep the backend open for one call; entering does not yield to other tasks."""
        self._calls += 1
        return self._backend

    async def __aexit__(self, *_: object) -> None:
        self._calls -= 1
        if self._retired and not self._calls:
            await self._backend.close()

    async def retire(self) -> None:
        """Take no more calls; close now, or with the last call."""
        self._retired = True
        if not self._calls:
            await self._backend.close()


async def serve(
    table: RoutingTable, before: Mapping[str, ServedBackend], now_ms: Callable[[], float]
) -> dict[str, ServedBackend]:
    """Return the backends of a table, reusing those of `before` whose spec is unchanged.

    Raises RoutingInvalid if one cannot be built; `before` is then untouched.
    """
    served: dict[str, ServedBackend] = {}
    built: list[ServedBackend] = []
    try:
        for spec in table.backends():
            kept = before.get(spec.key)
            if kept is not None and kept.spec == spec:
                served[spec.key] = kept
            else:
                served[spec.key] = ServedBackend(spec, build(spec, now_ms))
                built.append(served[spec.key])
    except BaseException:
        for backend in built:
            await backend.retire()
        raise
    return served


async def retire_missing(
    before: Mapping[str, ServedBackend], after: Mapping[str, ServedBackend]
) -> None:
    """Retire the backends of `before` that `after` does not serve."""
    for name, backend in before.items():
        if after.get(name) is not backend:
            await backend.retire()
