"""Which round of an agent is its last: the one after which another round, as long and as expensive as
the worst so far, would exceed a bound. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hocket.workers.agents.errors import AgentTokensExhausted
from hocket.workers.agents.state import Rounds
from hocket.workers.nodes.prompts.structured import NODES_LIMIT


@dataclass(frozen=True, slots=True)
class Last:
    """Why a round is the last, and the field that sets the bound."""

    why: str
    bound: str


def last_round(
    config: Mapping[str, Any],
    before: Rounds,
    *,
    now_ms: float,
    deadline_at_ms: float,
    run_ends_at_ms: float,
) -> Last | None:
    """Return why the round that begins now is the last, or None if there may be another.

    Raises AgentTokensExhausted if there are no tokens even for this one."""
    used, limit = before.usage.tokens, config.get("max_total_tokens")
    if limit is not None and used >= limit:
        raise AgentTokensExhausted(used=used, limit=limit)
    number = before.rounds + 1
    if number >= config["max_rounds"]:
        return Last(f"round {number} of {config['max_rounds']}", "max_rounds")
    if not before.rounds:
        return None
    if limit is not None and used + 2 * before.most_tokens > limit:
        return Last(f"{used} of {limit} tokens are used", "max_total_tokens")
    budget = config.get("budget_usd")
    spent = before.usage.cost_usd
    if budget is not None and spent + 2 * before.most_usd > Decimal(str(budget)):
        return Last(f"{spent} of {budget} USD are spent", "budget_usd")
    left_ms = deadline_at_ms - now_ms
    if left_ms < 2 * longest_ms(before, now_ms, run_ends_at_ms):
        return Last(f"{max(0, round(left_ms))} ms are left", "slo_ms")
    return None


def longest_ms(before: Rounds, now_ms: float, run_ends_at_ms: float) -> float:
    """Return how long the longest round took (ms), including its tools. The time by which the run's
    deadline has moved does not count: a tool waited for a person, or another run goes on with these
    rounds."""
    if not before.rounds:
        return 0.0
    moved_ms = run_ends_at_ms - before.run_ends_at_ms if before.run_ends_at_ms else 0.0
    return max(before.longest_ms, now_ms - before.began_at_ms - max(0.0, moved_ms))


def max_tokens(config: Mapping[str, Any], before: Rounds) -> tuple[int | None, str]:
    """Return the maximum length of a round's answer in tokens, if there is one, and what to
    raise if that is too short."""
    limit, total = config.get("max_tokens"), config.get("max_total_tokens")
    if total is None:
        return limit, NODES_LIMIT
    left = max(1, total - before.usage.tokens)
    if limit is None or left < limit:
        return left, "`max_total_tokens`"
    return limit, NODES_LIMIT
