"""Signals that no step has read: the API refuses what a run could not keep, and says so."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hocket.schemas import subjects
from hocket.schemas.messages import MAX_SIGNALS_BYTES, MAX_UNREAD_SIGNALS
from support.rest_rig import Rest, running_rest

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
RUN = f"r{7:024x}"
URL = f"/v1/runs/{RUN}/signals"


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as running:
        yield running


async def _insert(rest: Rest, signals: list[Any], *, waits_for: list[str] | None = None) -> None:
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at, facts)"
        " VALUES ($1, 0, 'default', 'greet', 1, 'running', 'standard', '{}', $2, $3, $4)",
        RUN,
        NOW,
        NOW + timedelta(hours=1),
        json.dumps({"signals": signals, "seen_signals": ["read"]}),
    )
    await rest.pool.execute(
        "INSERT INTO hocket.step (run_id, key, path, type, role, parent, state, attempt, ready_at,"
        " facts) VALUES ($1, 'wait', 'wait', 'signal', 'wait', '', 'waiting', 0, $2, $3)",
        RUN,
        NOW,
        json.dumps({"waits_for": waits_for or ["go"]}),
    )


def _unread(count: int, payload: Any = None) -> list[dict[str, Any]]:
    return [
        {"signal_id": f"s{number}", "name": "other", "payload": payload, "by": ""}
        for number in range(count)
    ]


async def test_a_signal_that_a_full_run_could_only_keep_is_refused(rest: Rest) -> None:
    await _insert(rest, _unread(MAX_UNREAD_SIGNALS))
    answer = await rest.post(URL, {"name": "other", "signal_id": "new"})
    assert (answer.status, answer.error["code"]) == (409, "signals_not_read")
    assert "send it again when a step waits for it" in answer.error["message"]
    assert await rest.stored(subjects.LOG) == 0


@pytest.mark.parametrize(
    "body",
    [
        {"name": "go", "signal_id": "new"},
        {"name": "other", "signal_id": "s7"},
        {"name": "other", "signal_id": "read"},
    ],
    ids=["awaited", "repeat of an unread one", "repeat of a read one"],
)
async def test_a_full_run_takes_what_a_step_waits_for_and_repeats(
    rest: Rest, body: dict[str, Any]
) -> None:
    await _insert(rest, _unread(MAX_UNREAD_SIGNALS))
    assert (await rest.post(URL, body)).status == 202


async def test_a_signal_is_refused_that_would_be_too_much_with_the_others(rest: Rest) -> None:
    await _insert(rest, _unread(1, "x" * (MAX_SIGNALS_BYTES - 500)))
    assert (await rest.post(URL, {"name": "other"})).status == 202
    answer = await rest.post(URL, {"name": "other", "payload": "y" * 600})
    assert (answer.status, answer.error["code"]) == (409, "signals_not_read")
