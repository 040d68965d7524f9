"""Prices, and the exact cost of a call.

All arithmetic uses a decimal context that raises if a digit would be lost, so a cost is never
rounded; the bounds on prices and tokens keep every result well within its precision.
"""

from dataclasses import asdict, dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation

MAX_USD = Decimal(10) ** 9
"""The largest price accepted."""
MAX_DECIMALS = 18
"""The most decimal places that a price (per million tokens) may have."""
MAX_TOKENS = 2**63 - 1
"""The largest number the ledger's columns hold."""

_TOKENS_PER_PRICE_EXPONENT = 6
_EXACT = Context(prec=80, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens, and per request; None means unknown.

    Input read from a prompt cache costs `cached_usd_per_mtok`, and input written to one costs
    `cache_write_usd_per_mtok`; if unknown, both cost the same as other input.
    """

    input_usd_per_mtok: Decimal | None = None
    output_usd_per_mtok: Decimal | None = None
    cached_usd_per_mtok: Decimal | None = None
    request_usd: Decimal | None = None
    cache_write_usd_per_mtok: Decimal | None = None

    @property
    def priced(self) -> bool:
        """Whether any price is known; a price of 0 is known."""
        return not (
            self.input_usd_per_mtok is None
            and self.output_usd_per_mtok is None
            and self.request_usd is None
        )

    @property
    def known(self) -> dict[str, str]:
        """The known prices by name, as exact decimals."""
        return {name: str(price) for name, price in asdict(self).items() if price is not None}

    @property
    def charged(self) -> bool:
        """Whether a call can cost more than nothing."""
        return any((self.input_usd_per_mtok, self.output_usd_per_mtok, self.request_usd))

    @property
    def rank_usd(self) -> Decimal:
        """One number to compare backends by: a million tokens in and a million out."""
        return _EXACT.add(self.input_usd_per_mtok or _ZERO, self.output_usd_per_mtok or _ZERO)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a call; without a known price, `usd` is 0 and `priced` is False."""

    usd: Decimal
    priced: bool


def cost(
    prices: Prices,
    *,
    input_tokens: int,
    output_tokens: int,
    cached_tokens: int,
    cache_write_tokens: int = 0,
) -> Cost:
    """Return the exact cost of a call; `input_tokens` includes `cached_tokens` and
    `cache_write_tokens`.

    If a backend reports more cached than input tokens, all input tokens are billed as cached;
    written tokens are likewise limited to the remaining input.
    """
    assert min(input_tokens, output_tokens, cached_tokens, cache_write_tokens) >= 0
    if not prices.priced:
        return Cost(_ZERO, priced=False)
    input_price = prices.input_usd_per_mtok or _ZERO
    cached_price = input_price if prices.cached_usd_per_mtok is None else prices.cached_usd_per_mtok
    write_price = prices.cache_write_usd_per_mtok
    cached = min(cached_tokens, input_tokens)
    written = min(cache_write_tokens, input_tokens - cached)
    micros = _ZERO
    for tokens, price in (
        (input_tokens - cached - written, input_price),
        (cached, cached_price),
        (written, input_price if write_price is None else write_price),
        (output_tokens, prices.output_usd_per_mtok or _ZERO),
    ):
        if tokens and price:
            micros = _EXACT.add(micros, _EXACT.multiply(Decimal(tokens), price))
    total = _EXACT.scaleb(micros, -_TOKENS_PER_PRICE_EXPONENT)
    if prices.request_usd:
        total = _EXACT.add(total, prices.request_usd)
    return Cost(plain(total), priced=True)


def per_million(usd_per_token: Decimal) -> Decimal:
    """Return the price of a million tokens for the price of one."""
    return plain(_EXACT.scaleb(usd_per_token, _TOKENS_PER_PRICE_EXPONENT))


def plain(value: Decimal) -> Decimal:
    """Return the same number without trailing zeros and without an exponent above zero."""
    reduced = _EXACT.normalize(value)
    if reduced.adjusted() <= 0:  # below 10
        return reduced
    exponent = reduced.as_tuple().exponent
    return _EXACT.quantize(reduced, _ONE) if isinstance(exponent, int) and exponent > 0 else reduced


def believable(value: Decimal) -> bool:
    """Return whether a price is finite, not negative and within the bounds of this module."""
    if not value.is_finite() or value < 0 or value > MAX_USD:
        return False
    exponent = plain(value).as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= MAX_DECIMALS


_ZERO = Decimal(0)
_ONE = Decimal(1)
