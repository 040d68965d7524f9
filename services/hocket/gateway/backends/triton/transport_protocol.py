"""The requests that Triton supports over either transport."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from hocket.gateway.core.protocols.tensors import Tensor
from hocket.gateway.core.protocols.triton import Interface

Answer = Mapping[str, Tensor]


class Transport(Protocol):
    """The connection to one server; every method raises BackendErrors within `timeout_ms`."""

    async def interface(self, *, timeout_ms: float) -> Interface:
        """Return the model's inputs and outputs."""

    async def infer(self, inputs: Sequence[Tensor], *, timeout_ms: float) -> Answer:
        """Make one request with one answer."""

    def stream(self, inputs: Sequence[Tensor], *, timeout_ms: float) -> AsyncIterator[Answer]:
        """Make one request and yield its answers as they arrive.

        Models that may answer several times or not at all (`decoupled`) accept only this kind of
        request.
        """

    async def load(self, *, timeout_ms: float) -> None:
        """Load the model, or reload it."""

    async def unload(self, *, timeout_ms: float) -> None:
        """Unload the model; running requests may be aborted."""

    async def ready(self, *, timeout_ms: float) -> bool:
        """Return whether the model can be asked."""

    async def statistics(self, *, timeout_ms: float) -> dict[str, Any]:
        """Return the server's statistics for the model, as defined by its statistics extension."""

    async def close(self) -> None:
        """Close the connections."""
