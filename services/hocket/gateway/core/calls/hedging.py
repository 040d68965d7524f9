"""When a second replica is asked for the same call: never by default, never often, never twice.

A call that takes longer than most calls of its kind did may be asked again elsewhere; the first answer
counts. What that costs is bounded by a bucket: each call adds `share` of a token, a second request takes
one, so that at most that share of calls is made twice, whatever the weather. A call that brings tools
may have effects outside when it is answered twice, so it is left alone unless the rule allows it.
"""

from dataclasses import dataclass

from hocket.gateway.core.routing.history import CallDurations, Kind
from hocket.schemas.messages import CallRequest

FIRST_TOKENS = 1.0
"""What a bucket starts with: a model that is asked for the first time has no history anyway."""
_TOOL_FIELDS = ("tools", "functions", "web_search_options")


@dataclass(frozen=True, slots=True)
class HedgeRule:
    """After which quantile of history a call is hedged, but not before `min_ms`; which share of calls at
    most, and how many in a row (`burst`); whether calls with `tools` may be."""

    quantile: float = 0.95
    min_ms: float = 50.0
    share: float = 0.05
    burst: float = 10.0
    tools: bool = False

    def suits(self, request: CallRequest) -> bool:
        """Tell whether a call may be made twice at all."""
        return self.tools or not _has_tools(request)

    def delay_ms(self, durations: CallDurations, kind: Kind) -> float | None:
        """Return how long the first request is waited for; None where too little is known."""
        usual_ms = durations.well_known(kind, self.quantile)
        return None if usual_ms is None else max(usual_ms, self.min_ms)


class HedgeTokens:
    """The bucket of one model."""

    def __init__(self, rule: HedgeRule) -> None:
        self.rule = rule
        self.tokens = min(FIRST_TOKENS, rule.burst)

    def earn(self) -> None:
        """Note that a call is made."""
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
