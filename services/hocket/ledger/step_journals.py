"""Removes the journals of steps from the stream JOURNALS some time after their runs have ended.

Until then `hocket runs show` displays them; when the stream is half full, they are removed at once.
A run that Postgres does not know keeps its journals for UNKNOWN_KEPT_S after the last entry: it is not
written yet, or its data was deleted.
A pass examines one page of journals, in the order of their names, and the next pass the page after it:
handlers that wait for days may have more journals than a page holds.
Every ledger does this; journals that another one has already removed cause no error.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
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
UNKNOWN_KEPT_S = 24 * 3_600.0
MAX_UNKNOWN = 1_000
"""The most unknown runs examined in one pass."""
MAX_SUBJECTS = 100_000
"""The most journals examined in one pass; the server names no more at once."""
API_TIMEOUT_MS = 10_000.0
STATEMENT_TIMEOUT_S = 5.0
RUNS_AT_ONCE = 1_000

KNOWN = f"SELECT run_id, coalesce(finished_at <= $2, false) AS is_due {rows_of_runs('hocket.run')}"

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Position:
    """How many journals come before those that the next pass examines."""

    offset: int = 0

    def move(self, examined: int, removed: int, total: int) -> None:
        """Go on after a page of which some journals were removed; after the last one, begin again."""
        is_last = not examined or self.offset + examined >= total
        self.offset = 0 if is_last else self.offset + examined - removed


async def remove_forever(bus: Bus, pool: asyncpg.Pool, stopping: asyncio.Event) -> None:
    """Remove journals every LOOK_S until `stopping`."""
    position = Position()
    while not stopping.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), LOOK_S)
            return
        try:
            await remove_ended(bus, pool, position=position)
        except BusUnavailable as error:
            log.info("journals_not_removed", reason=str(error))
        except STATEMENT_ERRORS as error:
            log.info("journals_not_removed", reason=repr(error))


async def remove_ended(
    bus: Bus, pool: asyncpg.Pool, kept_s: float = KEPT_S, *, position: Position | None = None
) -> int:
    """Remove the journals of runs that ended at least `kept_s` ago, among those of the page at
    `position`, which then moves on; return the number of runs."""
    position = position or Position()
    asked = {"subjects_filter": subjects.JOURNAL_FILTER, "offset": position.offset}
    info = await _api(bus, "INFO", asked)
    state = info.get("state") or {}
    kept_s = 0.0 if _is_crowded(info, state) else kept_s
    before = datetime.now(UTC) - timedelta(seconds=kept_s)
    page = sorted(state.get("subjects") or {})[:MAX_SUBJECTS]
    journals = Counter(map(_run_of, page))
    removed, unknown = list[str](), list[str]()
    for runs in _portions(list(journals)):
        due, others = await _examined(pool, runs, before)
        for run_id in due:
            await _remove(bus, run_id)
        removed += due
        unknown += others
    for run_id in unknown[:MAX_UNKNOWN]:
        if await _rests_s(bus, run_id) >= UNKNOWN_KEPT_S:
            await _remove(bus, run_id)
            removed.append(run_id)
    position.move(len(page), sum(journals[run_id] for run_id in removed), info.get("total", 0))
    if removed:
        log.info("journals_removed", runs=len(removed), kept_s=kept_s)
    return len(removed)


async def _examined(
    pool: asyncpg.Pool, runs: list[str], before: datetime
) -> tuple[list[str], set[str]]:
    """Return the runs whose journals are due, and those that Postgres does not know."""
    known = await pool.fetch(KNOWN, runs, before, timeout=STATEMENT_TIMEOUT_S)
    due = [row["run_id"] for row in known if row["is_due"]]
    return due, {*runs} - {row["run_id"] for row in known}


def _is_crowded(info: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    limit = (info.get("config") or {}).get("max_bytes", 0)
    return bool(0 < limit * CROWDED_SHARE <= state.get("bytes", 0))


async def _remove(bus: Bus, run_id: str) -> None:
    await _api(bus, "PURGE", {"filter": subjects.journals_of(run_id)})


async def _rests_s(bus: Bus, run_id: str) -> float:
    """Return how long ago the last entry of a run's journals was written; 0 if there is none."""
    answer = await _api(bus, "MSG.GET", {"last_by_subj": subjects.journals_of(run_id)})
    if "message" not in answer:
        return 0.0
    written_at = datetime.fromisoformat(answer["message"]["time"])
    return (datetime.now(UTC) - written_at).total_seconds()


async def _api(bus: Bus, verb: str, request: dict[str, Any]) -> dict[str, Any]:
    subject = f"STREAM.{verb}.{subjects.JOURNALS}"
    answer: dict[str, Any] = await bus.api(subject, request, timeout_ms=API_TIMEOUT_MS)
    return answer


def _run_of(subject: str) -> str:
    return subject.split(".")[2]


def _portions(runs: list[str]) -> Iterable[list[str]]:
    return (runs[at : at + RUNS_AT_ONCE] for at in range(0, len(runs), RUNS_AT_ONCE))
