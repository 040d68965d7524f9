"""Removes the journals of steps from the stream JOURNALS some time after their runs have ended.

Until then `hocket runs show` displays them; when the stream is half full, they are removed at once.
A run that Postgres does not know yet keeps its journals, which the stream's maximum age bounds.
Every ledger does this; journals that another one has already removed cause no error.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.kit.postgres.lookups import rows_of_runs
from hocket.schemas import subjects

LOOK_S = 60.0
KEPT_S = 900.0
"""How long journals are kept after the end of their run ..."""
CROWDED_SHARE = 0.5
"""... unless this share of the stream is used."""
MAX_SUBJECTS = 100_000
"""The most journals examined in one pass."""
API_TIMEOUT_MS = 10_000.0
STATEMENT_TIMEOUT_S = 5.0
RUNS_AT_ONCE = 1_000

ENDED = f"SELECT run_id {rows_of_runs('hocket.run')} WHERE finished_at <= $2"

log = structlog.get_logger(__name__)


async def remove_forever(bus: Bus, pool: asyncpg.Pool, stopping: asyncio.Event) -> None:
    """Remove journals every LOOK_S until `stopping`."""
    while not stopping.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), LOOK_S)
            return
        try:
            await remove_ended(bus, pool)
        except BusUnavailable as error:
            log.info("journals_not_removed", reason=str(error))
        except STATEMENT_ERRORS as error:
            log.info("journals_not_removed", reason=repr(error))


async def remove_ended(bus: Bus, pool: asyncpg.Pool, kept_s: float = KEPT_S) -> int:
    """Remove the journals of runs that ended at least `kept_s` ago; return the number of runs."""
    info = await _api(bus, "INFO", {"subjects_filter": subjects.JOURNAL_FILTER})
    state = info.get("state") or {}
    limit = (info.get("config") or {}).get("max_bytes", 0)
    if 0 < limit * CROWDED_SHARE <= state.get("bytes", 0):
        kept_s = 0.0
    before = datetime.now(UTC) - timedelta(seconds=kept_s)
    removed = 0
    for runs in _portions(_runs_of(state.get("subjects") or {})):
        ended = await pool.fetch(ENDED, runs, before, timeout=STATEMENT_TIMEOUT_S)
        for row in ended:
            await _api(bus, "PURGE", {"filter": subjects.journals_of(row["run_id"])})
        removed += len(ended)
    if removed:
        log.info("journals_removed", runs=removed, kept_s=kept_s)
    return removed


async def _api(bus: Bus, verb: str, request: dict[str, Any]) -> dict[str, Any]:
    subject = f"STREAM.{verb}.{subjects.JOURNALS}"
    answer: dict[str, Any] = await bus.api(subject, request, timeout_ms=API_TIMEOUT_MS)
    return answer


def _runs_of(found: dict[str, int]) -> list[str]:
    runs = dict.fromkeys(subject.split(".")[2] for subject in list(found)[:MAX_SUBJECTS])
    return list(runs)


def _portions(runs: list[str]) -> Iterable[list[str]]:
    return (runs[at : at + RUNS_AT_ONCE] for at in range(0, len(runs), RUNS_AT_ONCE))
