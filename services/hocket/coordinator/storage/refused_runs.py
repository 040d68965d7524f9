"""Which runs make Postgres refuse a batch: found by writing parts of it and taking them back.

Nothing of this happens while batches are taken. A refused one is tried without any row first, to tell
a fault of the database from one of a row; then it is halved until the rows of single runs are left.
"""

from dataclasses import dataclass, field

import asyncpg

from hocket.coordinator.storage.commit_batch import (
    MAX_STATEMENT_CHARS,
    Batch,
    Key,
    groups_of,
    joined,
)
from hocket.coordinator.storage.store import PartitionLost, Store
from hocket.kit.postgres.errors import may_be_row_fault


@dataclass(slots=True)
class Refusals:
    """What of a batch is refused, with what Postgres says. Without any, the batch is refused as a whole,
    for `whole` where it is so even without its rows."""

    by_key: dict[Key, Exception] = field(default_factory=dict)
    whole: Exception | None = None


async def find_refusals(store: Store, batch: Batch) -> Refusals:
    """Find what of a batch is refused; raise what is of the database, or of another owner."""
    groups = groups_of(batch)
    whole = await _refusal(store, batch.bare())
    found = Refusals(whole=whole)
    pending = [] if whole is not None or not groups else [list(groups)]
    while pending:
        keys = pending.pop()
        error = await _refusal(store, joined(batch, [groups[key] for key in keys]))
        if error is None:
            continue
        if len(keys) == 1:
            if _is_short_of_memory(error, groups[keys[0]]):
                raise error
            found.by_key[keys[0]] = error
        else:
            half = len(keys) // 2
            pending += [keys[half:], keys[:half]]
    return found


def _is_short_of_memory(error: Exception, rows: Batch) -> bool:
    """Tell whether Postgres had no memory for rows of which it takes as many in any statement."""
    return isinstance(error, asyncpg.OutOfMemoryError) and rows.size_chars <= MAX_STATEMENT_CHARS


async def _refusal(store: Store, batch: Batch) -> Exception | None:
    try:
        await store.rehearse(batch)
    except PartitionLost:
        raise
    except Exception as error:
        if not may_be_row_fault(error):
            raise
        return error
    return None
