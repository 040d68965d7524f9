"""The interface of hooks: a hook sees a call before its backend does,
and the answer before the caller."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hocket.gateway.backends.protocol import Chunk
from hocket.schemas.messages import CallRequest, Completion


class Answering(Protocol):
    """What a hook does with the answer to one request.

    In a stream `chunk` gets each piece, and `rest` returns what was held back at the end; the whole
    answer is passed to `completion` in any case.
    """

    def chunk(self, chunk: Chunk) -> Chunk: ...

    def rest(self) -> str: ...

    async def completion(self, completion: Completion) -> Completion: ...


@dataclass(frozen=True, slots=True)
class Changed:
    """The call for the next hook or the backend.

    If the hook wants to see the answer, `answering` creates a handler for it, once per request.
    """

    request: CallRequest
    answering: Callable[[], Answering] | None = None


class Hook(Protocol):
    """The interface that users implement."""

    async def before(self, request: CallRequest) -> Changed:
        """Return the call as it may be sent; raise to refuse it."""
        ...
