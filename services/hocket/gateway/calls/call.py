"""The state of a call in progress, the result of one attempt, and the interface that records usage."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol, Self

from hocket.gateway.calls.attempts.hedged_request import Announced
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.relay import Relay
from hocket.gateway.core.calls.body_fields import unusual_fields
from hocket.gateway.core.calls.request_content import PREFILL
from hocket.gateway.core.routing.history import Kind
from hocket.gateway.core.routing.locality import NO_PROMPT, Prompt
from hocket.gateway.hooks.chain import Prepared
from hocket.schemas.messages import (
    CallOpened,
    CallRefused,
    CallReply,
    CallRequest,
    Completion,
)
from hocket.schemas.structs.usage import RecordedUsage


class UsageRecorder(Protocol):
    """Records announcements, usage and refusals of calls."""

    async def open(self, opened: CallOpened) -> Announced:
        """Announce that a call is about to be made; return once the announcement cannot be lost."""
        ...

    async def book(self, record: RecordedUsage) -> None:
        """Store what a call used; return once it is stored."""
        ...

    def refuse(self, refused: CallRefused) -> None:
        """Report, on a best-effort basis, that a call ended before any backend was asked."""
        ...


@dataclass(slots=True)
class Call:
    """A call in progress: the model being asked and why, the replicas already tried, and the cost
    and queueing time so far."""

    request: CallRequest
    cancellation: Cancellation
    started_ms: float
    model: str = ""
    stage: str = ""
    because: str = ""
    """Why the current attempt is made, if it is not simply the first one."""
    accepts: Callable[[Completion], bool] | None = None
    """Decides whether an answer is good enough, if a better model could still be asked; None
    accepts any answer."""
    experiment: str | None = None
    arm: str | None = None
    prepared: dict[tuple[str, ...], Prepared] = field(default_factory=dict)
    """The call as rewritten by the hooks, keyed by where their rules are configured."""
    tried: list[str] = field(default_factory=list)
    too_dear: set[str] = field(default_factory=set)
    """Fallbacks for whose prices the budgets have no room."""
    attempts: int = 0
    turn: int = 0
    """How many gateways started this call before this one."""
    cost_usd: Decimal = Decimal(0)
    tokens: int = 0
    """What all requests of the call have used so far, including those that failed."""
    count_later: Callable[[int], None] | None = None
    """Counts the tokens of requests that end after the call in the rates; None if there are none."""
    queue_ms: float = 0.0
    backend: str = ""
    relay: Relay | None = None
    prompt: Prompt = NO_PROMPT
    fields: frozenset[str] = frozenset()
    """Unusual fields of the body, which are sent only to backends configured to pass them on."""

    @classmethod
    def of(cls, request: CallRequest, cancellation: Cancellation, now_ms: float) -> Self:
        """Return a new call for a request that arrived at `now_ms`."""
        return cls(request, cancellation, now_ms, fields=unusual_fields(request))

    @property
    def is_typical(self) -> bool:
        """Whether its times say something about others of its kind; a prefill makes one token."""
        return self.request.task != PREFILL

    @property
    def tail(self) -> str:
        """The suffix that distinguishes this attempt's usage record from others that this gateway
        makes for the call."""
        return f":r{self.attempts}" if self.attempts else ""

    @property
    def began(self) -> bool:
        """Whether the caller has already received part of the answer."""
        return self.relay is not None and self.relay.began

    @property
    def kind(self) -> Kind:
        """The call's model, pipeline and node; durations and costs are estimated per kind."""
        who = self.request.attribution
        return (self.model or self.request.model, who.pipeline or "", who.node or "")


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of an attempt: its reply, whether another replica may be asked, and whether the
    answer (if any) was accepted."""

    reply: CallReply
    move_on: bool
    accepted: bool
    latency_ms: float
