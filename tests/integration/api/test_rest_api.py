"""The REST API over a real NATS and a real Postgres. There is no coordinator: the tests read what the
API publishes, answer in its place, and write the rows that it would have written."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import pytest
from nats.aio.msg import Msg
from openapi_spec_validator import validate as validate_openapi
from typer.testing import CliRunner

from hocket.admin.app import MAX_BODY_BYTES
from hocket.admin.approvals import reads as approval_reads
from hocket.admin.calls import reads as calls
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.runs import lookup, reads
from hocket.cli.app import app as cli
from hocket.kit.nats import dead_letters
from hocket.kit.nats.cloudevents import event_headers
from hocket.schemas import ids, subjects
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import (
    CancelRequested,
    ExperimentState,
    ReplicaState,
    ReplicasTold,
    RunFinished,
    SignalReceived,
    TaskRejected,
)
from support.administration.told_replicas import ToldGateways
from support.rest_rig import Rest, running_rest
from support.runs.rows import insert_step

WAIT_S = 10.0
NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)

GREET: dict[str, Any] = {
    "pipeline": "greet",
    "slo_ms": 5000,
    "input": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}},
    },
    "nodes": {"hello": {"type": "python", "handler": "greet:hello"}},
}


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


@pytest.fixture
async def greet(rest: Rest) -> Rest:
    applied = await rest.post("/v1/pipelines", GREET)
    assert applied.status == 201
    return rest


# ---- pipelines ------------------------------------------------------------------------------


async def test_a_changed_spec_is_the_next_version_and_the_same_spec_is_the_same(rest: Rest) -> None:
    first = await rest.post("/v1/pipelines", GREET)
    again = await rest.post("/v1/pipelines", GREET)
    changed = await rest.post("/v1/pipelines", {**GREET, "slo_ms": 6000})
    back = await rest.post("/v1/pipelines", GREET)

    said = [(a.status, a.body["version"], a.body["created"]) for a in (first, again, changed, back)]
    assert said == [(201, 1, True), (200, 1, False), (201, 2, True), (201, 3, True)]


async def test_versions_applied_at_once_are_numbered_without_gaps(rest: Rest) -> None:
    specs = [{**GREET, "slo_ms": 1000 + n} for n in range(20)]

    answers = await asyncio.gather(*(rest.post("/v1/pipelines", spec) for spec in specs))

    assert sorted(answer.body["version"] for answer in answers) == list(range(1, 21))


async def test_the_same_spec_applied_at_once_is_one_version(rest: Rest) -> None:
    answers = await asyncio.gather(*(rest.post("/v1/pipelines", GREET) for _ in range(20)))

    assert {answer.body["version"] for answer in answers} == {1}
    assert sum(answer.body["created"] for answer in answers) == 1


async def test_a_pipeline_may_be_sent_as_yaml(rest: Rest) -> None:
    text = "pipeline: yam\nnodes:\n  a: {type: python, handler: 'm:f', retry: {on: [timeout]}}\n"

    applied = await rest.ask(
        "POST", "/v1/pipelines", data=text, headers={"Content-Type": "application/yaml"}
    )
    shown = await rest.get("/v1/pipelines/yam")

    assert applied.status == 201
    assert shown.body["spec"]["nodes"]["a"]["retry"]["on"] == ["timeout"]


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ({**GREET, "nodes": {"a": {"type": "pyton"}}}, "nodes.a.type", "Use one of"),
        (
            {
                **GREET,
                "nodes": {
                    "a": {"type": "python", "handler": "m:f", "needs": ["b"]},
                    "b": {"type": "python", "handler": "m:f", "needs": ["a"]},
                },
            },
            "nodes",
            "Remove one of these edges",
        ),
        (
            {
                **GREET,
                "nodes": {
                    "a": {
                        "type": "python",
                        "handler": "m:f",
                        "with": {"x": "{{ nodes.ghost.output }}"},
                    }
                },
            },
            None,
            "ghost",
        ),
        ({**GREET, "colour": "red"}, "colour", "there is no such field"),
        ({**GREET, "input": {"type": 5}}, None, "input"),
        ({**GREET, "input": {"$ref": "#/$defs/gone"}}, "input.$ref", "#/$defs/gone"),
        ({**GREET, "input": {"items": {"$ref": "http://x/y"}}}, "input.items.$ref", "http://x/y"),
        ({**GREET, "pipeline": "validate"}, "pipeline", "/v1/pipelines/validate"),
        ([], "(document)", "a pipeline is a mapping"),
        ({**GREET, "description": "a\x00b"}, "(document).description", "U+0000"),
    ],
)
async def test_a_bad_pipeline_is_refused_with_its_field_and_cure(
    rest: Rest, spec: Any, field: str | None, said: str
) -> None:
    for path in ("/v1/pipelines", "/v1/pipelines/validate"):
        answer = await rest.post(path, spec)

        assert answer.status == 422
        assert said in answer.error["message"]
        assert field is None or answer.error["field"] == field
    assert (await rest.get("/v1/pipelines")).body == {"pipelines": []}


async def test_without_a_gateway_models_go_unchecked_and_the_reply_says_so(rest: Rest) -> None:
    answer = await rest.post("/v1/pipelines", _asking("anything"))

    assert answer.status == 201
    assert "not checked" in answer.body["warnings"][0]


async def test_a_model_that_the_gateway_does_not_know_is_refused(rest: Rest) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(json.dumps({"models": ["writer"]}).encode())

    await rest.bus.subscribe(subjects.GATEWAY_MODELS, answer)

    refused = await rest.post("/v1/pipelines", _asking("wroter"))
    taken = await rest.post("/v1/pipelines", _asking("writer"))

    assert refused.status == 422
    assert refused.error["field"] == "nodes.a.model"
    assert "writer" in refused.error["message"]
    assert taken.body["warnings"] == []


async def test_a_sub_pipeline_that_is_not_there_yet_is_a_warning(rest: Rest) -> None:
    spec = {**GREET, "nodes": {"a": {"type": "pipeline", "pipeline": "later"}}}

    answer = await rest.post("/v1/pipelines", spec)

    assert any("`later`" in warning for warning in answer.body["warnings"])


async def test_pipelines_are_listed_by_name_in_pages(rest: Rest) -> None:
    for name in ("b", "a", "c"):
        await rest.post("/v1/pipelines", {**GREET, "pipeline": name})

    first = await rest.get("/v1/pipelines", params={"limit": 2})
    second = await rest.get("/v1/pipelines", params={"limit": 2, "after": "b"})

    assert [p["pipeline"] for p in first.body["pipelines"]] == ["a", "b"]
    assert [p["pipeline"] for p in second.body["pipelines"]] == ["c"]
    assert first.body["pipelines"][0]["nodes"] == 1


async def test_an_earlier_version_can_be_shown(greet: Rest) -> None:
    await greet.post("/v1/pipelines", {**GREET, "slo_ms": 6000})

    latest = await greet.get("/v1/pipelines/greet")
    first = await greet.get("/v1/pipelines/greet?version=1")
    none = await greet.get("/v1/pipelines/greet?version=9")

    assert (latest.body["version"], latest.body["spec"]["slo_ms"]) == (2, 6000)
    assert (first.body["version"], first.body["spec"]["slo_ms"]) == (1, 5000)
    assert latest.body["versions"] == [2, 1]
    assert (none.status, none.error["field"]) == (422, "version")


async def test_the_schema_for_editors_is_served(rest: Rest) -> None:
    answer = await rest.get("/v1/schemas/pipeline")

    assert answer.body["title"] == "Hocket pipeline"


# ---- submitting runs ------------------------------------------------------------------------


async def test_a_submitted_task_is_one_message_that_any_user_could_have_published(
    greet: Rest,
) -> None:
    task = {
        "pipeline": "greet",
        "input": {"name": "Ada \u2603"},
        "idempotency_key": "order-17",
        "deadline_ms": 1500,
        "class": "interactive",
        "budget_usd": "0.25",
        "version": 1,
    }
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    answer = await greet.post("/v1/runs", task, headers={"traceparent": traceparent})
    message = await greet.bus.js.get_last_msg(subjects.TASKS, "hocket.task.default.greet")

    run_id = ids.run_id("default", "order-17")
    assert answer.status == 202
    assert answer.body["run_id"] == run_id
    assert answer.headers["Location"] == f"/v1/runs/{run_id}"
    assert json.loads(message.data or b"") == {"name": "Ada \u2603"}
    headers = message.headers or {}
    assert headers["Hocket-Idempotency-Key"] == "order-17"
    assert headers["Hocket-Class"] == "interactive"
    assert float(headers["Hocket-Deadline-Ms"]) == 1500
    assert Decimal(headers["Hocket-Budget-Usd"]) == Decimal("0.25")
    assert headers["Hocket-Version"] == "1"
    assert headers["ce-specversion"] == "1.0"
    assert headers["traceparent"] == traceparent
    assert "Hocket-Reply-To" not in headers


async def test_the_key_may_come_as_a_header_and_the_same_key_is_one_message(greet: Rest) -> None:
    task = {"pipeline": "greet", "input": {"name": "Ada"}}

    answers = [
        await greet.post("/v1/runs", task, headers={"Idempotency-Key": "k1"}) for _ in range(3)
    ]

    assert {answer.body["run_id"] for answer in answers} == {ids.run_id("default", "k1")}
    assert len(await greet.message_ids(subjects.TASKS)) == 1


async def test_without_a_key_each_submission_is_a_run_of_its_own(greet: Rest) -> None:
    task = {"pipeline": "greet", "input": {"name": "Ada"}}

    answers = [await greet.post("/v1/runs", task) for _ in range(2)]

    assert len({answer.body["run_id"] for answer in answers}) == 2
    assert len(await greet.message_ids(subjects.TASKS)) == 2


async def test_tenants_with_the_same_key_have_runs_of_their_own(greet: Rest) -> None:
    acme = {"X-Hocket-Tenant": "acme"}
    await greet.post("/v1/pipelines", GREET, headers=acme)
    task = {"pipeline": "greet", "input": {"name": "Ada"}, "idempotency_key": "k"}

    ours = await greet.post("/v1/runs", task)
    theirs = await greet.post("/v1/runs", task, headers=acme)

    assert ours.body["run_id"] != theirs.body["run_id"]
    assert len(await greet.message_ids(subjects.TASKS)) == 2


@pytest.mark.parametrize(
    ("task", "status", "field", "said"),
    [
        ({"pipeline": "nobody", "input": {}}, 404, None, "hocket pipeline apply"),
        ({"pipeline": "greet", "input": {}}, 422, "input", "'name' is a required property"),
        ({"pipeline": "greet", "input": {"name": 5}}, 422, "input.name", "is not of type 'string'"),
        ({"pipeline": "greet", "input": {"name": "x" * 5000}}, 413, "input", "4096"),
        ({"pipeline": "greet", "input": {"name": "a\x00"}}, 422, "input.name", "U+0000"),
        ({"pipeline": "greet", "input": [1]}, 422, "input", "it is a list, not a mapping"),
        ({"pipeline": "greet", "inptu": {}}, 422, "inptu", "there is no such field"),
        (
            {"pipeline": "greet", "input": {"name": "a"}, "version": 7},
            422,
            "version",
            "latest is 1",
        ),
        ({"pipeline": "greet", "wait_ms": 60_001}, 422, "wait_ms", "60000"),
        ({"pipeline": "greet", "deadline_ms": -1}, 422, "deadline_ms", "Use more than 0."),
        ({"pipeline": "greet", "class": "urgent"}, 422, "class", "Use `interactive`"),
        ({"pipeline": "a.b"}, 422, "pipeline", "it is not a name. Use letters"),
        ({"input": {}}, 422, "pipeline", "it is missing"),
        ({"pipeline": "greet", "idempotency_key": "a b"}, 422, "idempotency_key", "it has a space"),
    ],
)
async def test_a_bad_task_is_refused_with_its_field_and_cure(
    greet: Rest, task: Any, status: int, field: str | None, said: str
) -> None:
    answer = await greet.post("/v1/runs", task)

    assert answer.status == status
    assert said in answer.error["message"]
    assert answer.error["field"] == field
    assert await greet.stored(subjects.TASKS) == 0


async def test_two_different_keys_for_one_task_are_refused(greet: Rest) -> None:
    task = {"pipeline": "greet", "input": {"name": "Ada"}, "idempotency_key": "a"}

    answer = await greet.post("/v1/runs", task, headers={"Idempotency-Key": "b"})

    assert (answer.status, answer.error["field"]) == (422, "Idempotency-Key")


async def test_who_waits_gets_the_result_that_comes_in_time(greet: Rest) -> None:
    async def run(message: Msg) -> None:
        await _reply(greet, message, _finished("k", {"greeting": "Hello, Ada"}))

    await greet.bus.subscribe("hocket.task.default.greet", run)

    answer = await greet.post("/v1/runs", _task("k", wait_ms=10_000))

    assert answer.status == 200
    assert answer.body["status"] == "succeeded"
    assert answer.body["output"] == {"greeting": "Hello, Ada"}
    assert answer.body["duration_ms"] == 250
    assert answer.body["met_deadline"] is True
    assert answer.body["spent_usd"] == "0.07"


async def test_who_waits_in_vain_gets_a_receipt(greet: Rest) -> None:
    answer = await greet.post("/v1/runs", _task("k", wait_ms=50))

    assert answer.status == 202
    assert answer.body["status"] == "accepted"


async def test_who_waits_gets_the_refusal_of_intake(greet: Rest) -> None:
    async def refuse(message: Msg) -> None:
        error = ErrorInfo(code="over_budget", message="No money left.", error_class="budget")
        rejected = TaskRejected(tenant="default", pipeline="greet", error=error)
        await _reply(greet, message, rejected)

    await greet.bus.subscribe("hocket.task.default.greet", refuse)

    answer = await greet.post("/v1/runs", _task("k", wait_ms=10_000))

    assert answer.status == 402
    assert answer.error["code"] == "over_budget"


async def test_a_run_that_has_ended_is_answered_from_the_database(greet: Rest) -> None:
    run_id = ids.run_id("default", "k")
    await _insert_run(greet, run_id, status="succeeded", output={"a": 1})
    await _insert_call(greet, "http:default:mine", run_id, node="draft", cost_usd="0.25")

    waiting = await greet.post("/v1/runs", _task("k", wait_ms=10_000))
    asking = await greet.post("/v1/runs", _task("k"))

    assert (waiting.status, waiting.body["output"]) == (200, {"a": 1})
    assert waiting.body["spent_usd"] == "0.25"
    assert (asking.status, asking.body["status"], asking.body["known"]) == (202, "succeeded", True)
    assert await greet.stored(subjects.TASKS) == 0


async def test_who_waits_for_a_run_that_another_started_hears_the_public_fact(greet: Rest) -> None:
    run_id = ids.run_id("default", "k")
    await _insert_run(greet, run_id, status="running")
    waiting = asyncio.create_task(greet.post("/v1/runs", _task("k", wait_ms=10_000)))
    other, ours = _finished("other", 1), _finished("k", 2)
    async with asyncio.timeout(WAIT_S):
        while not waiting.done():
            for finished in (other, ours):
                await _tell(greet, finished)

    assert (await waiting).body["output"] == 2


@pytest.mark.parametrize("way", ["inbox", "fact"])
async def test_an_output_that_was_too_large_for_a_message_is_answered_from_the_database(
    greet: Rest, way: str
) -> None:
    async def run(message: Msg) -> None:
        await _insert_run(greet, ids.run_id("default", "k"), output={"a": 1})
        finished = _finished("k", None).model_copy(update={"output_left_out": True})
        if way == "inbox":
            await _reply(greet, message, finished)
        else:
            await _tell(greet, finished)

    await greet.bus.subscribe("hocket.task.default.greet", run)

    answer = await greet.post("/v1/runs", _task("k", wait_ms=10_000))

    assert (answer.status, answer.body["output"]) == (200, {"a": 1})


async def test_many_who_wait_for_runs_of_a_pipeline_hear_it_by_one_subscription(
    greet: Rest,
) -> None:
    """Each hears of its own run; what is told of other runs is not read."""
    fact = subjects.event("default", "greet", RunFinished.kind)
    context = greet.app.state.context

    def heard() -> int:
        return sum(one.subject == fact for one in context.bus.nc._subs.values())

    def waiting() -> int:
        pipeline = context.known_runs.ends._pipelines.get(fact)
        return sum(map(len, pipeline.waiting.values())) if pipeline else 0

    asked = [
        asyncio.create_task(greet.post("/v1/runs", _task(f"k{n}", wait_ms=10_000)))
        for n in (0, 1, 2, 2)
    ]
    async with asyncio.timeout(WAIT_S):
        while (  # noqa: ASYNC110  # of the server
            waiting() < len(asked) or await greet.stored(subjects.TASKS) < 3
        ):
            await asyncio.sleep(0.01)
        assert heard() == 1
        headers = event_headers("hocket.run.finished", "test", "x", subject="r" + "0" * 24)
        await greet.bus.publish(fact, b"no JSON", headers=headers)
        for n in range(3):
            await _tell(greet, _finished(f"k{n}", n))
        outputs = [(await one).body["output"] for one in asked]

    assert outputs == [0, 1, 2, 2]
    assert heard() == 0


async def test_a_key_of_another_pipelines_run_is_refused(greet: Rest) -> None:
    await _insert_run(greet, ids.run_id("default", "k"), pipeline="other")

    answer = await greet.post("/v1/runs", _task("k"))

    assert (answer.status, answer.error["code"]) == (409, "idempotency_key_reused")


@pytest.mark.parametrize(("way", "more"), [("one", {}), ("one", {"wait_ms": 10_000}), ("many", {})])
async def test_a_known_key_is_answered_though_its_pipeline_takes_no_such_task_any_more(
    greet: Rest, way: str, more: dict[str, Any]
) -> None:
    run_id = ids.run_id("default", "k")
    await _insert_run(greet, run_id, output={"a": 1})
    needed = {"type": "object", "required": ["other"]}
    assert (await greet.post("/v1/pipelines", {**GREET, "input": needed})).status == 201

    for _ in range(2):
        if way == "one":
            answer = await greet.post("/v1/runs", _task("k", **more))
            found = answer.body
        else:
            answer = await greet.post("/v1/bulk/runs", {"runs": [_task("k")]})
            found = answer.body["runs"][0]
        assert (answer.status in (200, 202), found["run_id"]) == (True, run_id)
        refused = await greet.post("/v1/runs", _task("new"))
        assert refused.status in (409, 422), refused.body
        await greet.ask("POST", "/v1/pipelines/greet/archive")
    assert await greet.stored(subjects.TASKS) == 0


@pytest.mark.parametrize("way", ["one", "many"])
async def test_a_key_is_free_for_another_pipeline_once_its_task_was_refused(
    greet: Rest, way: str
) -> None:
    await _insert_run(greet, ids.run_id("default", "k"), pipeline="other", status="rejected")

    if way == "one":
        answer = await greet.post("/v1/runs", _task("k"))
    else:
        answer = await greet.post("/v1/bulk/runs", {"runs": [_task("k")]})

    assert answer.status in (200, 202), answer.body
    assert await greet.stored(subjects.TASKS if way == "one" else subjects.TASK_BATCHES) == 1


async def test_a_new_task_is_not_taken_for_the_refused_one_with_its_key(
    greet: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "APPEAR_TIMEOUT_S", 0.1)
    run_id = ids.run_id("default", "k")
    await _insert_run(greet, run_id, status="rejected")

    answer = await greet.post("/v1/runs", _task("k", wait_ms=50))

    assert (answer.status, answer.body["status"]) == (202, "accepted")
    for asked in (
        await greet.get(f"/v1/runs/{run_id}"),
        await greet.post(f"/v1/runs/{run_id}/cancel", {}),
    ):
        assert (asked.status, asked.error["code"]) == (404, "run_unknown")


# ---- reading runs ---------------------------------------------------------------------------


async def test_pages_of_runs_show_each_run_once_even_at_equal_times(rest: Rest) -> None:
    names = [f"r{n:024x}" for n in range(25)]
    for n, name in enumerate(names):
        await _insert_run(rest, name, accepted_at=NOW + timedelta(microseconds=n // 10))
    seen: list[str] = []
    after: str | None = None
    while True:
        query = {"limit": "4"} | ({"after": after} if after else {})
        page = (await rest.get("/v1/runs", params=query)).body
        seen += [run["run_id"] for run in page["runs"]]
        after = page["next"]
        if after is None:
            break

    assert seen == sorted(names, reverse=True)


async def test_runs_are_filtered_by_pipeline_status_and_time(rest: Rest) -> None:
    await _insert_run(rest, _id(1), pipeline="a", status="failed", accepted_at=NOW)
    await _insert_run(rest, _id(2), pipeline="a", status="running", accepted_at=NOW)
    await _insert_run(rest, _id(3), pipeline="b", accepted_at=NOW + timedelta(hours=1))

    async def found(**query: str) -> list[str]:
        page = await rest.get("/v1/runs", params=query)
        return [run["run_id"] for run in page.body["runs"]]

    assert await found(pipeline="a") == [_id(2), _id(1)]
    assert await found(status="failed") == [_id(1)]
    assert await found(since="2026-05-04T12:30:00+00:00") == [_id(3)]
    assert await found(pipeline="a", status="running") == [_id(2)]


async def test_a_run_of_another_tenant_does_not_exist(rest: Rest) -> None:
    await _insert_run(rest, _id(1), tenant="acme")

    paths = ("", "/steps", "/cost", "/journal", "/events")
    answers = [await rest.get(f"/v1/runs/{_id(1)}{path}") for path in paths]
    answers.append(await rest.post(f"/v1/runs/{_id(1)}/cancel"))

    assert {(answer.status, answer.error["code"]) for answer in answers} == {(404, "run_unknown")}
    assert (await rest.get("/v1/runs")).body["runs"] == []


async def test_a_run_is_shown_whole(rest: Rest) -> None:
    error = {"code": "boom", "message": "It broke.", "error_class": "permanent"}
    await _insert_run(rest, _id(1), status="failed", error=error, input={"name": "Ada"})

    shown = (await rest.get(f"/v1/runs/{_id(1)}")).body

    assert shown["input"] == {"name": "Ada"}
    assert shown["error"]["message"] == "It broke."
    assert shown["duration_ms"] == 1000
    assert shown["met_deadline"] is False  # it failed
    assert shown["class"] == "standard"


async def test_steps_come_in_order_with_their_failed_attempts(rest: Rest) -> None:
    await _insert_run(rest, _id(1))
    await _insert_step(rest, _id(1), "write", ready=300, started=310, ended=400, output={"b": 2})
    await _insert_step(rest, _id(1), "plan", ready=0, started=10, ended=300, attempt=2)
    await rest.pool.execute(
        "INSERT INTO hocket.attempt (run_id, key, attempt, outcome, error, started_at, finished_at)"
        " VALUES ($1, 'plan', 1, 'timed_out', $2, $3, $4)",
        _id(1),
        json.dumps({"code": "timeout", "message": "Too slow.", "error_class": "timeout"}),
        NOW,
        NOW + timedelta(milliseconds=5),
    )

    brief = (await rest.get(f"/v1/runs/{_id(1)}/steps")).body["steps"]
    whole = (await rest.get(f"/v1/runs/{_id(1)}/steps?values=true")).body["steps"]
    first = (await rest.get(f"/v1/runs/{_id(1)}/steps?limit=1")).body
    second = (await rest.get(f"/v1/runs/{_id(1)}/steps", params={"after": first["next"]})).body

    assert [step["step"] for step in brief] == ["plan", "write"]
    assert brief[0]["duration_ms"] == 290
    assert brief[0]["attempts"][0]["error"]["message"] == "Too slow."
    assert (brief[1]["output"], whole[1]["output"]) == (None, {"b": 2})
    assert [step["step"] for step in first["steps"] + second["steps"]] == ["plan", "write"]
    assert second["next"] is None


async def test_the_cost_of_a_run_is_the_sum_of_its_calls_to_the_last_digit(rest: Rest) -> None:
    await _insert_run(rest, _id(1))
    for n, cost in enumerate(("0.000000001", "0.1", "0.2")):
        await _insert_call(rest, f"c{n}", _id(1), node="plan" if n else "write", cost_usd=cost)
    await _insert_call(rest, "other", _id(2), node="plan", cost_usd="5")

    cost = (await rest.get(f"/v1/runs/{_id(1)}/cost")).body

    assert Decimal(cost["cost_usd"]) == Decimal("0.300000001")
    assert cost["calls"] == 3
    by_node = {node["node"]: Decimal(node["cost_usd"]) for node in cost["nodes"]}
    assert by_node == {"plan": Decimal("0.3"), "write": Decimal("0.000000001")}


async def test_the_cost_of_a_run_has_all_that_its_sub_runs_cost(rest: Rest) -> None:
    top, child, grandchild, theirs = (_id(number) for number in range(1, 5))
    for run_id, tenant, parent, step in (
        (top, "default", None, None),
        (child, "default", top, "ask[2]"),
        (grandchild, "default", child, "deep"),
        (theirs, "acme", top, "ask[3]"),
    ):
        await _insert_run(rest, run_id, tenant=tenant, pipeline="greet" if parent else "top")
        told = parent and json.dumps({"run_id": parent, "step": step, "capability": "x"})
        await rest.pool.execute("UPDATE hocket.run SET parent = $2 WHERE run_id = $1", run_id, told)
    await _insert_step(rest, top, "ask[2]", ready=0, ended=1)
    await _insert_step(rest, grandchild, "look", ready=0, ended=1)
    await rest.pool.execute(
        """UPDATE hocket.step SET path = 'ask' WHERE key = 'ask[2]'""",
    )
    await rest.pool.execute(
        """UPDATE hocket.step SET facts = '{"charged_usd": "0.5",
           "source": {"kind": "cache", "saved_usd": "0.25"}}' WHERE key = 'look'"""
    )
    for call_id, run_id, cost in (("c1", top, "4"), ("c2", child, "2"), ("c3", grandchild, "1")):
        await _insert_call(rest, call_id, run_id, node="plan", cost_usd=cost)
    await _insert_call(rest, "former", child, node="plan", cost_usd="9")
    await rest.pool.execute(
        "UPDATE hocket.usage SET started_at = started_at - interval '2 days' WHERE call_id = 'former'"
    )

    cost = (await rest.get(f"/v1/runs/{top}/cost")).body
    other = (await rest.get(f"/v1/runs/{top}/compare?other={child}")).body

    assert (cost["calls"], cost["input_tokens"], Decimal(cost["cost_usd"])) == (3, 30, 7.5)
    assert [(one["node"], one["calls"]) for one in cost["nodes"]] == [("plan", 1)]
    (part,) = cost["sub_runs"]
    named = [part[name] for name in ("node", "pipeline", "runs", "calls", "input_tokens")]
    assert (named, Decimal(part["cost_usd"])) == (["ask", "greet", 1, 2, 20], 3.5)
    assert (cost["cache_hits"], Decimal(cost["cache_saved_usd"])) == (1, 0.25)
    by_node = {node["node"]: node["a"] for node in other["nodes"]}
    assert Decimal(by_node["ask"]["cost_usd"]) == 3.5


async def test_a_page_of_steps_ends_where_their_values_are_large(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MAX_VALUE_BYTES", 1_000)
    await _insert_run(rest, _id(1), status="running")
    for n in range(20):
        await _insert_step(rest, _id(1), f"s{n:02}", ready=n, output="x" * 400)

    pages, after = [], ""
    while after is not None:
        found = await rest.get(f"/v1/runs/{_id(1)}/steps?values=true{after and '&after='}{after}")
        pages.append([step["step"] for step in found.body["steps"]])
        after = found.body["next"]

    assert [len(page) for page in pages] == [3] * 6 + [2]
    assert [key for page in pages for key in page] == [f"s{n:02}" for n in range(20)]
    assert len((await rest.get(f"/v1/runs/{_id(1)}/steps")).body["steps"]) == 20


async def test_a_page_of_steps_ends_where_errors_are_large_those_of_failed_attempts_included(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MAX_VALUE_BYTES", 1_000)
    error = {
        "code": "x",
        "message": "m",
        "error_class": "permanent",
        "details": {"text": "x" * 400},
    }
    await _insert_run(rest, _id(1), status="running")
    for n in range(6):
        await _insert_step(rest, _id(1), f"s{n}", ready=n)
    await rest.pool.execute(
        "UPDATE hocket.step SET error = $1::jsonb WHERE key < 's3'", json.dumps(error)
    )
    await rest.pool.execute(
        "INSERT INTO hocket.attempt (run_id, key, attempt, outcome, error, finished_at)"
        " SELECT $1, 's' || n, attempt, 'failed', $2::jsonb, now()"
        " FROM generate_series(3, 4) n, generate_series(1, 3) attempt",
        _id(1),
        json.dumps(error),
    )

    pages, after = [], ""
    while after is not None:
        found = await rest.get(f"/v1/runs/{_id(1)}/steps{after and '?after='}{after}")
        pages.append([(step["step"], len(step["attempts"])) for step in found.body["steps"]])
        after = found.body["next"]

    assert pages == [
        [("s0", 0), ("s1", 0), ("s2", 0)],
        [("s3", 3)],
        [("s4", 3)],
        [("s5", 0)],
    ]


async def test_runs_are_found_by_error_time_and_content(rest: Rest) -> None:
    error = ErrorInfo(code="timeout", message="It took too long.").model_dump(mode="json")
    await _insert_run(rest, _id(1), status="failed", error=error, accepted_at=NOW)
    await _insert_run(rest, _id(2), input={"name": "Ada"}, accepted_at=NOW + timedelta(hours=1))
    await _insert_run(rest, _id(3), output={"text": "for Ada"}, accepted_at=NOW)

    async def found(**query: str) -> list[str]:
        return [run["run_id"] for run in (await rest.get("/v1/runs", params=query)).body["runs"]]

    assert await found(error_code="timeout") == [_id(1)]
    assert await found(contains="ada") == [_id(2), _id(3)]
    assert await found(contains="ada", until=(NOW + timedelta(minutes=1)).isoformat()) == [_id(3)]
    key = await rest.make_key("viewer")
    headers = {"Authorization": f"Bearer {key}"}
    refused = await rest.get("/v1/runs", params={"contains": "ada"}, headers=headers)
    assert (refused.status, refused.body["code"]) == (403, "permission_missing")


async def test_pending_approvals_are_listed_without_content_for_who_may_not_see_it(
    rest: Rest,
) -> None:
    spec = {"pipeline": "asks", "nodes": {"look": {"type": "approval", "prompt": "May this go?"}}}
    assert (await rest.post("/v1/pipelines", spec)).status == 201
    await _insert_run(rest, _id(1), pipeline="asks", status="running", input={"draft": "Dear Ada"})
    await _insert_step(rest, _id(1), "look", ready=0)
    await rest.pool.execute("UPDATE hocket.step SET state = 'waiting', type = 'approval'")
    key = await rest.make_key("viewer")
    (asked,) = (await rest.get("/v1/approvals")).body["approvals"]
    headers = {"Authorization": f"Bearer {key}"}
    (withheld,) = (await rest.get("/v1/approvals", headers=headers)).body["approvals"]
    assert (asked["run_id"], asked["step"], asked["prompt"]) == (_id(1), "look", "May this go?")
    assert json.loads(asked["input"]) == {"draft": "Dear Ada"}
    assert withheld == {**asked, "input": None}
    environment = {"HOCKET_API_URL": rest.url, "HOCKET_API_KEY": rest.key}
    said = await asyncio.to_thread(
        CliRunner().invoke, cli, ["runs", "approvals", "--json"], env=environment
    )
    assert json.loads(said.stdout) == [asked]
    limit = approval_reads.MAX_SHOWN_CHARS
    for size, shown in ((limit - 2, f'"{"x" * (limit - 2)}"'), (limit, f'"{"x" * (limit - 1)}…')):
        await rest.pool.execute("UPDATE hocket.step SET input = $1", json.dumps("x" * size))
        (cut,) = (await rest.get("/v1/approvals")).body["approvals"]
        assert cut["input"] == shown
    page = await rest.get("/console/approvals")
    assert f"/console/runs/{_id(1)}/steps/look" in page.body


async def test_the_questions_that_agents_and_planners_put_to_people_are_listed(rest: Rest) -> None:
    approval = {"type": "approval", "prompt": "May I order it?"}
    spare = {**approval, "fallback": [{"node": {"type": "approval", "prompt": "And this?"}}]}
    plans = {"type": "planning", "model": "m", "prompt": "Plan.", "emit": {"types": ["approval"]}}
    both = {"type": "graph", "nodes": {"x": spare}}
    tools = {
        name: {"parameters": {"type": "object"}, "node": node}
        for name, node in (("order", approval), ("both", both), ("plan", plans))
    }
    agent = {"type": "agent", "model": "m", "prompt": "Order.", "tools": tools}
    spec = {"pipeline": "asks", "nodes": {"ask": agent, "plan": plans}}
    applied = await rest.post("/v1/pipelines", spec)
    assert applied.status == 201, applied.body
    await _insert_run(rest, _id(1), pipeline="asks", status="running")
    called = {"order_1": "order", "both_2": "both", "plan_3": "plan"}
    calls = [{"step": step, "tool": tool} for step, tool in called.items()]
    emitted = {"nodes": {"tell": {"type": "approval", "prompt": "Tell Ada?"}}}
    for ready, (key, path, facts) in enumerate(
        [
            ("ask#1", "ask", {"emitted": {"done": False, "calls": calls}}),
            ("plan", "plan", {"emitted": emitted}),
            ("ask#1/plan_3", "ask/plan_3", {"home": "ask#1", "emitted": emitted}),
            ("ask#1/order_1", "ask/order_1", {"home": "ask#1"}),
            ("ask#1/both_2/x", "ask/both_2/x", {"home": "ask#1"}),
            ("ask#1/both_2/x!1", "ask/both_2/x!1", {"home": "ask#1"}),
            ("plan/tell", "plan/tell", {"home": "plan"}),
            ("ask#1/plan_3/tell", "ask/plan_3/tell", {"home": "ask#1/plan_3"}),
            ("ask#1/gone_9", "ask/gone_9", {"home": "ask#1"}),
        ]
    ):
        await _insert_step(rest, _id(1), key, ready=ready)
        await rest.pool.execute(
            "UPDATE hocket.step SET path = $2, facts = $3::jsonb, state = 'waiting',"
            " type = CASE WHEN $3::jsonb ? 'emitted' THEN 'agent' ELSE 'approval' END"
            " WHERE key = $1",
            key,
            path,
            json.dumps(facts),
        )
    of_author = ["May I order it?", "May I order it?", "And this?"]
    asked = (await rest.get("/v1/approvals")).body["approvals"]
    assert [one["prompt"] for one in asked] == [*of_author, "Tell Ada?", "Tell Ada?", ""]
    headers = {"Authorization": f"Bearer {await rest.make_key('viewer')}"}
    withheld = (await rest.get("/v1/approvals", headers=headers)).body["approvals"]
    assert [one["prompt"] for one in withheld] == [*of_author, "", "", ""]


@pytest.mark.parametrize("operation", ["retry", "rerun"])
async def test_a_repeat_takes_its_key_from_the_header_too(rest: Rest, operation: str) -> None:
    spec = {"pipeline": "asks", "nodes": {"look": {"type": "approval"}}}
    assert (await rest.post("/v1/pipelines", spec)).status == 201
    await _insert_run(rest, _id(1), pipeline="asks", status="failed")
    path = f"/v1/runs/{_id(1)}/{operation}"

    async def run_of(key: str, body: Any = None) -> str:
        answer = await rest.ask("POST", path, json=body, headers={"Idempotency-Key": key})
        assert answer.status == 202, answer.body
        return str(answer.body["run_id"])

    first, other = await run_of("k1"), await run_of("k2")
    assert first != other
    assert await run_of("k1", {"idempotency_key": "k1"}) == first
    assert (await rest.post(path, {"idempotency_key": "k2"})).body["run_id"] == other
    named = {"Idempotency-Key": "k1"}
    refused = await rest.post(path, {"idempotency_key": "k2"}, headers=named)
    assert (refused.status, refused.body["field"]) == (422, "Idempotency-Key")


async def test_approvals_are_listed_in_pages_and_by_run_and_pipeline(rest: Rest) -> None:
    spec = {"pipeline": "asks", "nodes": {"look": {"type": "approval"}}}
    assert (await rest.post("/v1/pipelines", spec)).status == 201
    for number in range(4):
        await _insert_run(rest, _id(number), pipeline="asks", status="running")
        await _insert_step(rest, _id(number), "look", ready=number)
    await rest.pool.execute("UPDATE hocket.step SET state = 'waiting', type = 'approval'")

    # two that have waited since the same moment, in the same run and in another
    await rest.pool.execute(
        "INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at, tenant)"
        " SELECT run_id, 'also', 'look', 'approval', 'leaf', 'waiting', 1, ready_at, tenant"
        " FROM hocket.step WHERE run_id = $1",
        _id(1),
    )
    await rest.pool.execute(
        "UPDATE hocket.step SET ready_at = (SELECT max(ready_at) FROM hocket.step WHERE run_id = $1)"
        " WHERE run_id = $2",
        _id(1),
        _id(2),
    )

    async def found(limit: int = 500, **wanted: Any) -> list[tuple[str, str]]:
        pages = [(await rest.get("/v1/approvals", params={"limit": limit, **wanted})).body]
        while after := pages[-1]["next"]:
            asked = {"limit": limit, "after": after, **wanted}
            pages.append((await rest.get("/v1/approvals", params=asked)).body)
        assert {len(page["approvals"]) for page in pages[:-1]} <= {limit}
        return [(one["run_id"], one["step"]) for page in pages for one in page["approvals"]]

    every = [(_id(0), "look"), (_id(1), "also"), *((_id(n), "look") for n in (1, 2, 3))]
    for limit in (1, 2, 5, 500):
        assert await found(limit) == every
    environment = {"HOCKET_API_URL": rest.url, "HOCKET_API_KEY": rest.key}
    for options, expected in (([], 5), (["--pipeline", "asks"], 5), (["-p", "none"], 0)):
        said = await asyncio.to_thread(
            CliRunner().invoke, cli, ["runs", "approvals", *options, "--json"], env=environment
        )
        assert len(json.loads(said.stdout)) == expected
    assert await found(run=_id(2)) == [(_id(2), "look")]
    assert await found(pipeline="asks") == every
    assert await found(pipeline="asks", run=_id(0)) == every[:1]
    assert await found(pipeline="other") == []
    other = {"X-Hocket-Tenant": "other"}
    asked = await rest.get("/v1/approvals", params={"run": _id(2)}, headers=other)
    assert asked.body == {"approvals": [], "next": None}
    for wrong in ({"run": ""}, {"after": "x"}, {"limit": "0"}, {"pipeline": ""}):
        assert (await rest.get("/v1/approvals", params=wrong)).status == 422


async def test_a_run_that_came_after_the_backup_is_told_to_be_missing(rest: Rest) -> None:
    assert "restored" not in (await rest.get(f"/v1/runs/{_id(1)}")).error["message"]
    await rest.pool.execute(
        "INSERT INTO hocket.restoration (restored_at, backup_began_at, hocket) VALUES"
        " ('2026-05-02 10:00+00', '2026-05-01 09:30+00', '0.1.0')"
    )
    for path in (f"/v1/runs/{_id(1)}", f"/v1/runs/{_id(1)}/trace"):
        answer = await rest.get(path)
        assert (answer.status, answer.error["code"]) == (404, "run_unknown")
        assert "restored at 2026-05-02 10:00:00 UTC" in answer.error["message"]
        assert "backup of 2026-05-01 09:30:00 UTC" in answer.error["message"]


# ---- changing runs --------------------------------------------------------------------------


async def test_cancel_and_signal_are_messages_in_the_log_of_the_runs_partition(rest: Rest) -> None:
    await _insert_run(rest, _id(1), status="running", partition=3)

    cancelled = await rest.post(f"/v1/runs/{_id(1)}/cancel", {"reason": "enough"})
    signalled = await rest.post(
        f"/v1/runs/{_id(1)}/signals", {"name": "go", "payload": {"ok": True}, "signal_id": "s1"}
    )

    assert (cancelled.status, signalled.status) == (202, 202)
    cancel = await rest.bus.js.get_msg(subjects.LOG, cancelled.body["log_seq"])
    signal = await rest.bus.js.get_msg(subjects.LOG, signalled.body["log_seq"])
    assert cancel.subject == "hocket.log.3.cancel"
    assert CancelRequested.model_validate_json(cancel.data or b"").reason == "enough"
    assert signal.subject == "hocket.log.3.signal"
    received = SignalReceived.model_validate_json(signal.data or b"")
    assert (received.signal_id, received.name, received.payload) == ("s1", "go", {"ok": True})


APPROVED = {"approved": True}


async def _wait_for_answer(rest: Rest, key: str, type_: str = "approval", name: str = "") -> None:
    """Let a step wait for an answer by its key or its node's name, or for a signal."""
    node, run_id = key.replace("#1", "").replace("#2", ""), _id(1)
    await insert_step(rest.pool, run_id, key, NOW, type=type_, node=node, state="waiting")
    await rest.pool.execute(
        "UPDATE hocket.step SET facts = jsonb_build_object('waits_for', $3::text[])"
        " WHERE run_id = $1 AND key = $2",
        run_id,
        key,
        [name] if name else [key, node.rpartition("/")[2]],
    )


async def _decide(rest: Rest, key: str, state: str = "succeeded") -> None:
    await rest.pool.execute(
        "UPDATE hocket.step SET state = $3, finished_at = now(), facts = NULL"
        " WHERE run_id = $1 AND key = $2",
        _id(1),
        key,
        state,
    )


async def _name_sent(rest: Rest, answer: Any) -> str:
    assert answer.status == 202, answer.body
    sent = await rest.bus.js.get_msg(subjects.LOG, answer.body["log_seq"])
    return SignalReceived.model_validate_json(sent.data or b"").name


async def test_an_approval_is_answered_once(rest: Rest) -> None:
    await _insert_run(rest, _id(1), status="running")
    await insert_step(rest.pool, _id(1), "look", NOW, type="approval")
    await insert_step(rest.pool, _id(1), "go", NOW)
    path = f"/v1/runs/{_id(1)}/signals"

    late = await rest.post(path, {"name": "look"})
    assert (late.status, late.error["code"]) == (409, "approval_decided")
    assert (await rest.post(path, {"name": "go"})).status == 202
    await _wait_for_answer(rest, "publish/look")
    late = await rest.post(path, {"name": "look"})
    assert (late.status, late.error["code"]) == (409, "approval_decided"), "it may mean the first"
    assert await _name_sent(rest, await rest.post(path, {"name": "publish/look"})) == "publish/look"


async def test_an_answer_by_the_name_of_a_node_is_of_the_step_that_waits(rest: Rest) -> None:
    await _insert_run(rest, _id(1), status="running")
    path = f"/v1/runs/{_id(1)}/signals"

    early = await rest.post(path, {"name": "ok"})
    assert await _name_sent(rest, early) == "ok", "none of that name has asked yet"
    await _wait_for_answer(rest, "review#1/ok")
    for name in ("ok", "review#1/ok"):  # two at once: the second is of this round as well
        assert await _name_sent(rest, await rest.post(path, {"name": name})) == "review#1/ok"
    await _decide(rest, "review#1/ok")
    for name in ("ok", "review#1/ok"):
        late = await rest.post(path, {"name": name, "payload": APPROVED})
        assert (late.status, late.error["code"]) == (409, "approval_decided")
    early = await rest.post(path, {"name": "review#2/ok"})
    assert await _name_sent(rest, early) == "review#2/ok"
    await _wait_for_answer(rest, "review#2/ok")
    assert await _name_sent(rest, await rest.post(path, {"name": "ok"})) == "review#2/ok"


async def test_an_approval_that_was_skipped_has_asked_nobody(rest: Rest) -> None:
    await _insert_run(rest, _id(1), status="running")
    for key in ("review#1/ok", "ok"):
        await _wait_for_answer(rest, key)
        await _decide(rest, key, "skipped")
        if key == "ok":
            await _wait_for_answer(rest, "review#2/ok")
        answer = await rest.post(f"/v1/runs/{_id(1)}/signals", {"name": "ok", "payload": APPROVED})
        assert await _name_sent(rest, answer) == ("review#2/ok" if key == "ok" else "ok")


async def test_answers_to_several_approvals_of_one_name_reach_one_each(rest: Rest) -> None:
    """The row of one that was just answered may still say that it waits."""
    await _insert_run(rest, _id(1), status="running")
    for item in range(3):
        await _wait_for_answer(rest, f"look[{item}]", name="look")
    for _ in range(3):
        answer = await rest.post(f"/v1/runs/{_id(1)}/signals", {"name": "look"})
        assert await _name_sent(rest, answer) == "look"


async def test_a_signal_that_is_no_answer_is_kept_though_an_approval_had_its_name(
    rest: Rest,
) -> None:
    await _insert_run(rest, _id(1), status="running")
    await _wait_for_answer(rest, "checks/go")
    await _decide(rest, "checks/go")
    path = f"/v1/runs/{_id(1)}/signals"
    assert await _name_sent(rest, await rest.post(path, {"name": "go", "payload": 1})) == "go"
    late = await rest.post(path, {"name": "go", "payload": APPROVED})
    assert (late.status, late.error["code"]) == (409, "approval_decided")
    await _wait_for_answer(rest, "go", "python", "go")  # a handler that waits for a signal
    sent = await rest.post(path, {"name": "go", "payload": APPROVED})
    assert await _name_sent(rest, sent) == "go"


async def test_a_signal_keeps_its_name_though_an_approval_has_the_same(rest: Rest) -> None:
    await _insert_run(rest, _id(1), status="running")
    await insert_step(rest.pool, _id(1), "look", NOW, type="approval")
    await _wait_for_answer(rest, "hears", "signal", "look")
    answer = await rest.post(f"/v1/runs/{_id(1)}/signals", {"name": "look"})
    assert await _name_sent(rest, answer) == "look"


async def test_an_approval_of_a_step_with_a_long_name_is_answered(rest: Rest) -> None:
    await _insert_run(rest, _id(1), status="running")

    answer = await rest.post(f"/v1/runs/{_id(1)}/signals", {"name": "g" * 2_400})

    signal = await rest.bus.js.get_msg(subjects.LOG, answer.body["log_seq"])
    assert SignalReceived.model_validate_json(signal.data or b"").name == "g" * 2_400


async def test_cancel_needs_no_body(rest: Rest) -> None:
    await _insert_run(rest, _id(1), status="running")

    answer = await rest.ask("POST", f"/v1/runs/{_id(1)}/cancel")

    assert answer.status == 202


async def test_a_run_that_has_ended_takes_no_signal(rest: Rest) -> None:
    await _insert_run(rest, _id(1), status="failed")

    for answer in (
        await rest.post(f"/v1/runs/{_id(1)}/signals", {"name": "go"}),
        await rest.ask("POST", f"/v1/runs/{_id(1)}/cancel"),
    ):
        assert (answer.status, answer.error["code"]) == (409, "run_not_open")
    assert await rest.stored(subjects.LOG) == 0
    audit = (await rest.get("/v1/audit")).body["entries"]
    assert [one["action"] for one in audit if one["action"].startswith("runs.")] == []


async def test_a_signal_that_a_run_has_is_answered_after_its_end(rest: Rest) -> None:
    await _insert_run(rest, _id(1), status="succeeded")
    await rest.pool.execute(
        'UPDATE hocket.run SET facts = \'{"seen_signals": ["s-1"]}\' WHERE run_id = $1', _id(1)
    )
    place, body = f"/v1/runs/{_id(1)}/signals", {"name": "go", "signal_id": "s-1"}

    first, again = await rest.post(place, body), await rest.post(place, body)

    assert (first.status, again.body) == (202, first.body)


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "a\x7fb", "n" * 2_401])
async def test_a_signal_needs_a_name_that_the_log_can_hold(rest: Rest, name: str) -> None:
    await _insert_run(rest, _id(1), status="running")

    answer = await rest.post(f"/v1/runs/{_id(1)}/signals", {"name": name})

    assert (answer.status, answer.error["field"]) == (422, "name")
    assert await rest.stored(subjects.LOG) == 0


async def test_a_run_submitted_a_moment_ago_is_waited_for(greet: Rest) -> None:
    run_id = (await greet.post("/v1/runs", _task("k"))).body["run_id"]
    asking = asyncio.create_task(greet.get(f"/v1/runs/{run_id}"))
    await _insert_run(greet, run_id, status="running")

    assert (await asking).body["status"] == "running"


async def test_a_run_that_another_tenant_submitted_a_moment_ago_is_not_waited_for(
    greet: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "APPEAR_TIMEOUT_S", 90.0)
    run_id = (await greet.post("/v1/runs", _task("k"))).body["run_id"]
    async with asyncio.timeout(60):
        answer = await greet.get(f"/v1/runs/{run_id}", headers={"X-Hocket-Tenant": "acme"})
    assert answer.error["code"] == "run_unknown"


# ---- costs ----------------------------------------------------------------------------------


async def test_costs_by_day_node_and_run_agree_with_the_ledger(rest: Rest) -> None:
    await _insert_run(rest, _id(1), pipeline="greet", accepted_at=NOW)
    costs = [Decimal("0.000000001"), Decimal("1.5"), Decimal("0.03")]
    for n, cost in enumerate(costs):
        await _insert_call(rest, f"c{n}", _id(1), node="plan", cost_usd=str(cost))
    span = {"from": "2026-05-04", "to": "2026-05-04"}

    by_day = (await rest.get("/v1/costs/pipelines", params=span)).body["costs"]
    by_node = (await rest.get("/v1/costs/nodes", params={"pipeline": "greet"})).body["costs"]
    since = {"since": "2026-05-04T00:00:00Z"}
    by_run = (await rest.get("/v1/costs/runs", params=since)).body["costs"]

    for rows in (by_day, by_node, by_run):
        assert [Decimal(row["cost_usd"]) for row in rows] == [sum(costs)]
    assert (by_day[0]["day"], by_day[0]["runs"], by_day[0]["calls"]) == ("2026-05-04", 1, 3)
    acme = await rest.get("/v1/costs/pipelines", params=span, headers={"X-Hocket-Tenant": "acme"})
    assert acme.body["costs"] == []


async def test_a_run_that_only_calls_name_counts_in_every_report(rest: Rest) -> None:
    await _insert_run(rest, _id(1), pipeline="greet", accepted_at=NOW)
    for call, run_id in (("c1", _id(1)), ("c2", "agent-7"), ("c3", "agent-7"), ("c4", _id(2))):
        await _insert_call(rest, call, run_id, node="plan", cost_usd="0.5")

    by_day = (await rest.get("/v1/costs/pipelines?from=2026-05-04&to=2026-05-04")).body["costs"]
    by_run = (await rest.get("/v1/costs/runs?since=2026-05-04T00:00:00Z")).body["costs"]

    assert sum(row["runs"] for row in by_day) == len(by_run) == 3
    assert sum(Decimal(row["cost_usd"]) for row in by_run) == Decimal(2)
    found = {row["run_id"]: (row["status"], row["calls"], row["duration_ms"]) for row in by_run}
    assert found["agent-7"] == ("external", 2, None)
    assert found[_id(2)] == ("deleted", 1, None)
    assert found[_id(1)][:2] == ("succeeded", 1)


async def test_what_tools_charged_is_in_every_list_of_costs(rest: Rest) -> None:
    now = datetime.now(UTC)
    await _insert_run(rest, _id(1), pipeline="greet", accepted_at=now)
    await insert_step(rest.pool, _id(1), "look", now - timedelta(seconds=1))
    await rest.pool.execute("""UPDATE hocket.step SET facts = '{"charged_usd": "0.25"}'""")

    found = {}
    for name in ("pipelines", "nodes", "kinds", "runs"):
        answer = await rest.get(f"/v1/costs/{name}", params={"pipeline": "greet"})
        assert answer.status == 200, (name, answer.body)
        (found[name],) = answer.body["costs"]

    assert {Decimal(row["cost_usd"]) for row in found.values()} == {Decimal("0.25")}
    node = found["nodes"]
    assert (node["node"], node["model"], node["backend"]) == ("look", None, None)
    assert node["mean_latency_ms"] is None
    assert found["kinds"]["kind"] == "tool"
    assert {row["calls"] for row in found.values()} == {0}  # calls are those of models


async def test_a_span_of_days_has_a_limit(rest: Rest) -> None:
    answer = await rest.get("/v1/costs/pipelines?from=2020-01-01&to=2026-01-01")

    assert (answer.status, answer.error["field"]) == (422, "from")


# ---- dead letters ---------------------------------------------------------------------------


async def test_a_dead_letter_is_seen_and_published_again_where_it_came_from(rest: Rest) -> None:
    seq = await _buried(rest, b"not json" * 100)

    listed = (await rest.get("/v1/dead-letters")).body["dead_letters"]
    shown = (await rest.get(f"/v1/dead-letters/{seq}")).body
    redriven = await rest.post(f"/v1/dead-letters/{seq}/redrive")

    assert [(letter["seq"], letter["payload_truncated"]) for letter in listed] == [(seq, True)]
    assert shown["payload"] == "not json" * 100
    assert shown["error"]["message"] == "It is not JSON."
    assert redriven.body == {"seq": seq, "subject": "hocket.task.default.greet"}
    message = await rest.bus.js.get_last_msg(subjects.TASKS, "hocket.task.default.greet")
    assert message.data == b"not json" * 100
    assert (await rest.get("/v1/dead-letters")).body["dead_letters"] == []


async def test_dead_letters_have_pages(rest: Rest) -> None:
    numbers = [await _buried(rest, b"not json") for _ in range(4)]
    found: list[int] = []
    after = ""
    for size in (2, 2):
        page = (await rest.get(f"/v1/dead-letters?limit=2{after}")).body
        assert len(page["dead_letters"]) == size
        found += [letter["seq"] for letter in page["dead_letters"]]
        after = f"&after={page['next']}"
    assert (found, page["next"]) == (numbers[::-1], None)
    refused = await rest.get("/v1/dead-letters?after=x")
    assert (refused.status, refused.error["field"]) == (422, "after")


async def test_a_page_of_dead_letters_ends_where_payloads_are_large(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.dead_letters.reads.MAX_READ_BYTES", 1_500)
    monkeypatch.setattr("hocket.admin.dead_letters.reads.LETTERS_AT_ONCE", 1)
    numbers = [await _buried(rest, b"x" * 600) for _ in range(5)]
    pages, after = [], ""
    while after is not None:
        page = (await rest.get(f"/v1/dead-letters?limit=100{after and '&after='}{after}")).body
        pages.append([letter["seq"] for letter in page["dead_letters"]])
        after = page["next"]
    environment = {"HOCKET_API_KEY": rest.key}
    arguments = ["--api", rest.url, "dlq", "list", "--limit", "4", "--json"]
    listed = await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=environment)

    assert [len(page) for page in pages] == [3, 2]
    assert [seq for page in pages for seq in page] == numbers[::-1]
    assert [letter["seq"] for letter in json.loads(listed.output)] == numbers[:0:-1]


async def test_a_dead_letter_that_many_redrive_and_drop_at_once_is_published_once(
    rest: Rest,
) -> None:
    seq = await _buried(rest, b"not json")
    asked = [rest.post(f"/v1/dead-letters/{seq}/redrive") for _ in range(8)]
    dropped = [rest.ask("DELETE", f"/v1/dead-letters/{seq}") for _ in range(4)]
    answers = await asyncio.gather(*asked, *dropped)

    assert {answer.status for answer in answers} <= {200, 204, 404}
    assert len(await rest.message_ids(subjects.TASKS)) <= 1
    assert await rest.stored(subjects.DLQ) == 0


async def test_a_dropped_dead_letter_is_gone(rest: Rest) -> None:
    seq = await _buried(rest, b"x")

    dropped = await rest.ask("DELETE", f"/v1/dead-letters/{seq}")
    again = await rest.ask("DELETE", f"/v1/dead-letters/{seq}")

    assert (dropped.status, again.status) == (204, 404)
    assert await rest.stored(subjects.DLQ) == 0


async def test_a_change_to_what_is_nobodys_stands_in_the_audit_as_such(rest: Rest) -> None:
    error = ErrorInfo(code="usage_malformed", message="It is not JSON.")
    await dead_letters.bury(
        rest.bus, "usage", subject="hocket.usage", payload=b"x", headers={}, error=error
    )
    (letter,) = (await rest.get("/v1/dead-letters?unattributed=true")).body["dead_letters"]

    dropped = await rest.ask("DELETE", f"/v1/dead-letters/{letter['seq']}?unattributed=true")
    audit = await rest.get("/v1/audit?limit=500")

    assert (dropped.status, audit.status) == (204, 200)
    last = audit.body["entries"][-1]
    assert (last["action"], last["tenant"]) == ("dead_letters.drop", subjects.UNATTRIBUTED)


# ---- the API as a whole ---------------------------------------------------------------------

BAD_REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/runs", {"data": b"{", "headers": {"Content-Type": "application/json"}}),
    ("POST", "/v1/runs", {"data": b"\xff\xfe", "headers": {"Content-Type": "application/json"}}),
    ("POST", "/v1/runs", {"data": b"", "headers": {"Content-Type": "application/json"}}),
    ("POST", "/v1/runs", {"data": b"pipeline=greet"}),
    ("POST", "/v1/runs", {"data": b"[" * 50_000, "headers": {"Content-Type": "application/json"}}),
    (
        "POST",
        "/v1/runs",
        {
            "data": b'{"pipeline": "greet", "input": {"a": NaN, "b": "\\ud800"}}',
            "headers": {"Content-Type": "application/json"},
        },
    ),
    ("POST", "/v1/runs", {"json": {"pipeline": "greet", "version": 10**40}}),
    ("POST", "/v1/runs", {"json": {"pipeline": "greet", "budget_usd": "1e400"}}),
    ("POST", "/v1/runs", {"json": {"pipeline": "greet", "deadline_ms": "Infinity"}}),
    ("POST", "/v1/pipelines", {"data": b"a: [", "headers": {"Content-Type": "text/yaml"}}),
    ("POST", "/v1/pipelines", {"data": b"\xff\xfe\x00"}),
    ("POST", "/v1/pipelines", {"data": b""}),
    ("GET", "/v1/runs?after=%00", {}),
    ("GET", "/v1/runs?after=MTox%00", {}),
    ("GET", "/v1/runs?after=OTk5OTk5OTk5OTk5OTk5OTk5OTk5OmE", {}),
    ("GET", "/v1/runs?limit=0", {}),
    ("GET", "/v1/runs?limit=501", {}),
    ("GET", "/v1/runs?status=asleep", {}),
    ("GET", "/v1/runs?since=yesterday", {}),
    ("GET", "/v1/runs?since=2026-01-01T00:00:00", {}),
    ("GET", "/v1/runs?pipeline=%00", {}),
    ("GET", "/v1/runs/%00", {}),
    ("GET", "/v1/runs/r" + "0" * 24, {}),
    ("GET", "/v1/pipelines/a%00b", {}),
    ("GET", "/v1/pipelines/nobody?version=99999999999999999999", {}),
    ("GET", "/v1/costs/pipelines?from=0001-01-01&to=0001-01-01x", {}),
    ("GET", "/v1/costs/nodes?version=-1", {}),
    ("GET", "/v1/dead-letters/0", {}),
    ("GET", "/v1/dead-letters/99999999999999999999999", {}),
    ("DELETE", "/v1/dead-letters/12345", {}),
    ("POST", "/v1/dead-letters/12345/redrive", {}),
    ("GET", "/v1/nothing", {}),
    ("PUT", "/v1/runs", {}),
    ("GET", "/v1/runs", {"headers": {"X-Hocket-Tenant": "a.b"}}),
    ("POST", "/v1/runs", {"json": {"pipeline": "greet"}, "headers": {"Idempotency-Key": "\u00e9"}}),
]


@pytest.mark.parametrize("request_", BAD_REQUESTS, ids=lambda r: f"{r[0]} {r[1]}"[:40])
async def test_bad_input_of_any_kind_is_a_4xx_with_an_error_body(
    greet: Rest, request_: tuple[str, str, dict[str, Any]]
) -> None:
    method, path, options = request_

    answer = await greet.ask(method, path, **options)

    assert 400 <= answer.status < 500
    assert answer.error["message"]
    assert answer.error["code"] not in ("hocket_error", "http_error")


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/keys", '{"name": "a", "name": "b", "role": "viewer"}', "(body)"),
        ("/v1/keys", '{"name": "a", "role": "viewer", "models": ["\\ud800"]}', "models.0"),
        ("/v1/experiments/outcomes", '{"run_id": "a", "good": true, "good": false}', "(body)"),
        ("/v1/experiments/outcomes", '{"run_id": NaN, "good": true}', "(body)"),
    ],
)
async def test_every_body_is_read_by_the_same_rules(
    rest: Rest, path: str, body: str, field: str
) -> None:
    kind = {"Content-Type": "application/json"}
    answer = await rest.ask("POST", path, data=body, headers=kind)
    assert (answer.status, answer.error["code"]) == (422, "invalid_input")
    assert answer.error["field"] == field

    own = [route for route in rest.app.routes if getattr(route, "path", "").startswith("/v1/")]
    assert not [
        route.path
        for route in own
        if getattr(route, "body_field", None) and not isinstance(route, PlainJsonRoute)
    ]


async def test_times_at_the_edge_of_the_calendar_are_no_fault(rest: Rest) -> None:
    for path in (
        "/v1/runs?since=0001-01-01T00:00:00%2B00:00",
        "/v1/costs/runs?since=0001-01-01T00:00:00%2B00:00",
        "/v1/costs/pipelines?to=0001-01-01",
        "/v1/costs/pipelines?to=9999-12-31",
        "/v1/runs?since=9999-12-31T23:59:59-23:59",  # beyond it in UTC
    ):
        answer = await rest.get(path)
        assert answer.status == 200, (path, answer.body)


async def test_a_body_over_the_limit_is_refused_whether_announced_or_not(rest: Rest) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65_536 + 2):
            yield b" " * 65_536

    json_type = {"Content-Type": "application/json"}
    for path in ("/v1/runs", "/v1/pipelines"):
        announced = await rest.ask(
            "POST", path, data=BytesIO(b" " * (MAX_BODY_BYTES + 1)), headers=json_type
        )
        unannounced = await rest.ask("POST", path, data=pieces(), headers=json_type)

        for answer in (announced, unannounced):
            assert (answer.status, answer.error["code"]) == (413, "payload_too_large")


async def test_the_openapi_document_is_valid_and_the_docs_are_served(rest: Rest) -> None:
    document = (await rest.get("/openapi.json")).body
    docs = await rest.get("/docs")

    validate_openapi(document)
    assert "/v1/runs/{run_id}/signals" in document["paths"]
    assert docs.status == 200
    named = re.findall(r"""(?:src|href)=["']([^"']+)""", docs.body)
    assert len(named) == 3
    for part in named:  # none from elsewhere: the page works without the internet
        assert part.startswith("/docs/")
        async with rest.session.get(rest.url + part) as reply:
            assert reply.status == 200


async def test_requests_are_counted_by_route_and_status(rest: Rest) -> None:
    for n in range(3):
        await rest.get(f"/v1/runs/{_id(n)}")

    labels = {"route": "/v1/runs/{run_id}", "method": "GET", "status": "404"}
    assert rest.registry.get_sample_value("hocket_api_requests_total", labels) == 3


async def test_probes_do_not_queue_for_a_database_whose_connections_are_taken(rest: Rest) -> None:
    reserved = rest.app.state.context.reserved
    assert (await rest.get("/v1/health")).status == 200  # from now on the key is known
    async with AsyncExitStack() as taken:
        for _ in range(reserved.get_max_size()):
            await taken.enter_async_context(reserved.acquire())
        async with asyncio.timeout(10):
            probes = await asyncio.gather(*(rest.get("/readyz") for _ in range(20)))
            health = (await rest.get("/v1/health")).body
    assert {probe.status for probe in probes} == {503}
    database = next(part for part in health["parts"] if part["name"] == "database")
    assert (database["ok"], database["detail"]) == (False, "no answer in time")
    async with asyncio.timeout(10):
        while (await rest.get("/readyz")).status != 200:  # noqa: ASYNC110 - the answer is kept
            await asyncio.sleep(0.1)


async def test_health_names_each_part(rest: Rest) -> None:
    ready = await rest.get("/readyz")
    health = (await rest.get("/v1/health")).body

    assert ready.status == 200
    assert {part["name"]: part["ok"] for part in health["parts"]} == {
        "nats": True,
        "disk": True,
        "database": True,
        "gateway": False,
    }
    assert health["status"] == "impaired"


# ---- in the place of a coordinator ----------------------------------------------------------


def _asking(model: str) -> dict[str, Any]:
    return {"pipeline": "ask", "nodes": {"a": {"type": "llm", "model": model, "prompt": "?"}}}


def _task(key: str, **more: Any) -> dict[str, Any]:
    return {"pipeline": "greet", "input": {"name": "Ada"}, "idempotency_key": key, **more}


def _id(number: int) -> str:
    return f"r{number:024x}"


def _finished(key: str, output: Any) -> RunFinished:
    return RunFinished(
        run_id=ids.run_id("default", key),
        tenant="default",
        pipeline="greet",
        version=1,
        status="succeeded",
        output=output,
        accepted_at_ms=1000.0,
        finished_at_ms=1250.0,
        deadline_at_ms=6000.0,
        cost_usd=Decimal("0.07"),
    )


async def _tell(rest: Rest, end: RunFinished) -> None:
    """Publish the public fact of a run's end."""
    headers = event_headers("hocket.run.finished", "test", "x", subject=end.run_id)
    fact = subjects.event(end.tenant, end.pipeline, end.kind)
    await rest.bus.publish(fact, end.model_dump_json().encode(), headers=headers)


async def _reply(rest: Rest, message: Msg, body: RunFinished | TaskRejected) -> None:
    inbox = (message.headers or {})["Hocket-Reply-To"]
    await rest.bus.nc.publish(inbox, body.model_dump_json().encode())


async def _buried(rest: Rest, payload: bytes) -> int:
    error = ErrorInfo(code="malformed_task", message="It is not JSON.")
    subject = "hocket.task.default.greet"
    await dead_letters.bury(
        rest.bus, "task", subject=subject, payload=payload, headers={"a": "b"}, error=error
    )
    info = await rest.bus.js.stream_info(subjects.DLQ)
    return int(info.state.last_seq)


async def _insert_run(rest: Rest, run_id: str, **fields: Any) -> None:
    accepted_at = fields.get("accepted_at", NOW)
    status = fields.get("status", "succeeded")
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, output, error, accepted_at, deadline_at, finished_at)"
        " VALUES ($1, $2, $3, $4, 1, $5, 'standard', $6, $7, $8, $9, $10, $11)",
        run_id,
        fields.get("partition", 0),
        fields.get("tenant", "default"),
        fields.get("pipeline", "greet"),
        status,
        json.dumps(fields.get("input", {})),
        json.dumps(fields["output"]) if "output" in fields else None,
        json.dumps(fields["error"]) if "error" in fields else None,
        accepted_at,
        accepted_at + timedelta(seconds=5),
        None if status == "running" else accepted_at + timedelta(seconds=1),
    )


async def _insert_step(rest: Rest, run_id: str, key: str, *, ready: int, **fields: Any) -> None:
    def at(name: str) -> datetime | None:
        return NOW + timedelta(milliseconds=fields[name]) if name in fields else None

    await rest.pool.execute(
        "INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, output, ready_at,"
        " started_at, finished_at) VALUES ($1, $2, $2, 'python', 'step', $3, $4, $5, $6, $7, $8)",
        run_id,
        key,
        "succeeded" if "ended" in fields else "dispatched",
        fields.get("attempt", 1),
        json.dumps(fields["output"]) if "output" in fields else None,
        NOW + timedelta(milliseconds=ready),
        at("started"),
        at("ended"),
    )


async def _insert_call(rest: Rest, call_id: str, run_id: str, *, node: str, cost_usd: str) -> None:
    await rest.pool.execute(
        "INSERT INTO hocket.usage (call_id, tenant, pipeline, version, run_id, node, model,"
        " backend, status, input_tokens, cost_usd, started_at, latency_ms)"
        " VALUES ($1, 'default', 'greet', 1, $2, $3, 'm', 'b', 'ok', 10, $4, $5, 1.5)",
        call_id,
        run_id,
        node,
        Decimal(cost_usd),
        NOW,
    )


async def test_only_a_run_that_gave_its_result_in_time_has_met_its_deadline(rest: Rest) -> None:
    for run_id, status in zip(
        "12345", "succeeded degraded failed expired rejected".split(), strict=True
    ):
        await _insert_run(rest, "r" + 24 * run_id, status=status)
    await _insert_run(rest, "r" + 24 * "6", status="cancelled")
    late = "r" + 24 * "7"
    await _insert_run(rest, late)
    await rest.pool.execute(
        "UPDATE hocket.run SET finished_at = deadline_at + interval '1 ms' WHERE run_id = $1", late
    )
    listed = {
        run["run_id"][1]: run["met_deadline"] for run in (await rest.get("/v1/runs")).body["runs"]
    }
    assert listed == {"1": True, "2": True} | dict.fromkeys("34567", False)
    assert (await rest.get(f"/v1/runs/r{24 * '3'}")).body["met_deadline"] is False
    of_report = await rest.pool.fetch("SELECT run_id, met_deadline FROM report.cost_by_run")
    assert {row["run_id"][1]: row["met_deadline"] for row in of_report} == listed
    attained = await rest.pool.fetchrow(
        "SELECT runs, met, late, without_result, attainment FROM report.slo_attainment"
    )
    assert tuple(attained) == (6, 2, 1, 3, Decimal("0.333333"))


async def test_a_run_has_spent_what_calls_of_the_http_door_that_name_it_cost(rest: Rest) -> None:
    run_id = "r" + 24 * "a"
    await _insert_run(rest, run_id)
    await rest.pool.execute("UPDATE hocket.run SET spent_usd = 0.1, budget_usd = 1")
    await _insert_call(rest, f"{run_id}:draft:1:1:0", run_id, node="draft", cost_usd="0.1")
    await _insert_call(rest, "http:default:mine", run_id, node="draft", cost_usd="0.25")
    await _insert_call(rest, "http:default:other", "r" + 24 * "b", node="draft", cost_usd="3")
    (listed,) = (await rest.get("/v1/runs")).body["runs"]
    shown = (await rest.get(f"/v1/runs/{run_id}")).body
    cost = (await rest.get(f"/v1/runs/{run_id}/cost")).body
    assert listed["spent_usd"] == shown["spent_usd"] == cost["cost_usd"] == "0.35"


async def test_a_run_has_spent_what_calls_of_the_http_door_that_name_its_sub_runs_cost(
    rest: Rest,
) -> None:
    top, middle, leaf, other = (f"r{24 * one}" for one in "abcd")
    for run_id in (top, middle, leaf, other):
        await _insert_run(rest, run_id)
    for run_id, above in ((middle, top), (leaf, middle)):
        parent = json.dumps({"run_id": above, "step": "s"})
        await rest.pool.execute(
            "UPDATE hocket.run SET parent = $2::jsonb WHERE run_id = $1", run_id, parent
        )
    for number, (run_id, usd) in enumerate(((top, "1"), (leaf, "0.2"), (leaf, "0.04"))):
        await _insert_call(rest, f"http:default:{number}", run_id, node="draft", cost_usd=usd)
    page = (await rest.get("/v1/runs")).body["runs"]
    listed = {run["run_id"]: Decimal(run["spent_usd"]) for run in page}
    assert listed == {
        top: Decimal("1.24"),
        middle: Decimal("0.24"),
        leaf: Decimal("0.24"),
        other: 0,
    }
    assert (await rest.get(f"/v1/runs/{top}")).body["spent_usd"] == "1.24"


# ---- calls ----------------------------------------------------------------------------------


async def test_a_call_is_explained_with_all_its_attempts_or_its_refusal(rest: Rest) -> None:
    await _insert_call(rest, "http:default:a/b c", "r1", node="draft", cost_usd="0.1")
    await _insert_call(rest, "http:default:a/b c:r1:h", "r1", node="draft", cost_usd="0.2")
    decision = {"model": "m", "reason": "least load", "candidates": [{"backend": "b"}]}
    await rest.pool.execute(
        "UPDATE hocket.usage SET decision = $1::jsonb WHERE call_id LIKE '%:h'",
        json.dumps(decision),
    )
    await rest.pool.execute(
        "INSERT INTO hocket.refused_call (call_id, tenant, model, error_code, reason, refused_at)"
        " VALUES ('c9', 'default', 'm', 'gateway_full', 'no luck', now())"
    )

    found = await rest.get("/v1/calls/http:default:a%2Fb%20c")
    refused = await rest.get("/v1/calls/c9")
    others = await rest.get("/v1/calls/c9", headers={"X-Hocket-Tenant": "acme"})
    of_run = await rest.get("/v1/calls?run=r1&limit=1")
    rest_of_run = await rest.get(f"/v1/calls?run=r1&limit=1&after={of_run.body['next']}")
    bad = await rest.get("/v1/calls?run=r1&after=c9")

    first, second = found.body["attempts"]
    assert (first["decision"], second["decision"]["reason"]) == (None, "least load")
    assert refused.body["refused"]["error_code"] == "gateway_full"
    assert (others.status, others.error["code"]) == (404, "call_unknown")
    assert (len(of_run.body["calls"]), of_run.body["truncated"]) == (1, True)
    ids = [one["call_id"] for page in (of_run, rest_of_run) for one in page.body["calls"]]
    assert ids == [first["call_id"], second["call_id"]]
    assert (rest_of_run.body["truncated"], rest_of_run.body["next"]) == (False, None)
    assert (bad.status, "after" in bad.error["message"]) == (422, True)


@pytest.mark.parametrize("query", [calls.ATTEMPTS, calls.OPEN])
async def test_the_planner_does_not_weigh_each_id_that_an_attempt_of_a_call_can_have(
    rest: Rest, query: str
) -> None:
    """There are 1,800 of them, and over fifty partitions: it took half a second."""
    values = ["default", ["c:r99"], "c", 10][: query.count("$")]
    plan = await rest.pool.fetch(f"EXPLAIN {query}", *values)
    assert not any("c:r99" in row[0] for row in plan)


async def test_replicas_are_put_together_from_all_gateways_and_only_keys_of_all_change_them(
    rest: Rest,
) -> None:
    away = await rest.get("/v1/backends")
    live = ("g1", "g2", "g3")
    replica = ReplicaState(replica="b/1", backend="b", limit=8)
    order = {"drained": True, "by": "key:ops", "reason": "new", "changed_at_ms": 2e12}
    seen = (
        {"in_flight": 2, "breaker": "open"},
        {"in_flight": 3, **order},
    )
    gateways = ToldGateways(
        rest.bus,
        *(
            ReplicasTold(gateway=name, gateways=live, replicas=(replica.model_copy(update=one),))
            for name, one in zip(live, seen, strict=False)
        ),
    )
    await gateways.open()
    found = await rest.get("/v1/backends")
    done = await rest.post("/v1/backends/b/warm", {"for_s": 60, "replica": "b/1", "reason": "why"})
    operator = {"Authorization": f"Bearer {await rest.make_key('operator', 'acme')}"}
    own = await rest.post("/v1/backends/b/drain", {}, headers=operator)
    audit = await rest.get("/v1/audit")
    assert (away.status, away.error["code"]) == (503, "gateway_away")
    (shown,) = found.body["replicas"]
    assert (shown["drained"], shown["by"], shown["in_flight"]) == (True, "key:ops", 5)
    assert [one["breaker"] for one in shown["gateways"]] == ["open", "closed"]
    assert (found.body["gateways"], found.body["silent"]) == (["g1", "g2"], ["g3"])
    guessed = [await rest.post("/v1/backends/b/warm", {"for_s": one}) for one in ("60", True)]
    assert [(one.status, one.error["field"]) for one in guessed] == [(422, "for_s")] * 2
    assert done.status == 200
    (sent,) = gateways.controls
    assert (sent.action, sent.for_ms, sent.replica) == ("warm", 60_000, "b/1")
    assert (own.status, own.error["code"]) == (403, "tenant_forbidden")
    assert "backends.warm" in [entry["action"] for entry in audit.body["entries"]]


async def test_experiments_are_asked_of_a_gateway_and_its_refusal_is_passed_on(rest: Rest) -> None:
    away = await rest.get("/v1/experiments")

    async def refuses(message: Msg) -> None:
        error = {"code": "experiment_unknown", "message": "no", "error_class": "invalid"}
        await rest.bus.nc.publish(message.reply, json.dumps({"error": error}).encode())

    await rest.bus.subscribe(subjects.GATEWAY_EXPERIMENTS, refuses)
    unknown = await rest.post("/v1/experiments/next/arms/canary/restore")
    assert (away.status, away.error["code"]) == (503, "gateway_away")
    assert (unknown.status, unknown.error["code"]) == (404, "experiment_unknown")


async def test_outcomes_of_runs_go_to_the_gateways_under_the_tenant_of_the_key(rest: Rest) -> None:
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def hear(message: Msg) -> None:
        heard.put_nowait(json.loads(message.data))

    await rest.bus.subscribe(subjects.GATEWAY_OUTCOME, hear)
    developer = {"Authorization": f"Bearer {await rest.make_key('developer', 'acme')}"}
    body = {"run_id": "their own / 7", "good": False}
    sent = await rest.post("/v1/experiments/outcomes", body, headers=developer)
    unnamed = await rest.post("/v1/experiments/outcomes", {"run_id": "", "good": True})
    numbered = await rest.post("/v1/experiments/outcomes", {"run_id": "7", "good": 0})
    told = await asyncio.wait_for(heard.get(), 10)
    assert (sent.status, sent.body) == (202, {"tenant": "acme", **body})
    assert (numbered.status, numbered.error["field"]) == (422, "good")
    assert (unnamed.status, unnamed.error["field"]) == (422, "run_id")
    assert (told, heard.empty()) == ({"tenant": "acme", **body}, True)


async def test_only_keys_of_all_tenants_switch_arms_for_all_tenants(rest: Rest) -> None:
    ours = ExperimentState(experiment="ours", model="writer", tenant="acme")
    everybodys = ExperimentState(experiment="everybodys", model="writer")
    await ToldGateways(rest.bus, experiments=(ours, everybodys)).open()
    operator = {"Authorization": f"Bearer {await rest.make_key('operator', 'acme')}"}

    async def switched(experiment: str, headers: dict[str, str] | None = None) -> list[int]:
        path = f"/v1/experiments/{experiment}/arms/canary"
        return [
            (await rest.post(f"{path}/{way}", headers=headers)).status
            for way in ("rollback", "restore")
        ]

    assert await switched("ours", operator) == [200, 200]
    assert await switched("everybodys", operator) == [403, 403]
    assert await switched("everybodys") == [200, 200]
    audit = await rest.get("/v1/audit")
    changed = [entry["target"] for entry in audit.body["entries"]]
    assert changed.count("experiment:everybodys/canary") == 2
