"""What a waiting step is said to wait for."""

import json
from typing import Any, cast

import asyncpg
import pytest

from hocket.admin.queries import Pool
from hocket.admin.runs.reads import one_step

COLUMNS = (
    "role parent ready_at dispatched_at started_at finished_at deadline_at slack_ms worker error"
    " source waits_until_ms waits_for_steps"
)


@pytest.mark.parametrize(
    ("type_", "names", "reason"),
    [
        (
            "approval",
            ["review#2/ok", "ok"],
            "It waits for an answer to the approval `review#2/ok`.",
        ),
        ("signal", ["paid"], "It waits for the signal `paid`."),
        ("python", ["paid", "gone"], "It waits for the signal `paid` or `gone`."),
    ],
)
async def test_an_approval_is_not_called_a_signal(
    type_: str, names: list[str], reason: str
) -> None:
    class Rows:
        async def fetchrow(self, *_: Any, **__: Any) -> Any:
            row = dict.fromkeys(COLUMNS.split())
            row |= {"key": "review#2/ok", "path": "review/ok", "state": "waiting", "attempt": 0}
            row |= {"role": "wait", "ready_at": "2030-01-01T00:00:00Z", "type": type_}
            return row | {"waits_for": json.dumps(names)}

        async def fetch(self, *_: Any, **__: Any) -> list[asyncpg.Record]:
            return []

    step = await one_step(cast(Pool, Rows()), "r" + "0" * 24, "review#2/ok")
    assert step.waits_for is not None
    assert (step.waits_for.reason, step.waits_for.signals) == (reason, tuple(names))
