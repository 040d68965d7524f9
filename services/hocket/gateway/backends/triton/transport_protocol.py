"""What Triton can be asked, whichever way."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from hocket.gateway.core.protocols.tensors import Tensor
from hocket.gateway.core.protocols.triton import Interface

Answer = Mapping[str, Tensor]


class Transport(Protocol):
    """The way to one server; every method raises BackendErrors within `timeout_ms`."""

    async def interface(self, *, timeout_ms: float) -> Interface:
        """Return what the model takes and gives."""

    async def infer(self, inputs: Sequence[Tensor], *, timeout_ms: float) -> Answer:
        """Make one request with one answer."""

    def stream(self, inputs: Sequence[Tensor], *, timeout_ms: float) -> AsyncIterator[Answer]:
        """Make one request and yield its answers as they come; models that answer several times or
        not at all (`decoupled`) take no other."""

    async def load(self, *, timeout_ms: float) -> None:
        """Load the model, or load it again."""

    async def unload(self, *, timeout_ms: float) -> None:
        """Unload the model; what runs may end."""

    async def ready(self, *, timeout_ms: float) -> bool:
        """Return whether the model can be asked."""

    async def statistics(self, *, timeout_ms: float) -> dict[str, Any]:
        """Return what the server counted for the model, as its statistics extension says it."""

    async def close(self) -> None:
        """Let go of connections."""
