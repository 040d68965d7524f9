"""A call on its way: what it asks, where it stands, what came of an attempt, and where it is booked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol, Self

from hocket.gateway.calls.attempts.hedged_request import Announced
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.relay import Relay
from hocket.gateway.core.calls.body_fields import unusual_fields
from hocket.gateway.core.routing.history import Kind
from hocket.gateway.core.routing.locality import NO_PROMPT, Prompt
from hocket.gateway.hooks.chain import Prepared
from hocket.schemas.messages import (
    CallOpened,
    CallRefused,
    CallReply,
    CallRequest,
    Completion,
    UsageRecord,
)


class UsageRecorder(Protocol):
    """Where calls are booked."""

    async def open(self, opened: CallOpened) -> Announced:
        """Say that a call is about to be made; returns when that cannot be taken back."""
        ...

    async def book(self, record: UsageRecord) -> None:
        """Store what a call used; returns when it is stored."""
        ...

    def refuse(self, refused: CallRefused) -> None:
        """Tell that nobody was asked for a call, as well as can be."""
        ...


@dataclass(slots=True)
class Call:
    """A call on its way: which model is asked at the moment and why, which replicas of it failed, what
    the call cost so far, how long it waited."""

    request: CallRequest
    cancellation: Cancellation
    started_ms: float
    model: str = ""
    stage: str = ""
    because: str = ""
    """Why the present attempt is made, where it is not just the first."""
    accepts: Callable[[Completion], bool] | None = None
    """Whether an answer is good enough, where there is a better model to ask; None: any is."""
    experiment: str | None = None
    arm: str | None = None
    prepared: dict[tuple[str, ...], Prepared] = field(default_factory=dict)
    """What hooks made of the call, by the places of their rules."""
    tried: list[str] = field(default_factory=list)
    attempts: int = 0
    turn: int = 0
    """How many gateways had the call before."""
    cost_usd: Decimal = Decimal(0)
    queue_ms: float = 0.0
    backend: str = ""
    relay: Relay | None = None
    prompt: Prompt = NO_PROMPT
    fields: frozenset[str] = frozenset()
    """What its body has that only goes to backends that let it through."""

    @classmethod
    def of(cls, request: CallRequest, cancellation: Cancellation, now_ms: float) -> Self:
        """Return the call for a request that came now."""
        return cls(request, cancellation, now_ms, fields=unusual_fields(request))

    @property
    def tail(self) -> str:
        """What tells this attempt's record from the others of the call that this gateway makes."""
        return f":r{self.attempts}" if self.attempts else ""

    @property
    def began(self) -> bool:
        """Whether the caller has seen a part of the answer."""
        return self.relay is not None and self.relay.began

    @property
    def kind(self) -> Kind:
        """What calls of its kind have in common."""
        who = self.request.attribution
        return (self.model or self.request.model, who.pipeline or "", who.node or "")


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What came of an attempt: whether another replica may be asked, and whether the answer, if there
    is one, was accepted."""

    reply: CallReply
    move_on: bool
    accepted: bool
    latency_ms: float
