"""Submissions are answered before the framework is asked, and nobody can tell: each request here is sent
to two APIs over one NATS and Postgres, one of which has no quick routes."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hocket.admin.submission.quick_route import QuickRoute
from hocket.schemas import subjects
from support.rest_rig import Answer, Rest, running_rest

BOUND_S = 60.0
GREET = {
    "pipeline": "greet",
    "input": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}},
    },
    "nodes": {"hello": {"type": "python", "handler": "greet:hello"}},
}
TASK: dict[str, Any] = {"pipeline": "greet", "input": {"name": "Ada"}}
MOST = {
    **TASK,
    "deadline_ms": 60_000.5,
    "class": "batch",
    "budget_usd": "0.25",
    "version": 1,
    "labels": {"customer": "acme"},
}
WEIRD = {
    "pipeline": "greet",
    "input": {"name": "Ünï \u2028 🎉", "big": 10**40, "half": 0.1, "no": None},
}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CASES: dict[str, tuple[str, bytes | Any, dict[str, str]]] = {
    "a task": ("runs", TASK, {}),
    "all of its fields": ("runs", MOST, {}),
    "any text and number": ("runs", WEIRD, {}),
    "a key in the body": ("runs", {**TASK, "idempotency_key": "k1"}, {}),
    "a key as header": ("runs", TASK, {"Idempotency-Key": "k2"}),
    "one key twice": ("runs", {**TASK, "idempotency_key": "k3"}, {"Idempotency-Key": "k3"}),
    "two keys": ("runs", {**TASK, "idempotency_key": "k4"}, {"Idempotency-Key": "k5"}),
    "a key with a space": ("runs", TASK, {"Idempotency-Key": "a b"}),
    "an empty key": ("runs", TASK, {"Idempotency-Key": ""}),
    "a trace": ("runs", TASK, {"traceparent": TRACE}),
    "a trace that is none": ("runs", TASK, {"traceparent": "nonsense"}),
    "a tenant": ("runs", TASK, {"X-Hocket-Tenant": "default"}),
    "a tenant that cannot be": ("runs", TASK, {"X-Hocket-Tenant": "a.b"}),
    "a pipeline that there is not": ("runs", {**TASK, "pipeline": "nobody"}, {}),
    "a version that there is not": ("runs", {**TASK, "version": 7}, {}),
    "input that its schema refuses": ("runs", {"pipeline": "greet", "input": {"name": 1}}, {}),
    "input that is too large": ("runs", {"pipeline": "greet", "input": {"name": "x" * 5_000}}, {}),
    "a field that there is not": ("runs", {**TASK, "prio": 1}, {}),
    "no pipeline": ("runs", {"input": {}}, {}),
    "a list": ("runs", [TASK], {}),
    "no JSON": ("runs", b"{", {}),
    "a key of JSON twice": ("runs", b'{"pipeline": "greet", "pipeline": "greet"}', {}),
    "half a character": ("runs", b'{"pipeline": "greet", "input": {"name": "\\ud800"}}', {}),
    "no UTF-8": ("runs", b'{"pipeline": "\xff"}', {}),
    "no body": ("runs", b"", {}),
    "another type": ("runs", b"{}", {"Content-Type": "text/plain"}),
    "no length": ("runs", TASK, {"Transfer-Encoding": "chunked"}),
    "a query": ("runs?x=1", TASK, {}),
    "many": ("bulk/runs", {"runs": [TASK, MOST, WEIRD]}, {}),
    "many with faults": (
        "bulk/runs",
        {"runs": [{**TASK, "pipeline": "nobody"}, {**TASK, "input": {}}, TASK]},
        {},
    ),
    "none of many": ("bulk/runs", {"runs": []}, {}),
    "many of which one waits": ("bulk/runs", {"runs": [TASK, {**TASK, "wait_ms": 10}]}, {}),
    "many that are misspelt": ("bulk/runs", {"run": [TASK]}, {}),
    "many for a tenant": ("bulk/runs", {"runs": [TASK]}, {"X-Hocket-Tenant": "default"}),
}


@pytest.fixture
async def both(nats_url: str, database_url: str) -> AsyncIterator[tuple[Rest, Rest]]:
    """Return the API, and one without quick routes."""
    async with (
        running_rest(nats_url, database_url) as quick,
        running_rest(nats_url, database_url) as plain,
        asyncio.timeout(BOUND_S),
    ):
        routes = plain.app.router.routes
        routes[:] = [route for route in routes if not isinstance(route, QuickRoute)]
        assert len(quick.app.router.routes) == len(routes) + 2
        assert (await quick.post("/v1/pipelines", GREET)).status == 201
        yield quick, plain


async def sent(rest: Rest, name: str) -> Answer:
    path, body, headers = CASES[name]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **headers}
    return await rest.ask("POST", f"/v1/{path}", data=data, headers=headers)


def comparable(answer: Answer) -> tuple[int, str, dict[str, str]]:
    """Return what of an answer does not follow from chance: ids, times and the length of both do."""
    headers = {
        name.lower(): re.sub("r[0-9a-f]{24}", "r*", value)
        for name, value in answer.headers.items()
        if name.lower() != "date"
    }
    return answer.status, re.sub("r[0-9a-f]{24}", "r*", json.dumps(answer.body)), headers


async def test_every_answer_is_the_frameworks_own(both: tuple[Rest, Rest]) -> None:
    answers = {name: [comparable(await sent(rest, name)) for rest in both] for name in CASES}

    assert {name: two for name, two in answers.items() if two[0] != two[1]} == {}
    assert {two[0][0] for two in answers.values()} >= {202, 404, 413, 415, 422}


async def test_what_is_published_is_the_same(both: tuple[Rest, Rest]) -> None:
    for rest in both:
        for name in ("a task", "all of its fields", "any text and number", "a trace", "many"):
            assert (await sent(rest, name)).status == 202

    quick = both[0]
    streams = {subjects.TASKS: 4, subjects.TASK_BATCHES: 3}
    changing = ("Nats-Msg-Id", "ce-id", "Hocket-Idempotency-Key")
    for stream, each in streams.items():
        messages = [await quick.bus.js.get_msg(stream, seq) for seq in range(1, 2 * each + 1)]
        told = [
            (
                message.subject,
                message.data,
                {k: v for k, v in (message.headers or {}).items() if k not in changing},
            )
            for message in messages
        ]
        assert told[:each] == told[each:]


async def test_a_key_is_answered_with_its_run(both: tuple[Rest, Rest]) -> None:
    quick, _ = both
    first = await sent(quick, "a key in the body")
    run_id = first.body["run_id"]
    await quick.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at) VALUES ($1, 0, 'default', 'greet', 1, 'running',"
        " 'standard', '{}', now(), now())",
        run_id,
    )

    asked = [sent(quick, "a key in the body") for _ in range(20)]
    answers = await asyncio.gather(*asked, sent(quick, "a key as header"))

    assert {one.body["run_id"] for one in answers[:-1]} == {run_id}
    assert {(one.body["status"], one.body["known"]) for one in answers[:-1]} == {("running", True)}
    assert not answers[-1].body["known"]


async def test_a_version_counts_as_soon_as_it_is_applied(both: tuple[Rest, Rest]) -> None:
    quick, plain = both
    assert (await sent(quick, "a task")).status == 202
    assert (await sent(quick, "input that its schema refuses")).status == 422
    wider = {**GREET, "input": {"type": "object"}}
    assert (await plain.post("/v1/pipelines", wider)).status == 201  # by another process

    assert (await sent(quick, "input that its schema refuses")).status == 202
    assert (await quick.post("/v1/pipelines", GREET)).status == 201

    assert (await sent(quick, "input that its schema refuses")).status == 422


async def test_a_caller_that_may_not_submit_is_refused(both: tuple[Rest, Rest]) -> None:
    quick, _ = both
    key = await quick.make_key("viewer")

    for path, body in (("/v1/runs", TASK), ("/v1/bulk/runs", {"runs": [TASK]})):
        answer = await quick.post(path, body, headers={"Authorization": f"Bearer {key}"})
        assert (answer.status, answer.error["code"]) == (403, "permission_missing")
