"""Inputs and outputs in answers: sent as they are stored, or hidden if the caller may not see them."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.admin.live.run_news import event_of_json
from hocket.admin.runs.content import result_json, run_json, steps_json
from hocket.schemas.rest import RunDetail, RunResult, StepDetail, StepList

NOW = datetime(2026, 5, 1, tzinfo=UTC)
RUN = "r" + "1" * 24
AS_STORED = '{"sum": 1.50, "to\\u0000": "\N{GREEK SMALL LETTER PI}", "of": [1e2]}'
"""A JSON text that is another one if it is parsed and encoded."""
ROW: dict[str, Any] = {
    "run_id": RUN,
    "tenant": "default",
    "pipeline": "greet",
    "version": 1,
    "status": "succeeded",
    "priority": "standard",
    "accepted_at": NOW,
    "deadline_at": NOW,
    "paused_at_ms": None,
    "finished_at": NOW,
    "degraded": False,
    "spent_usd": Decimal("0.25"),
    "budget_usd": None,
    "labels": '{"input": "output"}',
    "idempotency_key": None,
    "input": '{"n":  1}',
    "output": AS_STORED,
    "error": None,
    "parent": None,
    "origin": None,
    "critical_path": None,
}
SEES: Any = SimpleNamespace(sees_content=True)
SEES_NOT: Any = SimpleNamespace(sees_content=False)


def step(key: str) -> StepDetail:
    return StepDetail(
        step=key, node=key, type="python", role="leaf", state="succeeded", attempt=1, ready_at=NOW
    )


def test_the_values_of_a_run_are_sent_as_stored() -> None:
    answer = run_json(ROW, SEES)
    assert AS_STORED.encode() in answer, (
        "it was parsed and encoded, which takes long if it is large"
    )
    assert b'"input":{"n":  1},' in answer
    body = json.loads(answer)
    assert body["output"] == json.loads(AS_STORED)
    assert body["labels"] == {"input": "output"}
    assert set(body) == set(RunDetail.model_json_schema(by_alias=True)["properties"])


def test_the_result_of_a_run_is_sent_as_stored_on_one_line() -> None:
    answer = result_json(ROW, SEES)
    assert AS_STORED.encode() in answer
    assert set(json.loads(answer)) == set(RunResult.model_fields)
    assert event_of_json("run", answer).count(b"\n") == 3


@pytest.mark.parametrize("written", [run_json, result_json])
def test_values_are_hidden_from_callers_who_may_not_see_content(written: Any) -> None:
    body = json.loads(written(ROW, SEES_NOT))
    assert body["withheld"]
    assert body.get("input", {}) == {}
    assert body["output"] is None


def test_what_is_missing_is_null() -> None:
    body = json.loads(run_json({**ROW, "output": None}, SEES))
    assert body["input"] == {"n": 1}
    assert body["output"] is None


def test_each_step_has_its_own_values() -> None:
    page = StepList(run_id=RUN, steps=(step("a"), step("b"), step("c")), next="1:c")
    values = {"a": ('{"a": 1}', AS_STORED), "b": (None, "2.0"), "c": ("{}", None)}
    answer = steps_json(page, values)
    assert AS_STORED.encode() in answer
    body = json.loads(answer)
    found = [(one["step"], one["input"], one["output"]) for one in body["steps"]]
    assert found == [("a", {"a": 1}, json.loads(AS_STORED)), ("b", None, 2.0), ("c", {}, None)]
    assert body["next"] == "1:c"


def test_the_values_of_steps_are_null_if_they_were_not_read() -> None:
    page = StepList(run_id=RUN, steps=(step("a"),))
    assert steps_json(page, {}) == page.model_dump_json(by_alias=True).encode()
