"""Sums of amounts of money, in a decimal context of their own: handlers may change theirs."""

from decimal import Context, Decimal, InvalidOperation

from hocket.schemas.checks.bounded import MAX_USD_PLACES

MONEY = Context(prec=2 * MAX_USD_PLACES, traps=[InvalidOperation])
_LEAST_USD = Decimal(1).scaleb(-MAX_USD_PLACES)


def written(usd: Decimal) -> Decimal:
    """Return an amount with no more decimal places than messages may have."""
    exponent = usd.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -MAX_USD_PLACES:
        return MONEY.normalize(MONEY.quantize(usd, _LEAST_USD))
    return usd


def price_of_time(took_ms: float, usd_per_second: Decimal) -> Decimal:
    """Return the price of a time, to the millisecond."""
    return MONEY.multiply(MONEY.scaleb(Decimal(round(took_ms)), -3), usd_per_second)
