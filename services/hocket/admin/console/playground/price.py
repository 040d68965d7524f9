"""Breaks down the cost of a call: its tokens times the prices of the backend that answered. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from hocket.schemas.messages import CallReply

TOKENS_PER_PRICE = 1_000_000


@dataclass(frozen=True, slots=True)
class PriceLine:
    """One part of a price: a number of tokens, and the price per million."""

    what: str
    tokens: int
    usd_per_mtok: Decimal
    usd: Decimal


@dataclass(frozen=True, slots=True)
class PriceExplained:
    """The parts of a price. `agrees`: their sum equals the booked amount."""

    lines: tuple[PriceLine, ...]
    request_usd: Decimal | None
    agrees: bool


def explained(reply: CallReply, prices: Mapping[str, str] | None) -> PriceExplained | None:
    """Return the parts of a call's cost, or None if its backend's prices are not known."""
    known = _known(prices or {})
    if not known:
        return None
    entry = known.get("input_usd_per_mtok", Decimal(0))
    cached = min(reply.cached_tokens, reply.input_tokens)
    written = min(reply.cache_write_tokens, reply.input_tokens - cached)
    lines = tuple(
        PriceLine(what, tokens, price, tokens * price / TOKENS_PER_PRICE)
        for what, tokens, price in (
            ("input", reply.input_tokens - cached - written, entry),
            ("input from a cache", cached, known.get("cached_usd_per_mtok", entry)),
            ("input into a cache", written, known.get("cache_write_usd_per_mtok", entry)),
            ("output", reply.output_tokens, known.get("output_usd_per_mtok", Decimal(0))),
        )
        if tokens
    )
    request_usd = known.get("request_usd")
    total = sum((line.usd for line in lines), request_usd or Decimal(0))
    return PriceExplained(lines, request_usd, agrees=total == reply.cost_usd)


def _known(prices: Mapping[str, str]) -> dict[str, Decimal]:
    found = {}
    for name, text in prices.items():
        try:
            found[name] = Decimal(text)
        except InvalidOperation:  # sent by a gateway of another version
            continue
    return found
