"""Finds the runs for which Postgres refuses a batch, by writing parts of it and rolling them back.

Nothing of this happens while batches are accepted. A refused batch is first tried without any row,
to tell a fault of the database from one of a row; then it is halved until single runs are left.
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
    """What is refused in a batch, with Postgres' errors. If there is nothing, the batch is refused
    only as a whole; `whole` is set if it is refused even without its rows."""

    by_key: dict[Key, Exception] = field(default_factory=dict)
    whole: Exception | None = None


async def find_refusals(store: Store, batch: Batch) -> Refusals:
    """Find what is refused in a batch; raise errors of the database itself, and PartitionLost."""
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
    """Tell whether Postgres ran out of memory for rows that are no larger than any statement may be."""
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
