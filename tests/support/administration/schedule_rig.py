"""Schedules next to an API under test, by a clock that the test sets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hocket.admin.schedules import firing
from hocket.schemas import subjects
from support.rest_rig import Rest

PIPELINE = {"pipeline": "report", "nodes": {"a": {"type": "signal", "signal": "go"}}}


@dataclass
class Clock:
    """A clock that stands still until it is set."""

    at: datetime

    def __call__(self) -> datetime:
        return self.at

    def set(self, text: str) -> None:
        self.at = moment(text)

    def pass_s(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


async def put(rest: Rest, name: str = "nightly", **said: Any) -> dict[str, Any]:
    """Create a schedule of the pipeline `report` and return it."""
    body = {"cron": "0 * * * *", "task": {"pipeline": "report"}, **said}
    answer = await rest.ask("PUT", f"/v1/schedules/{name}", json=body)
    assert answer.status in (200, 201), answer.body
    return dict(answer.body)


async def look(rest: Rest) -> None:
    """Submit what is due, once."""
    await firing.look(rest.app.state.context)


async def tasks(rest: Rest) -> list[tuple[Mapping[str, str], Any]]:
    """Return headers and inputs of all tasks that were submitted."""
    last = (await rest.bus.js.stream_info(subjects.TASKS)).state.last_seq
    found = [await rest.bus.js.get_msg(subjects.TASKS, seq) for seq in range(1, last + 1)]
    return [(dict(one.headers or {}), json.loads(one.data or b"")) for one in found]


async def history(rest: Rest, name: str = "nightly") -> list[dict[str, Any]]:
    """Return the outcome of each of a schedule's times, earliest first."""
    page = (await rest.get(f"/v1/schedules/{name}/firings?limit=500")).body
    return list(reversed(page["firings"]))


async def states(rest: Rest, name: str = "nightly") -> list[tuple[str, str]]:
    """Return the time of day and the state of each of them."""
    return [(one["planned_at"][11:16], one["state"]) for one in await history(rest, name)]


async def add_run(
    rest: Rest, run_id: str, status: str = "running", tenant: str = "default"
) -> None:
    """Write a run as its coordinator would."""
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,"
        " accepted_at, deadline_at, finished_at)"
        " VALUES ($1, 0, $3, 'report', 1, $2, 'standard', '{}', now(), now(),"
        " CASE WHEN $2 <> 'running' THEN now() END)"
        " ON CONFLICT (run_id) DO UPDATE SET status = $2, finished_at = excluded.finished_at",
        run_id,
        status,
        tenant,
    )
