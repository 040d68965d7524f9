"""When a second replica is asked for the same call: never by default, rarely, and at most once per
attempt.

A call that takes longer than most of its kind may also be sent to another replica; the first answer
counts. A token bucket bounds the cost: each call adds `share` of a token and a second request takes
one, so at most that share of calls is made twice under any conditions. Calls with tools may have
outside effects if answered twice, so they are not hedged unless the rule allows it.
"""

from dataclasses import dataclass

from hocket.gateway.core.routing.history import CallDurations, Kind
from hocket.schemas.messages import CallRequest

FIRST_TOKENS = 1.0
"""The initial content of a bucket; a model asked for the first time has no history
to hedge by anyway."""
_TOOL_FIELDS = ("tools", "functions", "web_search_options")


@dataclass(frozen=True, slots=True)
class HedgeRule:
    """When calls are hedged: after a quantile of past durations but not before `min_ms`, for at
    most a share of calls and at most `burst` in a row, and whether calls with `tools` qualify."""

    quantile: float = 0.95
    min_ms: float = 50.0
    share: float = 0.05
    burst: float = 10.0
    tools: bool = False

    def suits(self, request: CallRequest) -> bool:
        """Tell whether a call may be hedged at all."""
        return self.tools or not _has_tools(request)

    def delay_ms(self, durations: CallDurations, kind: Kind) -> float | None:
        """Return how long to wait for the first request; None if too little is known."""
        usual_ms = durations.well_known(kind, self.quantile)
        return None if usual_ms is None else max(usual_ms, self.min_ms)


class HedgeTokens:
    """The token bucket of one model."""

    def __init__(self, rule: HedgeRule) -> None:
        self.rule = rule
        self.tokens = min(FIRST_TOKENS, rule.burst)

    def earn(self) -> None:
        """Credit the bucket for a call that is made."""
        self.tokens = min(self.tokens + self.rule.share, self.rule.burst)

    def take(self) -> bool:
        """Take a token for a second request, if there is one."""
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


def _has_tools(request: CallRequest) -> bool:
    if request.tools:
        return True
    return request.openai is not None and any(request.openai.body.get(f) for f in _TOOL_FIELDS)
