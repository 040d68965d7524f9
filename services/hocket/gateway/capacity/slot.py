"""A slot at a replica, and the request for one."""

from collections.abc import Callable
from dataclasses import dataclass

from hocket.gateway.capacity.silence import Silence
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.routing.history import Kind
from hocket.gateway.core.routing.replica_choice import CallFacts, Decision
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import Priority


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A call that needs a slot: what routing knows of it, and how urgent it is."""

    facts: CallFacts
    kind: Kind
    priority: Priority
    deadline_at_ms: float
    useful_until_ms: float | None = None
    """Until when its answer is useful, if before the deadline; its place in line depends on it."""
    is_typical: bool = True
    """Whether its duration tells how long calls of its kind take."""
    in_pieces: bool = False
    """Whether its answer is streamed."""


class Slot:
    """A slot at a replica, held until released.

    `cached_tokens` is how many of the prompt's tokens the replica is expected to have cached.
    `held_up_ms` returns how long the replica has waited for the call's reader, and `silence` tells how
    long it has said nothing.
    """

    __slots__ = (
        "_release",
        "began_ms",
        "cached_tokens",
        "decision",
        "held_up_ms",
        "queue_ms",
        "request",
        "silence",
        "spec",
    )

    def __init__(
        self,
        release: "Released",
        request: PlacementRequest,
        decision: Decision,
        *,
        began_ms: float,
        queue_ms: float,
        silence: Silence,
        cached_tokens: int = 0,
    ) -> None:
        assert decision.chosen is not None
        self.spec: BackendSpec = decision.chosen
        self.request = request
        self.decision = decision
        self.began_ms = began_ms
        self.queue_ms = queue_ms
        self.cached_tokens = cached_tokens
        self.silence = silence
        self.held_up_ms: Callable[[], float] = _never
        self._release: Released | None = release

    @property
    def tenant(self) -> str:
        """The tenant of the call that holds it."""
        return self.request.facts.tenant

    def release(self, error: HocketError | None = None, *, unused: bool = False) -> None:
        """Release the slot, reporting how the attempt ended; a second release does nothing.

        An `unused` slot says nothing about its server.
        """
        release, self._release = self._release, None
        if release is not None:
            release(self, error, unused)


def _never() -> float:
    return 0.0


Released = Callable[[Slot, HocketError | None, bool], None]
"""Takes a slot back: the slot, the attempt's error, and whether the slot was unused."""
