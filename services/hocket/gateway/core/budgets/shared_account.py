"""An account that several gateways spend from, as stored in their bucket.

Each gateway has a line: how much of the budget it *claims*, and how much of that it has spent. It
never spends more than its claim, and it raises the claim only by a conditional write that fails if
anyone else wrote in between, so claims never add up to more than the budget. When a gateway dies,
its line is added to `gone`: its whole claim counts as spent, because its calls may have cost that
much. `tools` is what tools charged, which no gateway spent; gateways of an older release drop it
when they write, and the next query to the ledger restores it.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any, Self

MAX_LINES = 64
MAX_NAME_CHARS = 200
MAX_DIGITS = 80
MAX_USD = Decimal(10) ** 12
_NOTHING = Decimal(0)
_PAIR = 2


@dataclass(frozen=True, slots=True)
class Line:
    """How much of an account one gateway claims, and how much of that it has spent."""

    claim_usd: Decimal
    spent_usd: Decimal

    @property
    def most_usd(self) -> Decimal:
        """The most it may have spent by now."""
        return max(self.claim_usd, self.spent_usd)


@dataclass(frozen=True, slots=True)
class SharedAccount:
    """The lines of all gateways by name, and what was spent besides."""

    gone_usd: Decimal = _NOTHING
    tools_usd: Decimal = _NOTHING
    """What tools charged, which no gateway sees; reported by the ledger."""
    lines: Mapping[str, Line] = field(default_factory=dict)

    def others(self, name: str) -> Line:
        """Return the total claims and spending of all gateways but one."""
        others = [line for gateway, line in self.lines.items() if gateway != name]
        before_usd = self.gone_usd + self.tools_usd
        claimed = sum((one.most_usd for one in others), before_usd)
        return Line(claimed, sum((one.spent_usd for one in others), before_usd))

    @property
    def spent_usd(self) -> Decimal:
        """Return what all gateways have spent, as far as they have written it."""
        return sum((line.spent_usd for line in self.lines.values()), self.gone_usd)

    @property
    def is_unspent(self) -> bool:
        """Whether nothing was spent from it, as far as gateways have written it."""
        return not (self.spent_usd or self.tools_usd)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was spent from it and no gateway claims any of it."""
        return self.is_unspent and not any(line.claim_usd for line in self.lines.values())

    def without(self, dead: Collection[str]) -> Self:
        """Return the account after some gateways have died."""
        gone = {name: line for name, line in self.lines.items() if name in dead}
        if not gone:
            return self
        lines = {name: line for name, line in self.lines.items() if name not in gone}
        spent = sum((line.most_usd for line in gone.values()), self.gone_usd)
        return replace(self, gone_usd=spent, lines=lines)

    def at_least(self, metered_usd: Decimal, mine_usd: Decimal, name: str) -> Self:
        """Return the account with its total raised to at least what the ledger has recorded.

        Up to `mine_usd` of that may be this gateway's own spending; anything beyond was spent by
        others.
        """
        others = sum((one.most_usd for one in self.lines.values()), _NOTHING)
        others -= self.lines[name].most_usd if name in self.lines else _NOTHING
        more = metered_usd - mine_usd - others
        return replace(self, gone_usd=more) if more > self.gone_usd else self

    def spent_at_least(self, usd: Decimal) -> Self:
        """Return the account with what was spent raised to at least what a gateway knows of."""
        more_usd = usd - self.spent_usd
        return replace(self, gone_usd=self.gone_usd + more_usd) if more_usd > 0 else self

    def charged(self, tools_usd: Decimal) -> Self:
        """Return the account with the charges of tools raised
        to at least what the ledger has recorded."""
        return replace(self, tools_usd=tools_usd) if tools_usd > self.tools_usd else self

    def with_line(self, name: str, line: Line) -> Self:
        """Return the account with the line of one gateway replaced."""
        return replace(self, lines={**self.lines, name: line})

    def encoded(self) -> bytes:
        """Return the account as JSON."""
        lines = {
            name: [str(line.claim_usd), str(line.spent_usd)] for name, line in self.lines.items()
        }
        content: dict[str, Any] = {"gone": str(self.gone_usd), "lines": lines}
        if self.tools_usd:
            content["tools"] = str(self.tools_usd)
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, value: bytes) -> Self | None:
        """Return the account decoded from JSON; None if it is not a valid one."""
        try:
            content = json.loads(value)
            gone, lines = content["gone"], content["lines"]
            if len(lines) > MAX_LINES:
                return None
            named = {_name(name): _line(line) for name, line in lines.items()}
            return cls(_money(gone), _money(content.get("tools", "0")), named)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidOperation):
            return None


def _name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
        raise ValueError(name)
    return name


def _line(line: Any) -> Line:
    if not isinstance(line, list) or len(line) != _PAIR:
        raise ValueError(line)
    return Line(_money(line[0]), _money(line[1]))


def _money(value: Any) -> Decimal:
    if not isinstance(value, str) or len(value) > MAX_DIGITS:
        raise ValueError(value)
    amount = Decimal(value)
    if not amount.is_finite() or not 0 <= amount <= MAX_USD:
        raise ValueError(value)
    return amount
