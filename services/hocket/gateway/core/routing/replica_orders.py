"""An operator's orders for one replica, as stored in the gateways' bucket. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from hocket.schemas.messages import ReplicaControl

MAX_REASON_CHARS = 200
MAX_BY_CHARS = 64
MAX_WARM_MS = 7 * 86_400_000.0
"""The longest time a replica can be kept warm by an order, counted from the latest one."""


@dataclass(frozen=True, slots=True)
class ReplicaOrder:
    """The orders in force for one replica.

    Times are epoch milliseconds, 0 if not set. `reset_at_ms` is when its breakers were last closed
    by hand, `at_ms` when the order last changed.
    """

    replica: str
    drained: bool = False
    warm_until_ms: float = 0.0
    reset_at_ms: float = 0.0
    by: str = ""
    reason: str = ""
    at_ms: float = 0.0

    def after(self, wanted: ReplicaControl, now_ms: float) -> "ReplicaOrder":
        """Return the order after a control has been applied."""
        said = replace(
            self,
            by=wanted.by[:MAX_BY_CHARS],
            reason=wanted.reason[:MAX_REASON_CHARS],
            at_ms=now_ms,
        )
        match wanted.action:
            case "drain":
                return replace(said, drained=True)
            case "resume":
                return replace(said, drained=False)
            case "warm":
                for_ms = min(max(wanted.for_ms, 0.0), MAX_WARM_MS)
                return replace(said, warm_until_ms=now_ms + for_ms if for_ms else 0.0)
            case "reset":
                return replace(said, reset_at_ms=max(now_ms, self.reset_at_ms + 1))

    @property
    def blame(self) -> str:
        """Who gave the order and why, in the wording used by decisions."""
        by = f"by {self.by}" if self.by else ""
        return f"{by}: {self.reason}" if self.reason else by

    def content(self) -> dict[str, Any]:
        """Return the order in the form stored in the bucket."""
        return asdict(self)


def order_of(content: Mapping[str, Any]) -> ReplicaOrder:
    """Return an order from its stored form, which was validated on receipt."""
    return ReplicaOrder(
        replica=content["replica"],
        drained=content["drained"],
        warm_until_ms=float(content["warm_until_ms"]),
        reset_at_ms=float(content["reset_at_ms"]),
        by=content["by"],
        reason=content["reason"],
        at_ms=float(content["at_ms"]),
    )
