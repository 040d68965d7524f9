"""What coordinators write into their bucket, signs of life and leases, and which entries are valid.

Anyone who reaches NATS may write anything under any key. `sign_of` and `lease_of` read an entry, or
tell that it is not a coordinator's: a different key, not our JSON, a partition that does not exist,
or a name that is too long.
"""

import json
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from hocket.schemas import subjects

MEMBER = "member."
PARTITION = "partition."
MAX_NAME_CHARS = 200
_MEMBER_KEY = re.compile(rf"{re.escape(MEMBER)}[A-Za-z0-9_.-]{{1,{MAX_NAME_CHARS}}}")
_PARTITION_KEY = re.compile(rf"{re.escape(PARTITION)}(0|[1-9][0-9]{{0,3}})", re.ASCII)
_STATES = ("serving", "full", "leaving")
MAX_NAMED_CHARS = 1_000
"""The most characters of tenants' names in a sign of life; if there are more, marks stand in for
the names."""
_MARK_BYTES = 8
_MARK = re.compile(rf"#[0-9a-f]{{{2 * _MARK_BYTES}}}")


@dataclass(frozen=True, slots=True)
class Sign:
    """A coordinator's sign of life."""

    incarnation: str
    state: str
    tenants: frozenset[str] = frozenset()
    """If the coordinator is full because of a few tenants' runs: those tenants, as names or marks."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who owns a partition; "" if it was handed over."""

    owner: str
    incarnation: str


def encoded(**content: str) -> bytes:
    """Return the value of an entry."""
    return json.dumps(content).encode()


def lease_key(number: int) -> str:
    """Return the key of a partition's lease."""
    return f"{PARTITION}{number}"


def partition_in(key: str, partitions: int) -> int | None:
    """Return the partition whose lease a key holds; None for any other key."""
    if _PARTITION_KEY.fullmatch(key) is None:
        return None
    number = int(key.removeprefix(PARTITION))
    return number if number < partitions else None


def member_in(key: str) -> str | None:
    """Return the coordinator whose sign of life a key holds; None for any other key."""
    return None if _MEMBER_KEY.fullmatch(key) is None else key.removeprefix(MEMBER)


def sign_of(value: bytes | None) -> Sign | None:
    """Return the sign of life in a value; None if it holds none."""
    content = _content(value)
    incarnation, state = content.get("incarnation"), content.get("state")
    if not _is_name(incarnation) or state not in _STATES:
        return None
    tenants = _tenants(content.get("tenant")) if state == "full" else frozenset()
    return Sign(str(incarnation), str(state), tenants)


def named(tenants: frozenset[str]) -> dict[str, str]:
    """Return the field of a sign of life that names the tenants whose runs make a coordinator full."""
    names = ",".join(sorted(tenants))
    if len(names) > MAX_NAMED_CHARS:
        names = ",".join(sorted(map(mark_of, tenants)))
    return {"tenant": names} if tenants else {}


def mark_of(tenant: str) -> str:
    """Return the mark that stands in for a tenant's name when there are many: it is shorter, and
    not a valid name."""
    return "#" + blake2b(tenant.encode(), digest_size=_MARK_BYTES).hexdigest()


def is_among(tenant: str, told: frozenset[str]) -> bool:
    """Tell whether a tenant is among these names or marks."""
    return tenant in told or mark_of(tenant) in told


def lease_of(value: bytes | None) -> Lease | None:
    """Return the lease in a value; None if it holds none."""
    content = _content(value)
    owner, incarnation = content.get("owner"), content.get("incarnation")
    if (owner, incarnation) != ("", "") and not (_is_name(owner) and _is_name(incarnation)):
        return None
    return Lease(str(owner), str(incarnation))


def expected(key: str, value: bytes | None, *, partitions: int) -> bool:
    """Tell whether a key may hold a value; with None, whether there may be such a key at all."""
    if member_in(key) is not None:
        return value is None or sign_of(value) is not None
    if partition_in(key, partitions) is not None:
        return value is None or lease_of(value) is not None
    return False


def _content(value: bytes | None) -> dict[str, Any]:
    try:
        content = json.loads(value or b"null")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _tenants(names: Any) -> frozenset[str]:
    found = names.split(",") if isinstance(names, str) else []
    known = (subjects.TOKEN.fullmatch(one) or _MARK.fullmatch(one) for one in found)
    return frozenset(found) if all(known) else frozenset()


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARS and value.isprintable()
