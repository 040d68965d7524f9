"""What a hook implements: it sees a call before a backend does, the answer before the caller does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hocket.gateway.backends.protocol import Chunk
from hocket.schemas.messages import CallRequest, Completion


class Answering(Protocol):
    """What a hook does with the answer to one request. In a stream `chunk` gets each piece, `rest` says
    what was held back at the end, and the whole comes to `completion` all the same."""

    def chunk(self, chunk: Chunk) -> Chunk: ...

    def rest(self) -> str: ...

    async def completion(self, completion: Completion) -> Completion: ...


@dataclass(frozen=True, slots=True)
class Changed:
    """The call as the next hook, or the backend, gets it; `answering` makes what sees the answer, anew
    for each request, where the hook wants to see it."""

    request: CallRequest
    answering: Callable[[], Answering] | None = None


class Hook(Protocol):
    """What users implement."""

    async def before(self, request: CallRequest) -> Changed:
        """Return the call as it may go out; raise to refuse it."""
        ...
