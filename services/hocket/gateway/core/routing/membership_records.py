"""The entries that gateways write into their bucket, and the check that an entry is valid.

Anyone who can reach NATS may write anything under any key. `expected` tells whether an entry is one
that gateways write: heartbeats, lines of shared limits, states of warm replicas, operators' orders
for replicas, states and counts of experiment arms. Values must be within bounds, so that no number
overflows and no time is absurd.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

MEMBER = "member."
LIMIT = "limit."
WARM = "warm."
ORDER = "order."
ARM, TALLY = "arm.", "tally."
MAX_NAME_CHARS = 200
MAX_TEXT_CHARS = 4_000
MAX_PLACES = 1_000_000
"""The most places of one limit that may be held or wished for."""
MAX_MS = 1e15
MAX_COUNT = 2**53
MAX_LEVEL = 2
MAX_LINES = 64
MAX_TENANTS = 64
"""The most tenants whose counts of an arm are told."""
_PAIR = 2
_COUNTS = 7
_NAMES = rf"[A-Za-z0-9_=/.-]{{1,{MAX_NAME_CHARS}}}"
_KEY = re.compile(rf"(member|limit|warm|order|arm|tally)\.{_NAMES}")


def parsed(value: bytes | None) -> Any:
    """Return the content of an entry; None if it was deleted or is not JSON."""
    try:
        return json.loads(value or b"null")
    except (ValueError, RecursionError):
        return None


def expected(key: str, value: bytes | None) -> bool:
    """Tell whether a key may hold a value; for None, whether such a key may exist."""
    found = _KEY.fullmatch(key)
    if found is None:
        return False
    if value is None:
        return True
    content = parsed(value)
    return isinstance(content, dict) and _RULES[found[1]](content)


def _is_limit(content: Mapping[str, Any]) -> bool:
    return 0 < len(content) <= MAX_LINES and all(
        len(name) <= MAX_NAME_CHARS
        and isinstance(line, list)
        and len(line) == _PAIR
        and all(_is_whole(number, MAX_PLACES) for number in line)
        for name, line in content.items()
    )


def _is_warm(content: Mapping[str, Any]) -> bool:
    ready_at_ms = content.get("ready_at_ms")
    return (
        _is_whole(content.get("level"), MAX_LEVEL)
        and (ready_at_ms is None or _is_number(ready_at_ms))
        and all(
            _is_number(content.get(name)) for name in ("provision_ms", "load_ms", "accounted_ms")
        )
    )


def _is_order(content: Mapping[str, Any]) -> bool:
    return (
        isinstance(content.get("drained"), bool)
        and all(
            isinstance(content.get(name), str) and len(content[name]) <= MAX_TEXT_CHARS
            for name in ("replica", "reason", "by")
        )
        and all(_is_number(content.get(name)) for name in ("warm_until_ms", "reset_at_ms", "at_ms"))
    )


def _is_arm(content: Mapping[str, Any]) -> bool:
    at_ms = content.get("at_ms")
    return (
        _is_whole(content.get("epoch"), MAX_COUNT)
        and isinstance(content.get("off"), bool)
        and isinstance(content.get("identity"), str)
        and (at_ms is None or _is_number(at_ms))
        and all(
            isinstance(content.get(name, ""), str) and len(content.get(name, "")) <= MAX_TEXT_CHARS
            for name in ("cause", "reason", "by")
        )
    )


def _is_tally(content: Mapping[str, Any]) -> bool:
    return bool(content) and all(_is_count_of_arm(counts) for counts in content.values())


def _is_count_of_arm(counts: Any) -> bool:
    """Tell whether these are valid counts: identity, epoch, calls, pairs of (bad, total), and the
    numbers of these pairs by tenant."""
    if not isinstance(counts, list) or len(counts) != _COUNTS or not isinstance(counts[0], str):
        return False
    *pairs, tenants = counts[3:]
    return (
        all(_is_whole(number, MAX_COUNT) for number in counts[1:3])
        and all(_are_whole(pair, _PAIR) for pair in pairs)
        and isinstance(tenants, dict)
        and len(tenants) <= MAX_TENANTS
        and all(map(_is_tenant, tenants))
        and all(_are_whole(numbers, len(pairs) * _PAIR) for numbers in tenants.values())
    )


def _is_tenant(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS


def _are_whole(numbers: Any, count: int) -> bool:
    return (
        isinstance(numbers, list)
        and len(numbers) == count
        and all(_is_whole(number, MAX_COUNT) for number in numbers)
    )


def _is_whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_MS


_RULES: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "member": lambda content: not content,
    "limit": _is_limit,
    "warm": _is_warm,
    "order": _is_order,
    "arm": _is_arm,
    "tally": _is_tally,
}
