"""Reads and checks single values of the configuration; errors name the field and the cure.

A `Fields` is one mapping of the file and its place there (`models.writer.backends[0]`). A text may
be `os.environ/NAME`, which is looked up in the given environment.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

from pydantic import SecretStr

from hocket.gateway.core.budgets.price import MAX_DECIMALS, MAX_USD, Prices, believable
from hocket.gateway.core.errors import RoutingInvalid
from hocket.schemas.checks.faults import Faults

ENVIRONMENT_PREFIX = "os.environ/"
HTTP_SCHEMES = ("http://", "https://")
MAX_COUNT = 100_000
MAX_DURATION_MS = 86_400_000.0
MAX_DIGITS = 28
"""The most digits of a price, before and after the decimal point together."""
MAX_TAG_CHARS = 64
MAX_NAME_CHARS = 200
MAX_URL_CHARS = 2_048
_CHAT = "/chat/completions"
MAX_SAID_CHARS = 1_000
"""The length to which an error cuts the field, the reason and the cure."""

PRICE_FIELDS = (
    "input_usd_per_mtok",
    "output_usd_per_mtok",
    "cached_usd_per_mtok",
    "cache_write_usd_per_mtok",
    "request_usd",
)

Choice = TypeVar("Choice", bound=str)


def wrong(where: str, reason: str, cure: str) -> RoutingInvalid:
    """Return the error for a field; what it quotes from the file is cut."""
    field, reason, cure = (
        text if len(text) <= MAX_SAID_CHARS else f"{text[:MAX_SAID_CHARS]} ..."
        for text in (where, reason, cure)
    )
    return RoutingInvalid(field=field, reason=reason, cure=cure)


class Section:
    """One mapping of the configuration; `where` is its place in the file."""

    def __init__(self, entry: Any, where: str, environment: Mapping[str, str]) -> None:
        if not isinstance(entry, dict):
            raise wrong(where, "it is not a mapping", "Write `field: value` lines under it.")
        self.where = where
        self._entry: dict[Any, Any] = entry
        self._environment = environment

    def __contains__(self, name: str) -> bool:
        return self._entry.get(name) is not None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entry)

    def at(self, name: str) -> str:
        """Return the place of a field."""
        return f"{self.where}.{name}"

    def raw(self, name: str) -> Any:
        """Return a value as it is in the file."""
        return self._entry.get(name)

    def only(self, known: Iterable[str]) -> None:
        """Refuse unknown fields."""
        faults = Faults(RoutingInvalid)
        for name in self._entry:
            if name not in known:
                cure = f"Use: {', '.join(sorted(known))}."
                faults.add(wrong(self.at(str(name)), "there is no such field", cure))
        faults.check()

    def others(self, known: Iterable[str]) -> tuple[str, ...]:
        """Return the places of unknown fields."""
        return tuple(self.at(str(name)) for name in self._entry if name not in known)

    def of(self, entry: Any, where: str) -> Self:
        """Return another mapping of the same file."""
        return type(self)(entry, where, self._environment)

    def root(self, name: str) -> Self:
        """Return the mapping in a field, as a section whose place is just the field's name."""
        return self.of(self._entry.get(name) or {}, name)

    def with_default(self, name: str, value: Any) -> Self:
        """Return the mapping with a default for a field that the file does not set."""
        return self.of({name: value} | self._entry, self.where)

    def under(self, name: str) -> Self:
        """Return the mapping in a field, empty if the field is missing."""
        value = self._entry.get(name)
        return self.of({} if value is None else value, self.at(name))

    def items(self, name: str, cure: str) -> list[tuple[str, Any]]:
        """Return the elements of a list, with their places; it must not be empty."""
        value = self._entry.get(name)
        if not isinstance(value, list) or not value:
            raise wrong(self.at(name), "it is not a list of one or more", cure)
        return [(f"{self.at(name)}[{index}]", one) for index, one in enumerate(value)]


class Fields(Section):
    """The typed values of a section's fields, each checked as it is read."""

    def text(self, name: str) -> str:
        """Return a required text."""
        value = self._entry.get(name)
        if not isinstance(value, str) or not value.strip():
            state = "it is missing" if value is None else "it is not text"
            raise wrong(self.at(name), state, f"Set `{name}` to text.")
        if not value.startswith(ENVIRONMENT_PREFIX):
            return value
        variable = value.removeprefix(ENVIRONMENT_PREFIX)
        if not self._environment.get(variable):
            cure = f"Set {variable} for the gateway, or write the value here."
            raise wrong(self.at(name), f"the environment variable {variable} is not set", cure)
        return self._environment[variable]

    def name(self, name: str) -> str:
        """Return a required text that fits into records: short, on one line."""
        value = self.text(name)
        check_name(value, self.at(name))
        return value

    def secret(self, name: str) -> SecretStr | None:
        """Return a text that is never printed, or None."""
        return self._kept_secret(self.text(name), self.at(name)) if name in self else None

    def variable(self, name: str) -> str | None:
        """Return an environment variable, or None if it is not set."""
        return self._environment.get(name) or None

    def secret_variable(self, names: Iterable[str]) -> SecretStr | None:
        """Return the first of several environment variables that is set (as a secret), or None."""
        for name in names:
            if (value := self.variable(name)) is not None:
                return self._kept_secret(value, f"{ENVIRONMENT_PREFIX}{name}")
        return None

    def _kept_secret(self, value: str, where: str) -> SecretStr:
        if not value.isprintable():
            cure = "Write it without line breaks, including at its end."
            raise wrong(where, "it contains a character that headers may not have", cure)
        return SecretStr(value)

    def url(
        self, name: str, schemes: tuple[str, ...] = HTTP_SCHEMES, *, versioned: bool = False
    ) -> str:
        """Return a URL with one of the given schemes, without a trailing slash; `versioned` if the
        version of its API is set by `api_version`."""
        value = self.text(name)
        cure = "Write for example http://127.0.0.1:8000/v1."
        try:
            parts = urlsplit(value)
            host, _ = parts.hostname, parts.port
        except ValueError:  # an invalid port or IPv6 address
            host, parts = None, urlsplit("")
        if parts.username is not None or parts.password is not None:
            raise wrong(
                self.at(name), "it contains a user name or password", "Set `api_key` instead."
            )
        plain = value.isascii() and value.isprintable() and " " not in value
        if not host or not plain or not value.startswith(schemes) or len(value) > MAX_URL_CHARS:
            raise wrong(self.at(name), f"it is not a URL ({', '.join(schemes)})", cure)
        _check_end(value, self.at(name), versioned=versioned)
        return value.rstrip("/")

    def choice(self, name: str, choices: tuple[Choice, ...], default: Choice) -> Choice:
        """Return one of the given words."""
        value = self._entry.get(name, default)
        for one in choices:
            if value == one:
                return one
        words = " or ".join(f"`{one}`" for one in choices)
        raise wrong(self.at(name), f"`{value}` is not one of its values", f"Use {words}.")

    def count(
        self, name: str, default: int, unit: str, *, least: int = 1, most: int = MAX_COUNT
    ) -> int:
        """Return a whole number from `least` to `most`."""
        value = self._entry.get(name)
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        cure = f"Use {least} to {most} {unit}."
        raise wrong(self.at(name), "it is not a whole number in range", cure)

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """Return a number from `least` to `most`."""
        value = self._entry.get(name)
        if value is None:
            return default
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and least <= value <= most
        ):
            return float(value)
        raise wrong(self.at(name), "it is not a number in range", f"Use {least:g} to {most:g}.")

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self._entry.get(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        raise wrong(self.at(name), "it is neither `true` nor `false`", "Use `true` or `false`.")

    def duration_ms(
        self, name: str, default: float, *, scale: int = 1, may_be_0: bool = False
    ) -> float:
        """Return a duration in milliseconds; `scale` is the file's unit in milliseconds."""
        value = self._entry.get(name)
        if value is None:
            return default
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and 0 <= value * scale <= MAX_DURATION_MS
            and (value or may_be_0)
        ):
            return float(value * scale)
        unit = "milliseconds" if scale == 1 else "seconds"
        least = "from 0" if may_be_0 else "above 0 and"
        cure = f"Use a number of {unit} {least} up to one day."
        raise wrong(self.at(name), "it is not a duration in range", cure)

    def money(self, name: str) -> Decimal | None:
        """Return a price exactly as written; a YAML float is read as its shortest decimal form."""
        value = self._entry.get(name)
        if value is None:
            return None
        at = self.at(name)
        try:
            if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
                raise InvalidOperation
            price = Decimal(str(value))
        except InvalidOperation:
            raise wrong(at, "it is not a number", 'Write for example "0.15".') from None
        if not price.is_finite() or price < 0 or price.adjusted() > MAX_USD.adjusted():
            raise wrong(at, "it is not a price", f"Use 0 to {MAX_USD} US dollars.")
        if len(price.as_tuple().digits) > MAX_DIGITS:
            raise wrong(at, "it has too many digits", f"Use up to {MAX_DIGITS} digits.")
        return price

    def tags(self, name: str) -> frozenset[str]:
        """Return a set of short words, given as one word or a list."""
        value = self._entry.get(name)
        if value is None:
            return frozenset()
        words = [value] if isinstance(value, str) else value
        if isinstance(words, list) and all(_is_tag(word) for word in words):
            return frozenset(words)
        cure = f"Write one word or a list of them, each up to {MAX_TAG_CHARS} characters."
        raise wrong(self.at(name), "it is not a list of words", cure)

    def labels(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return a mapping of short words, sorted."""
        found = self.under(name)
        for label in found:
            if not _is_tag(label) or not _is_tag(found.raw(label)):
                cure = f"Write words of up to {MAX_TAG_CHARS} characters, e.g. `precision: fp8`."
                raise wrong(found.at(str(label)), "it is not a word", cure)
        return tuple(sorted((label, found.raw(label)) for label in found))


def check_name(value: str, where: str) -> None:
    """Raise RoutingInvalid for a name that does not fit into records."""
    if len(value) > MAX_NAME_CHARS or not value.isprintable():
        cure = f"Use up to {MAX_NAME_CHARS} printable characters."
        raise wrong(where, "it cannot be a name", cure)


def _check_end(url: str, where: str, *, versioned: bool) -> None:
    """Raise RoutingInvalid for a URL that ends with a query or a fragment: paths are appended to it."""
    rest, query, asked = url.partition("#")[0].partition("?")
    if rest == url:
        return
    what = "query (`?...`)" if query else "fragment (`#...`)"
    end = f"before `{_CHAT}`" if _CHAT in rest else "with its path"
    cure = f"End it {end}, for example http://127.0.0.1:8000/v1; a key goes in `api_key`."
    if any(name.lower() == "api-version" for name in parse_qs(asked, keep_blank_values=True)):
        what = "query (`?api-version=...`)"
        if versioned:
            cure = f"Set `api_version` instead, and end the URL {end}."
    raise wrong(where, f"it has a {what}", cure)


def checked_prices(prices: Prices, where: str) -> Prices:
    """Return the prices if costs can be computed from them exactly; otherwise raise RoutingInvalid."""
    for name in PRICE_FIELDS:
        price = getattr(prices, name)
        if price is not None and not believable(price):
            cure = f"Use 0 to {MAX_USD} US dollars with up to {MAX_DECIMALS} decimals."
            raise wrong(where, f"the price {price} is out of bounds", cure)
    if prices.cached_usd_per_mtok is not None and prices.input_usd_per_mtok is None:
        reason = "cached input has a price, but input has none"
        raise wrong(where, reason, "Set the price of input too.")
    if prices.cache_write_usd_per_mtok is not None and prices.input_usd_per_mtok is None:
        reason = "input that is written to a cache has a price, but input has none"
        raise wrong(where, reason, "Set the price of input too.")
    return prices


def _is_tag(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TAG_CHARS and value.isprintable()
