"""What every backend does: one call, one completion, or one of these errors.

`tests/contract/test_gateway_backends.py` is the suite that each kind passes. A cancelled `call` stops
the work behind it. `may_move_on` tells whether the gateway may try the next backend: the failure came
before any output, so that nothing is done twice.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import CallRequest, Completion


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a completion while it is made.

    `openai` is the chunk as a backend that speaks OpenAI's API sent it, for calls that came so; one with
    nothing but the usage `is_usage`. `output_tokens` is how many there are by now.
    """

    text: str
    openai: dict[str, Any] | None = None
    is_usage: bool = False
    output_tokens: int = 0


Chunks = Callable[[Chunk], Awaitable[None]]
"""Takes the chunks of a call in their order; the backend waits for it, so a slow taker slows it down."""


class Backend(Protocol):
    """One served model version behind a logical model."""

    async def call(
        self, request: CallRequest, *, timeout_ms: float, chunks: Chunks | None = None
    ) -> Completion:
        """Make one call and return its completion; raise a HocketError, as a rule a BackendError,
        within `timeout_ms`. With `chunks` the text goes there too, piece by piece where the backend
        can, else as one."""

    async def close(self) -> None:
        """Let go of connections; no call comes afterwards."""


@runtime_checkable
class Loadable(Protocol):
    """A backend whose server loads and unloads models; every method raises BackendErrors."""

    async def load(self, *, timeout_ms: float) -> None:
        """Load the model, or load it again with what its repository holds now."""

    async def unload(self, *, timeout_ms: float) -> None:
        """Unload the model; calls fail until it is loaded again."""

    async def ready(self, *, timeout_ms: float) -> bool:
        """Return whether the model can be asked."""

    async def statistics(self, *, timeout_ms: float) -> dict[str, Any]:
        """Return what the server counted for the model, as it says it."""


class BackendError(HocketError):
    """Backend `{component}` failed: {reason}."""

    code = "backend_error"
    may_move_on: ClassVar[bool] = False
    may_be_charged: ClassVar[bool] = False
    """Whether the backend may have done the work, and charge for it, although it failed."""

    def __init__(
        self, *, spent: Completion | None = None, unconnected: bool = False, **fields: Any
    ) -> None:
        super().__init__(**fields)
        self.unconnected = unconnected
        """Whether no connection came about, so that no request had a part in the failure."""
        self.spent = spent or Completion()
        """What the backend metered although it failed; only its token counts matter."""


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


class BackendRefused(BackendError):
    """Backend `{component}` refused the call (status {status}): {reason}."""

    code = "backend_refused"
    error_class = ErrorClass.INVALID


class BackendMisconfigured(BackendError):
    """Backend `{component}` has no such model or path (status {status}): {reason}. Check its `model`
    and `base_url`."""

    code = "backend_misconfigured"
    error_class = ErrorClass.PERMANENT


class BackendReplyMalformed(BackendError):
    """Backend `{component}` answered with something that is not a completion: {reason}."""

    code = "backend_reply_malformed"
    error_class = ErrorClass.TRANSIENT
    retryable = True
    may_be_charged = True


class FunctionFailed(BackendError):
    """The function behind backend `{component}` raised {exception}: {reason}."""

    code = "function_failed"
    error_class = ErrorClass.PERMANENT
