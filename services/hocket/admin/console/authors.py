"""Shows the author of a change by the name of the key, which says more than its id."""

from collections.abc import Callable, Iterable

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool

KEY = "key:"
NAMES = "SELECT key_id, name FROM hocket.api_key WHERE key_id = ANY ($1::text[])"
"""The names of keys, revoked ones included."""

Named = Callable[[str | None], str]


async def names_of(pool: Pool, authors: Iterable[str | None]) -> Named:
    """Return a function that gives the name of each of these authors: a key's name, the id of a deleted
    key, and for other authors the stored text; empty for None."""
    ids = {one.removeprefix(KEY) for one in authors if one and one.startswith(KEY)}
    rows = await pool.fetch(NAMES, sorted(ids), timeout=QUERY_TIMEOUT_S) if ids else []
    names = {row["key_id"]: row["name"] for row in rows}

    def named(author: str | None) -> str:
        found = (author or "").removeprefix(KEY)
        return str(names.get(found, found))

    return named
