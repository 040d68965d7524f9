"""The interface of backends: one call gives one completion, or one of these errors.

`tests/contract/test_gateway_backends.py` is the suite that every kind of backend passes. Cancelling
a `call` stops the work behind it. `may_move_on` tells whether the gateway may try the next backend
because the failure came before any output, so nothing is done twice.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import CallRequest, Completion


class LargeEvent(dict[str, Any]):
    """An event of a stream that takes long to be written again."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a completion that is still being produced.

    `openai` is the chunk as sent by a backend that speaks OpenAI's API, for calls received in that
    format; none is sent before the first that holds some of the answer, because after it no other
    backend is asked. `is_usage` marks one that holds only usage. `output_tokens` is the number of
    tokens so far.
    """

    text: str
    openai: dict[str, Any] | None = None
    is_usage: bool = False
    output_tokens: int = 0


ONE_PROMPT = "`prompt`: it answers one text at a time"
"""Why a legacy completion with several prompts is refused by backends that are asked as in a chat."""

Chunks = Callable[[Chunk], Awaitable[None]]
"""Receives the chunks of a call in order; the backend awaits it,
so a slow receiver slows the backend down."""


class Backend(Protocol):
    """One served model version behind a logical model."""

    async def call(
        self, request: CallRequest, *, timeout_ms: float, chunks: Chunks | None = None
    ) -> Completion:
        """Make one call within `timeout_ms` and return its completion.

        Raises a HocketError, usually a BackendError. If `chunks` is given, the text is also sent
        there: in pieces if the backend can stream, otherwise as one.
        """

    async def close(self) -> None:
        """Close connections; no calls may follow."""


@runtime_checkable
class Loadable(Protocol):
    """A backend whose server loads and unloads models; every method raises BackendErrors."""

    async def load(self, *, timeout_ms: float) -> None:
        """Load the model, or reload it from its repository."""

    async def unload(self, *, timeout_ms: float) -> None:
        """Unload the model; calls fail until it is loaded again."""

    async def ready(self, *, timeout_ms: float) -> bool:
        """Return whether the model can be asked."""

    async def statistics(self, *, timeout_ms: float) -> dict[str, Any]:
        """Return the server's statistics for the model, in the server's format."""


class BackendError(HocketError):
    """Backend `{component}` failed: {reason}."""

    code = "backend_error"
    may_move_on: ClassVar[bool] = False
    may_be_charged: ClassVar[bool] = False
    """Whether the backend may have done the work, and may charge for it, although the call failed."""

    def __init__(
        self,
        *,
        spent: Completion | None = None,
        read_bytes: int | None = None,
        unconnected: bool = False,
        unsent: bool = False,
        **fields: Any,
    ) -> None:
        super().__init__(**fields)
        self.unsent = unsent
        """Whether the gateway itself refused the call, and its server was not asked."""
        self.unconnected = unconnected
        """Whether no connection was established,
        so that the request itself cannot have caused the failure."""
        self.spent = spent or Completion(estimated=read_bytes is not None)
        """The usage metered despite the failure; only its token counts matter."""
        self.read_bytes = read_bytes
        """How many bytes of an answer arrived that could not be read, from which its usage is estimated
        if `spent` is marked so; None if none had begun."""


class BackendUnreachable(BackendError):
    """Backend `{component}` cannot be reached: {reason}. Check that it runs and its `base_url`."""

    code = "backend_unreachable"
    error_class = ErrorClass.TRANSIENT
    retryable = True
    may_move_on = True


class BackendBroken(BackendError):
    """Backend `{component}` answered with status {status}: {reason}."""

    code = "backend_broken"
    error_class = ErrorClass.TRANSIENT
    retryable = True
    may_move_on = True


class StreamBroken(BackendBroken):
    """The stream of backend `{component}` broke off: {reason}."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(status="stream", **fields)


class BackendRateLimited(BackendError):
    """Backend `{component}` asks for fewer calls: {reason}. Lower its `limit` or add a backend."""

    code = "backend_rate_limited"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True
    may_move_on = True


class BackendTimedOut(BackendError):
    """Backend `{component}` did not answer within {timeout_ms} ms."""

    code = "backend_timed_out"
    error_class = ErrorClass.TIMEOUT
    retryable = True
    may_move_on = True
    may_be_charged = True


class BackendDenied(BackendError):
    """Backend `{component}` denies access (status {status}): {reason}. Check its `api_key`."""

    code = "backend_denied"
    error_class = ErrorClass.PERMANENT
    may_move_on = True


class BackendRefused(BackendError):
    """Backend `{component}` refused the call (status {status}): {reason}."""

    code = "backend_refused"
    error_class = ErrorClass.INVALID


class BackendUnsuited(BackendRefused):
    """Backend `{component}` refused the call (status {status}): {reason}."""

    may_move_on = True
    """A backend of another kind may have what the call asks for, and one with other limits the room."""


class CallUnsendable(BackendRefused):
    """The call was not sent to backend `{component}`: {reason}."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(status="request", unsent=True, **fields)


class CallUnsuited(BackendUnsuited):
    """The call was not sent to backend `{component}`: {reason}."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(status="request", unsent=True, **fields)


class BackendMisconfigured(BackendError):
    """Backend `{component}` has no such model or path (status {status}): {reason}. Check its `model`
    and `base_url`."""

    code = "backend_misconfigured"
    error_class = ErrorClass.PERMANENT
    may_move_on = True


class BackendReplyMalformed(BackendError):
    """Backend `{component}` answered with something that is not a completion: {reason}."""

    code = "backend_reply_malformed"
    error_class = ErrorClass.TRANSIENT
    retryable = True
    may_be_charged = True


class BackendReplyTooLarge(BackendReplyMalformed):
    """Backend `{component}` answered with more than the gateway reads: {reason}. Ask for less at once:
    lower `n`, `max_tokens` or `top_logprobs`, or send fewer texts."""

    code = "backend_reply_too_large"
    error_class = ErrorClass.INVALID
    retryable = False
    """The same call would get the same answer, and be charged for it again."""


class FunctionFailed(BackendError):
    """The function behind backend `{component}` raised {exception}: {reason}."""

    code = "function_failed"
    error_class = ErrorClass.PERMANENT
