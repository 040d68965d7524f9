"""Many runs at once over a real NATS and Postgres: there is no coordinator, the tests read what the API
publishes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hocket.admin.bulk import operations, store, turns
from hocket.cli.app import app
from hocket.schemas import ids, subjects
from hocket.schemas.messages import read_log
from support.administration.bulk_rig import working
from support.rest_rig import Rest, running_rest

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


@pytest.fixture
async def rest(
    nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Rest]:
    monkeypatch.setattr(operations, "SETTLE_S", 0.0)  # there is no coordinator to wait for
    async with running_rest(nats_url, database_url) as rest, asyncio.timeout(BOUND_S):
        assert (await rest.post("/v1/pipelines", GREET)).status == 201
        yield rest


async def insert(rest: Rest, count: int, status: str = "running", tenant: str = "default") -> None:
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at, finished_at, labels)"
        " SELECT 'r' || left(md5($2 || $3 || n), 24), 0, $3, 'greet', 1, $2, 'standard',"
        "  '{\"name\": \"Ada\"}', now() - n * interval '1 ms', now(),"
        "  CASE WHEN $2 <> 'running' THEN now() END, jsonb_build_object('odd', (n % 2)::text)"
        " FROM generate_series(1, $1) AS n",
        count,
        status,
        tenant,
    )


async def logged(rest: Rest) -> list[str]:
    """Return the runs that the logs were asked to cancel."""
    last = (await rest.bus.js.stream_info(subjects.LOG)).state.last_seq
    messages = [await rest.bus.js.get_msg(subjects.LOG, seq) for seq in range(1, last + 1)]
    events = [read_log("cancel", message.data or b"") for message in messages]
    return [event.run_id for of_message in events for event in of_message]


async def until_done(rest: Rest, operation_id: str) -> dict[str, Any]:
    while True:
        shown = (await rest.get(f"/v1/bulk/operations/{operation_id}")).body
        if shown["state"] != "running":
            return dict(shown)
        await asyncio.sleep(0.02)


async def test_each_of_many_tasks_is_taken_or_refused_by_itself(rest: Rest) -> None:
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at)"
        " VALUES ($1, 0, 'default', 'greet', 1, 'running', 'standard', '{}', now(), now())",
        ids.run_id("default", "mine"),
    )
    tasks: list[dict[str, Any]] = [
        {"pipeline": "greet", "input": {"name": f"n{n}"}, "idempotency_key": f"k{n}"}
        for n in range(300)
    ]
    tasks[7] = {"pipeline": "greet", "input": {"name": 7}}
    tasks[8] = {"pipeline": "ghost"}
    tasks[9] = {"pipeline": "greet", "input": {"name": "x"}, "idempotency_key": "mine"}

    answer = await rest.post("/v1/bulk/runs", {"runs": tasks})
    again = await rest.post("/v1/bulk/runs", {"runs": tasks})

    assert answer.status == 202
    assert (answer.body["accepted"], answer.body["refused"]) == (298, 2)
    runs = answer.body["runs"]
    assert [runs[n]["error"]["code"] for n in (7, 8)] == ["invalid_input", "pipeline_unknown"]
    assert runs[9] == {"run_id": ids.run_id("default", "mine"), "known": True, "error": None}
    assert [one["run_id"] for one in runs[10:]] == [
        ids.run_id("default", f"k{n}") for n in range(10, 300)
    ]
    assert again.body["runs"][10:] == runs[10:]
    assert len(await rest.message_ids(subjects.TASK_BATCHES)) == 297


async def test_a_key_that_two_tasks_use_for_two_pipelines_is_refused_at_the_second(
    rest: Rest,
) -> None:
    assert (await rest.post("/v1/pipelines", {**GREET, "pipeline": "part"})).status == 201
    tasks = [
        {"pipeline": "greet", "input": {"name": 7}, "idempotency_key": "k"},
        {"pipeline": "part", "input": {"name": "a"}, "idempotency_key": "k"},
        {"pipeline": "greet", "input": {"name": "a"}, "idempotency_key": "k"},
        {"pipeline": "part", "input": {"name": "a"}, "idempotency_key": "k"},
    ]
    runs = (await rest.post("/v1/bulk/runs", {"runs": tasks})).body["runs"]
    codes = [one["error"] and one["error"]["code"] for one in runs]
    assert codes == ["invalid_input", None, "idempotency_key_reused", None]
    assert runs[1]["run_id"] == runs[3]["run_id"] == ids.run_id("default", "k")
    assert "`part`" in runs[2]["error"]["message"]
    assert len(await rest.message_ids(subjects.TASK_BATCHES)) == 1


async def test_tasks_of_two_pipelines_with_one_key_both_reach_intake_which_refuses_one(
    rest: Rest,
) -> None:
    assert (await rest.post("/v1/pipelines", {**GREET, "pipeline": "part"})).status == 201
    tasks = [
        {"pipeline": name, "input": {"name": "a"}, "idempotency_key": "k"}
        for name in ("greet", "part", "greet")
    ]
    await asyncio.gather(*(rest.post("/v1/runs", task) for task in tasks))
    await asyncio.gather(*(rest.post("/v1/bulk/runs", {"runs": [task]}) for task in tasks))
    for stream in (subjects.TASKS, subjects.TASK_BATCHES):
        assert len(await rest.message_ids(stream)) == 2, stream


async def test_tasks_that_want_to_wait_and_too_many_are_refused_whole(rest: Rest) -> None:
    task = {"pipeline": "greet", "input": {"name": "x"}}
    waits = await rest.post("/v1/bulk/runs", {"runs": [task, {**task, "wait_ms": 5}]})
    many = await rest.post("/v1/bulk/runs", {"runs": [task] * 1_001})
    assert (waits.status, waits.body["field"]) == (422, "runs.1.wait_ms")
    assert (many.status, many.body["field"]) == (422, "runs")
    assert await rest.stored(subjects.TASK_BATCHES) == 0


async def test_a_filter_is_previewed_and_what_it_means_is_cancelled(rest: Rest) -> None:
    await insert(rest, 450)
    await insert(rest, 5, status="failed")
    await insert(rest, 5, tenant="rival")
    change = {"action": "cancel", "filter": {"labels": {"odd": "1"}}, "reason": "enough"}

    counted = await rest.post("/v1/bulk/preview", change)
    refused = await rest.post("/v1/bulk/operations", {**change, "at_most": 224})
    assert counted.body == {"action": "cancel", "matching": 225}
    assert (refused.status, refused.body["code"]) == (409, "bulk_too_large")
    assert await rest.stored(subjects.LOG) == 0
    async with working(rest):
        begun = await rest.post("/v1/bulk/operations", change)
        assert (begun.status, begun.body["matching"]) == (202, 225)
        done = await until_done(rest, begun.body["operation_id"])

    assert (done["state"], done["changed"], done["skipped"]) == ("done", 225, 0)
    odd = await rest.pool.fetch(
        "SELECT run_id FROM hocket.run WHERE tenant = 'default' AND status = 'running'"
        " AND labels ->> 'odd' = '1'"
    )
    assert sorted(await logged(rest)) == sorted(row["run_id"] for row in odd)
    audit = (await rest.get("/v1/audit")).body["entries"]
    (entry,) = [one for one in audit if one["action"] == "runs.bulk_cancel"]
    assert entry["target"] == f"bulk:{begun.body['operation_id']}"
    assert entry["after"] == {
        "filter": {"labels": {"odd": "1"}},
        "reason": "enough",
        "matching": 225,
    }
    listed = (await rest.get("/v1/bulk/operations")).body["operations"]
    assert [one["operation_id"] for one in listed] == [begun.body["operation_id"]]


async def test_runs_that_were_cancelled_before_their_deadline_have_not_missed_it(
    rest: Rest,
) -> None:
    await insert(rest, 2, status="failed")
    await insert(rest, 4, status="cancelled")
    await rest.pool.execute(
        "UPDATE hocket.run SET deadline_at = finished_at + interval '1 h' * CASE"
        " WHEN status = 'cancelled' AND labels ->> 'odd' = '1' THEN -1 ELSE 1 END"
    )
    listed = (await rest.get("/v1/runs?deadline_missed=true")).body["runs"]
    assert sorted(run["status"] for run in listed) == ["cancelled"] * 2 + ["failed"] * 2
    assert {run["labels"]["odd"] for run in listed if run["status"] == "cancelled"} == {"1"}
    change = {"action": "retry", "filter": {"deadline_missed": True}}
    assert (await rest.post("/v1/bulk/preview", change)).body["matching"] == 4


async def test_a_filter_may_ask_for_missed_deadlines_and_costs(rest: Rest) -> None:
    await insert(rest, 6, status="failed")
    await insert(rest, 3)
    await rest.pool.execute(
        "UPDATE hocket.run SET spent_usd = 0.05 WHERE status = 'failed' AND labels ->> 'odd' = '1'"
    )
    await rest.pool.execute(
        "UPDATE hocket.run SET deadline_at = now() + interval '1 h' WHERE status = 'running'"
    )

    async def counted(action: str, **wanted: Any) -> int:
        change = {"action": action, "filter": wanted}
        return int((await rest.post("/v1/bulk/preview", change)).body["matching"])

    assert await counted("retry", min_cost_usd="0.05") == 3
    assert await counted("retry", min_cost_usd="0.06") == 0
    assert await counted("retry", deadline_missed=True) == 6
    assert await counted("cancel", deadline_missed=True) == 0
    for amount in (1e2, 1e-9, "1000", 0):
        change = {"action": "retry", "filter": {"min_cost_usd": amount}}
        begun = await rest.post("/v1/bulk/operations", change)
        assert begun.status == 202, amount
        shown = await rest.get(f"/v1/bulk/operations/{begun.body['operation_id']}")
        assert float(shown.body["filter"]["min_cost_usd"]) == float(amount)
    loose = {"action": "retry", "filter": {"deadline_missed": 0}}
    assert (await rest.post("/v1/bulk/preview", loose)).status == 422
    for many in ("5", True):
        counted_as = await rest.post("/v1/bulk/preview", {"action": "retry", "at_most": many})
        assert (counted_as.status, counted_as.body["field"]) == (422, "at_most")
    assert (await rest.post("/v1/bulk/preview", {"action": "retry", "at_most": 5.0})).status == 200
    listed = await rest.get("/v1/runs?min_cost_usd=0.05&deadline_missed=true")
    assert len(listed.body["runs"]) == 3
    refused = await rest.get("/v1/runs?min_cost_usd=NaN")
    assert (refused.status, refused.body["field"]) == (422, "min_cost_usd")


async def test_only_so_many_more_runs_are_changed_than_were_counted(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(operations.PAGES, "cancel", 2)
    monkeypatch.setattr(operations, "LATE_RUNS", 2)
    await insert(rest, 3)
    begun = await rest.post("/v1/bulk/operations", {"action": "cancel", "filter": {}})
    assert begun.body["matching"] == 3
    await rest.pool.execute(  # as if more matched by now
        "UPDATE hocket.bulk_operation SET created_at = now() + interval '1 h'"
    )
    await insert(rest, 5, status="running", tenant="other")
    await rest.pool.execute("UPDATE hocket.run SET tenant = 'default' WHERE tenant = 'other'")
    async with working(rest):
        done = await until_done(rest, begun.body["operation_id"])
    assert (done["state"], done["changed"], done["matching"]) == ("done", 5, 5)
    assert len(await logged(rest)) == 5


async def test_the_same_key_is_the_same_operation(rest: Rest) -> None:
    await insert(rest, 3)
    change = {"action": "cancel", "filter": {"labels": {"odd": "1"}}, "idempotency_key": "k"}
    begun = await asyncio.gather(*(rest.post("/v1/bulk/operations", change) for _ in range(3)))
    assert {one.status for one in begun} == {202}
    assert len({one.body["operation_id"] for one in begun}) == 1
    assert await rest.pool.fetchval("SELECT count(*) FROM hocket.bulk_operation") == 1
    other = await rest.post("/v1/bulk/operations", {**change, "filter": {}})
    assert (other.status, other.body["field"]) == (422, "idempotency_key")
    bare = {name: value for name, value in change.items() if name != "idempotency_key"}
    keyed = {"Idempotency-Key": "k"}
    by_header = await rest.post("/v1/bulk/operations", bare, headers=keyed)
    assert by_header.body["operation_id"] == begun[0].body["operation_id"]


async def test_an_operation_goes_on_at_another_process_where_the_first_was_stopped(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(operations.PAGES, "cancel", 10)
    await insert(rest, 95)
    paged = asyncio.Event()
    real = operations.change_page

    async def page(*given: Any) -> Any:
        row = await real(*given)
        if row["changed"] >= 30:
            paged.set()
            await asyncio.Event().wait()
        return row

    monkeypatch.setattr(operations, "change_page", page)
    async with working(rest):
        begun = (await rest.post("/v1/bulk/operations", {"action": "cancel"})).body
        await paged.wait()
    monkeypatch.setattr(operations, "change_page", real)
    half = (await rest.get(f"/v1/bulk/operations/{begun['operation_id']}")).body
    assert (half["state"], half["changed"]) == ("running", 30)
    async with working(rest):
        done = await until_done(rest, begun["operation_id"])
    assert (done["state"], done["changed"]) == ("done", 95)
    cancelled = await logged(rest)
    assert len(cancelled) == len(set(cancelled)) == 95


async def test_many_operations_of_one_tenant_keep_no_other_waiting(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(operations.PAGES, "cancel", 5)
    await insert(rest, 40)
    await insert(rest, 10, tenant="rival")
    for _ in range(6):
        await rest.post("/v1/bulk/operations", {"action": "cancel"})
    await rest.post(
        "/v1/bulk/operations", {"action": "cancel"}, headers={"X-Hocket-Tenant": "rival"}
    )
    tenants = []
    for _ in range(8):
        row = await rest.pool.fetchrow(store.CLAIM, "one", store.LEASE_S)
        tenants.append(row["tenant"])
        await turns.take(rest.app.state.context, "one", row)
    assert "rival" in tenants[:2]
    assert tenants.count("rival") == 2, "two pages"
    done = "SELECT state, changed FROM hocket.bulk_operation WHERE tenant = 'rival'"
    assert tuple(await rest.pool.fetchrow(done)) == ("done", 10)


async def test_a_process_that_lost_its_lease_writes_nothing_more(rest: Rest) -> None:
    await insert(rest, 3)
    await rest.post("/v1/bulk/operations", {"action": "cancel"})
    row = await rest.pool.fetchrow(store.CLAIM, "one", store.LEASE_S)
    assert await rest.pool.fetchrow(store.CLAIM, "two", store.LEASE_S) is None, "it is taken"
    await rest.pool.execute("UPDATE hocket.bulk_operation SET leased_until = '-infinity'")
    assert await rest.pool.fetchrow(store.CLAIM, "two", store.LEASE_S) is not None
    assert await operations.change_page(rest.app.state.context, "one", row) is None
    assert await rest.pool.fetchval("SELECT changed FROM hocket.bulk_operation") == 0


async def test_a_stopped_operation_changes_nothing_more(rest: Rest) -> None:
    await insert(rest, 3)
    begun = (await rest.post("/v1/bulk/operations", {"action": "cancel"})).body
    place = f"/v1/bulk/operations/{begun['operation_id']}"
    stopped = await rest.post(f"{place}/stop")
    again = await rest.post(f"{place}/stop")
    assert (stopped.status, stopped.body["state"]) == (200, "stopped")
    assert (again.status, again.body["code"]) == (409, "bulk_operation_ended")
    assert await rest.pool.fetchrow(store.CLAIM, "one", store.LEASE_S) is None
    assert (await rest.get(f"/v1/bulk/operations/b{'0' * 24}")).status == 404


async def test_a_page_that_takes_longer_than_the_lease_is_not_given_to_another_process(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs are of many partitions, and take their time to end."""
    monkeypatch.setattr(operations, "SETTLE_S", 0.4)
    monkeypatch.setattr(turns, "LOOK_S", 0.1)
    monkeypatch.setattr(store, "LEASE_S", 1)
    await insert(rest, 6)
    await rest.pool.execute(
        "WITH numbered AS (SELECT run_id, row_number() OVER () AS n FROM hocket.run)"
        " UPDATE hocket.run r SET partition = n.n FROM numbered n WHERE n.run_id = r.run_id"
    )
    async with working(rest), working(rest):
        begun = (await rest.post("/v1/bulk/operations", {"action": "cancel"})).body
        done = await until_done(rest, begun["operation_id"])
    assert (done["changed"], done["skipped"]) == (6, 0)
    assert len(await logged(rest)) == 6


async def test_what_failed_is_retried_once_each(rest: Rest) -> None:
    await insert(rest, 50, status="failed")
    await insert(rest, 5, status="succeeded")
    change = {"action": "retry", "filter": {"pipeline": "greet"}}
    async with working(rest):
        begun = (await rest.post("/v1/bulk/operations", change)).body
        done = await until_done(rest, begun["operation_id"])
        await rest.pool.execute(
            "UPDATE hocket.bulk_operation SET state = 'running', finished_at = NULL, place = '',"
            " leased_until = '-infinity'"
        )
        rest.app.state.context.bulk_asked.set()
        await until_done(rest, begun["operation_id"])
    assert (done["state"], done["changed"], done["skipped"]) == ("done", 50, 0)
    assert len(await rest.message_ids(subjects.TASKS)) == 50


async def test_a_bulk_retry_is_the_same_run_as_a_plain_one_however_often_and_by_whom(
    rest: Rest,
) -> None:
    await insert(rest, 3, status="failed")
    (failed, *_) = (await rest.get("/v1/runs")).body["runs"]
    assert (await rest.post(f"/v1/runs/{failed['run_id']}/retry")).status == 202
    plain = await rest.message_ids(subjects.TASKS)
    change = {"action": "retry"}
    async with working(rest):
        for _ in range(2):
            begun = (await rest.post("/v1/bulk/operations", change)).body
            done = await until_done(rest, begun["operation_id"])
            assert (done["changed"], done["skipped"]) == (3, 0)
    messages = await rest.message_ids(subjects.TASKS)
    assert len(messages) == 3
    assert len(plain & messages) == 1


async def test_the_commands_of_the_docs(rest: Rest, tmp_path: Path) -> None:
    await insert(rest, 4)
    tasks = tmp_path / "tasks.jsonl"
    lines = [{"pipeline": "greet", "input": {"name": "Ada"}}, {"pipeline": "ghost"}]
    tasks.write_text("\n".join(json.dumps(line) for line in lines))

    async def hocket(*arguments: str) -> Result:
        environment = {"HOCKET_API_URL": rest.url, "HOCKET_API_KEY": rest.key}
        return await asyncio.to_thread(
            CliRunner().invoke, app, ["runs", *arguments], env=environment
        )

    submitted = await hocket("submit", str(tasks))
    assert (submitted.exit_code, "1 of 2 tasks were accepted" in submitted.output) == (1, True)
    previewed = await hocket("bulk-cancel", "--pipeline", "greet", "--preview")
    assert previewed.output.strip() == "4 runs match"
    for command in ("bulk-cancel", "bulk-retry"):
        refused = await hocket(command)
        assert refused.exit_code != 0
        assert "pass `--all` for all runs of the tenant" in str(refused.exception)
    everything = await hocket("bulk-cancel", "--all", "--preview")
    assert everything.output.strip() == "4 runs match"
    async with working(rest):
        said = ("--pipeline", "greet", "--at-most", "5000", "--reason", "wrong input", "--wait")
        cancelled = await hocket("bulk-cancel", *said)
        assert "done: 4 changed, 0 skipped, of 4" in cancelled.output, cancelled.output
        narrow = ("--pipeline", "greet", "--error", "timeout", "--hours", "3", "--json", "--wait")
        retried = json.loads((await hocket("bulk-retry", *narrow)).stdout)
    assert (retried["action"], retried["matching"]) == ("retry", 0)
    shown = await hocket("bulk-show")
    assert len(shown.output.strip().splitlines()) == 2
