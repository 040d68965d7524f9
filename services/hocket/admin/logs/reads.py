"""Reads the stored log lines of the handlers of a run's steps."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

import asyncpg

from hocket.admin.pages import EPOCH, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.postgres.lookups import KEPT_OF_THIS_RUN
from hocket.schemas.administration.run_logs import RunLine, RunLogs
from hocket.schemas.errors import InvalidInput
from hocket.schemas.tracing.log_lines import Level

PLACE = re.compile(r"([0-9]{1,9}):([0-9]{1,9}):([0-9]{1,9}):(.*)", re.ASCII)
"""The part of a cursor after the time: attempt, delivery, number and step."""
LINES = f"""
SELECT at, step, attempt, delivery, number, level, text, fields, worker
FROM hocket.log_line c
WHERE tenant = $1 AND run_id = $2 AND (at, step, attempt, delivery, number) > ($3, $4, $5, $6, $7)
  AND ($8::text IS NULL OR step = $8) AND ($9::text[] IS NULL OR level = ANY ($9))
  AND {KEPT_OF_THIS_RUN}
ORDER BY at, step, attempt, delivery, number
LIMIT $10
"""
"""A page of a run's log lines."""


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which lines to return: of one step, and of a level or above."""

    step: str | None = None
    level: Level | None = None

    @property
    def levels(self) -> list[Level] | None:
        """The levels to return; None for all."""
        known: Sequence[Level] = get_args(Level)
        return None if self.level is None else list(known[known.index(self.level) :])


async def logs_of(
    pool: Pool,
    tenant: str,
    run_id: str,
    wanted: LogFilter,
    *,
    after: str | None,
    limit: int,
    with_texts: bool,
) -> RunLogs:
    """Return a page of a run's lines, earliest first; texts and fields only if `with_texts`."""
    rows = await pool.fetch(
        LINES,
        tenant,
        run_id,
        *_place(after),
        wanted.step,
        wanted.levels,
        limit + 1,
        timeout=QUERY_TIMEOUT_S,
    )
    page = rows[:limit]
    return RunLogs(
        run_id=run_id,
        lines=tuple(_line(row, with_texts=with_texts) for row in page),
        next=_cursor(page[-1]) if len(rows) > limit else None,
        withheld=not with_texts,
    )


def _cursor(row: asyncpg.Record) -> str:
    place = f"{row['attempt']}:{row['delivery']}:{row['number']}:{row['step']}"
    return cursor(row["at"], place)


def _place(after: str | None) -> tuple[datetime, str, int, int, int]:
    """Return the position of the line after which a page begins; raise InvalidInput."""
    if after is None:
        return EPOCH, "", 0, 0, -1
    at, place = parse_cursor(after)
    found = PLACE.fullmatch(place)
    if found is None:
        raise InvalidInput(
            field="after",
            reason="it is not a cursor of this list",
            cure="Send the `next` of a page.",
        )
    attempt, delivery, number = (int(found[part]) for part in (1, 2, 3))
    return at, found[4], attempt, delivery, number


def _line(row: asyncpg.Record, *, with_texts: bool) -> RunLine:
    fields: dict[str, Any] | None = None
    if with_texts and row["fields"] is not None:
        fields = json.loads(row["fields"])
    return RunLine(
        at=row["at"],
        step=row["step"],
        attempt=row["attempt"],
        delivery=row["delivery"],
        level=row["level"],
        text=row["text"] if with_texts else None,
        fields=fields,
        worker=row["worker"],
    )
