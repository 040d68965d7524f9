"""Filters that iterate over lists, each charged for before it runs. They behave as in Jinja2, except
that `map`, `select` and the like return lists, where Jinja2 returns iterators."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from jinja2 import StrictUndefined, Undefined

from hocket.schemas.checks.large_values import MARK
from hocket.schemas.templates.budget import Meter
from hocket.schemas.templates.builtins.methods import MAPPING_METHODS, TEXT_METHODS, Method
from hocket.schemas.templates.builtins.template_tests import PASSING_TESTS, TESTS
from hocket.schemas.templates.builtins.text_filters import TEXT_FILTERS
from hocket.schemas.templates.operators import add
from hocket.schemas.templates.values import (
    Group,
    hashed,
    item,
    refuse_reference,
    refuse_references,
    sequence,
    text_of,
    weigh,
)

Get = Callable[[Any], Any]
CHAR_BYTES = 90
"""What a character takes as a text of its own in a list."""


def batched(meter: Meter, value: Any, linecount: int, fill_with: Any = None) -> list[list[Any]]:
    values = sequence(value)
    meter.items(len(values), CHAR_BYTES if isinstance(values, str) else 8)
    meter.items(len(values) // max(linecount, 1) + 1, 80)
    meter.spend(8 * (len(values) // max(linecount, 1)))
    if linecount < 1:  # as in Jinja2: the first row takes all
        linecount = len(values)
    rows = [list(values[i : i + linecount]) for i in range(0, len(values), linecount or 1)]
    if rows and fill_with is not None and len(rows[-1]) < linecount:
        missing = linecount - len(rows[-1])
        meter.items(missing)
        rows[-1] += [fill_with] * missing
    return rows


def sliced(meter: Meter, value: Any, slices: int, fill_with: Any = None) -> list[list[Any]]:
    values = sequence(value)
    if slices == 0:
        raise ZeroDivisionError("it cannot be split into 0 slices")
    meter.items(max(slices, 0), 80)
    meter.spend(8 * max(slices, 0))
    meter.items(len(values), CHAR_BYTES if isinstance(values, str) else 8)
    least, longer = divmod(len(values), slices)
    rows: list[list[Any]] = []
    start = 0
    for place in range(slices):
        end = start + least + (place < longer)
        row = list(values[start:end])
        if fill_with is not None and place >= longer:
            row.append(fill_with)
        rows.append(row)
        start = end
    return rows


def sorted_mapping(
    meter: Meter,
    value: Any,
    case_sensitive: bool = False,
    by: str = "key",
    reverse: bool = False,
) -> list[tuple[Any, Any]]:
    if by not in ("key", "value"):
        raise ValueError("`dictsort` sorts by `key` or `value`")
    place = 0 if by == "key" else 1
    pairs = MAPPING_METHODS["items"](meter, value)
    fold = _as_is if case_sensitive else _folded(meter)
    return _sorted(meter, pairs, lambda pair: fold(pair[place]), reverse)


def first(meter: Meter, value: Any) -> Any:
    if isinstance(value, Mapping) and value:
        return next(iter(value))
    values = sequence(value)
    return values[0] if len(values) else _nothing("No first item, sequence was empty.")


def last(meter: Meter, value: Any) -> Any:
    if isinstance(value, Mapping) and value:
        return next(reversed(value))
    values = sequence(value)
    return values[-1] if len(values) else _nothing("No last item, sequence was empty.")


def grouped(
    meter: Meter,
    value: Any,
    attribute: str | int,
    default: Any = None,
    case_sensitive: bool = False,
) -> list[Group]:
    real = getter(meter, attribute, default)
    fold = _as_is if case_sensitive else _folded(meter)
    pairs = [(fold(real(one)), one) for one in _each(meter, value, 8)]
    pairs = _sorted(meter, pairs, lambda pair: pair[0], False)
    meter.items(len(pairs), 200)
    groups = [(key, [one for _, one in some]) for key, some in groupby(pairs, lambda p: p[0])]
    if case_sensitive:
        return [Group((key, some)) for key, some in groups]
    return [Group((real(some[0]), some)) for _, some in groups]


def joined(meter: Meter, value: Any, d: Any = "", attribute: str | int | None = None) -> str:
    glue = text_of(meter, d)
    get = None if attribute is None else getter(meter, attribute)
    texts = [text_of(meter, one if get is None else get(one)) for one in _each(meter, value, 2)]
    meter.text(sum(map(len, texts)) + len(glue) * len(texts))
    return glue.join(texts)


def length(meter: Meter, value: Any) -> int:
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    return len(value)


def listed(meter: Meter, value: Any) -> list[Any]:
    values = sequence(value)
    meter.items(len(values), 40 if isinstance(values, range | str) else 8)
    return list(values)


def items(meter: Meter, value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Undefined):
        return []
    if not isinstance(value, Mapping):
        raise TypeError("Can only get item pairs from a mapping.")
    pairs: list[tuple[Any, Any]] = MAPPING_METHODS["items"](meter, value)
    return pairs


def mapped(meter: Meter, value: Any, *args: Any, **named: Any) -> list[Any]:
    if not args and "attribute" in named:
        get = getter(meter, named.pop("attribute"), named.pop("default", None))
        if named:
            raise TypeError(f"`map` has no parameter `{next(iter(named))}`")
        return [get(one) for one in _each(meter, value, 3)]
    if not args:
        raise TypeError("`map` needs the name of a filter, or `attribute=`")
    name = _named(args[0], "filter")
    call = FILTERS.get(name)
    if call is None:
        raise TypeError(f"there is no filter `{name}`")
    rest, values = args[1:], list(_each(meter, value, 8))
    if name not in PASSING_FILTERS:
        refuse_references(values)
    return [call(meter, one, *rest, **named) for one in values]


def least(
    meter: Meter, value: Any, case_sensitive: bool = False, attribute: str | int | None = None
) -> Any:
    return _extreme(meter, value, min, case_sensitive, attribute)


def greatest(
    meter: Meter, value: Any, case_sensitive: bool = False, attribute: str | int | None = None
) -> Any:
    return _extreme(meter, value, max, case_sensitive, attribute)


def selected(meter: Meter, value: Any, *args: Any, **named: Any) -> list[Any]:
    holds = _condition(meter, args, named)
    return [one for one in _each(meter, value, 3) if holds(one)]


def rejected(meter: Meter, value: Any, *args: Any, **named: Any) -> list[Any]:
    holds = _condition(meter, args, named)
    return [one for one in _each(meter, value, 3) if not holds(one)]


def selected_by(meter: Meter, value: Any, *args: Any, **named: Any) -> list[Any]:
    holds, get = _condition(meter, args[1:], named), _attribute(meter, args)
    return [one for one in _each(meter, value, 5) if holds(get(one))]


def rejected_by(meter: Meter, value: Any, *args: Any, **named: Any) -> list[Any]:
    holds, get = _condition(meter, args[1:], named), _attribute(meter, args)
    return [one for one in _each(meter, value, 5) if not holds(get(one))]


def backwards(meter: Meter, value: Any) -> Any:
    if isinstance(value, str):
        meter.text(len(value))
        return value[::-1]
    return listed(meter, value)[::-1]


def ordered(
    meter: Meter,
    value: Any,
    reverse: bool = False,
    case_sensitive: bool = False,
    attribute: str | int | None = None,
) -> list[Any]:
    values = sequence(value)
    paths: list[Any] = [attribute]
    if isinstance(attribute, str):
        paths = TEXT_METHODS["split"](meter, attribute, ",")
    gets = [getter(meter, path) for path in paths]
    meter.items(len(gets) * len(values), 16)
    meter.spend(9 * len(gets) * len(values))
    fold = _as_is if case_sensitive else _folded(meter)
    if len(gets) == 1:
        get = gets[0]
        try:
            return _sorted(meter, values, lambda one: fold(get(one)), reverse)
        except TypeError:  # wrapped in lists, as in Jinja2, equal values need no order
            return _sorted(meter, values, lambda one: [fold(get(one))], reverse)
    return _sorted(meter, values, lambda one: [fold(get(one)) for get in gets], reverse)


def total(meter: Meter, value: Any, attribute: str | int | None = None, start: Any = 0) -> Any:
    if isinstance(start, str):
        raise TypeError("`sum` adds numbers or lists: use `join` for text")
    get = getter(meter, attribute)
    result = start
    for one in _each(meter, value, 5):
        number = get(one)
        if type(number) is dict:
            refuse_reference(number)
        result = add(meter, result, number)
    return result


def without_repeats(
    meter: Meter, value: Any, case_sensitive: bool = False, attribute: str | int | None = None
) -> list[Any]:
    get = getter(meter, attribute)
    fold = _as_is if case_sensitive else _folded(meter)
    seen: set[Any] = set()
    found = []
    for one in _each(meter, value, 8):
        key = fold(get(one))
        if isinstance(key, tuple):
            weigh(meter, key)
        elif isinstance(key, str):
            meter.read(len(key))
        else:
            refuse_reference(key)
        entry = hashed(key)
        if entry not in seen:
            meter.make(160)
            seen.add(entry)
            found.append(one)
    return found


# ---- what they share ------------------------------------------------------------------------


def getter(meter: Meter, path: str | int | None, default: Any = None) -> Get:
    """Return a function that reads a dotted path of a value: `address.city`, `0.name`."""
    if path is None:
        return _as_is
    if isinstance(path, str):
        meter.items(path.count("."), 64)
        parts: list[Any] = [int(x) if x.isdigit() else x for x in path.split(".")]
    else:
        parts = [_plain_key(path)]
    extra = 2 * (len(parts) - 1)
    if not extra and default is None:
        key = parts[0]

        def get_one(value: Any) -> Any:
            if type(value) is dict and key in value and MARK not in value:
                return value[key]
            return item(meter, value, key)

        return get_one

    def get(value: Any) -> Any:
        meter.spend(extra)
        for part in parts:
            value = item(meter, value, part)
            if default is not None and isinstance(value, Undefined):
                value = default
        return value

    return get


def _plain_key(key: Any) -> Any:
    if isinstance(key, tuple):  # as for names: its hash may take for ever
        raise TypeError("the name of an attribute is text, not a tuple")
    return key


def _each(meter: Meter, value: Any, price: int) -> Iterator[Any]:
    """Iterate over a value, charging `price` operations and 8 bytes of the result per item."""
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    values = sequence(value) if value else ()
    meter.items(len(values), 40 if isinstance(values, range) else 8)
    meter.spend(price * len(values))
    return iter(values)


def _condition(meter: Meter, args: tuple[Any, ...], named: dict[str, Any]) -> Get:
    if not args:
        return bool
    name = _named(args[0], "test")
    test = TESTS.get(name)
    if test is None:
        raise TypeError(f"there is no test `{name}`")
    rest = args[1:]
    if name in PASSING_TESTS:
        return lambda one: test(meter, one, *rest, **named)

    def holds(one: Any) -> bool:
        if type(one) is dict:
            refuse_reference(one)
        return bool(test(meter, one, *rest, **named))

    return holds


def _named(name: Any, kind: str) -> str:
    """Return the name of a filter or a test. What is no text is not looked for: the hash of a tuple that
    holds another twice, which holds another twice, takes for ever."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a {kind} is text, not a {type(name).__name__}")
    return name


def _attribute(meter: Meter, args: tuple[Any, ...]) -> Get:
    if not args:
        raise TypeError("it needs the name of an attribute")
    return getter(meter, args[0])


def _extreme(
    meter: Meter,
    value: Any,
    choose: Callable[..., Any],
    case_sensitive: bool,
    attribute: str | int | None,
) -> Any:
    values = sequence(value)
    if not len(values):
        return _nothing("No aggregated item, sequence was empty.")
    get = getter(meter, attribute)
    fold = _as_is if case_sensitive else _folded(meter)
    keys = [fold(get(one)) for one in _each(meter, values, 5)]
    _weigh_keys(meter, keys, 1)
    return values[choose(range(len(values)), key=keys.__getitem__)]


def _sorted(meter: Meter, values: Any, key: Get, reverse: bool) -> list[Any]:
    keys = [key(one) for one in _each(meter, values, 6)]
    _weigh_keys(meter, keys, len(keys).bit_length())
    places = sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)
    meter.items(len(keys), 40)
    return [values[place] for place in places]


def _weigh_keys(meter: Meter, keys: list[Any], times: int) -> None:
    """Charge for the comparisons of keys, each of which is compared `times` times."""
    chars = sum(len(key) for key in keys if isinstance(key, str))
    meter.spend(times * ((chars >> 7) + (len(keys) >> 1)))
    refuse_references(keys)
    for key in keys:
        if isinstance(key, list | tuple):
            weight = weigh(meter, key)
            meter.spend(times * (weight.values + (weight.chars >> 7)))


def _as_is(value: Any) -> Any:
    return value


def _folded(meter: Meter) -> Get:
    def fold(value: Any) -> Any:
        if isinstance(value, str):
            meter.text(len(value))
            return value.lower()
        return value

    return fold


def _nothing(hint: str) -> Undefined:
    return StrictUndefined(hint)


LIST_FILTERS: dict[str, Method] = {
    "batch": batched,
    "count": length,
    "dictsort": sorted_mapping,
    "first": first,
    "groupby": grouped,
    "items": items,
    "join": joined,
    "last": last,
    "length": length,
    "list": listed,
    "map": mapped,
    "max": greatest,
    "min": least,
    "reject": rejected,
    "rejectattr": rejected_by,
    "reverse": backwards,
    "select": selected,
    "selectattr": selected_by,
    "slice": sliced,
    "sort": ordered,
    "sum": total,
    "unique": without_repeats,
}
FILTERS: dict[str, Method] = {**TEXT_FILTERS, **LIST_FILTERS}
PASSING_FILTERS = frozenset({"d", "default"})
"""Filters that do not read the value: a reference to a large one is like the value itself."""
