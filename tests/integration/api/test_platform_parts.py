"""Tenants, workers, queues and partitions over REST, on a real NATS and Postgres."""

from collections.abc import AsyncIterator

import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from hocket.kit.nats.consumers.step_consumers import ACK_WAIT_S, make_consumers
from hocket.kit.process.clock import now_ms
from hocket.schemas import subjects
from support.rest_rig import Rest, running_rest

GPU = "crm.lookup@gpu"


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


async def test_tenants_are_those_with_runs_pipelines_or_keys_each_once(rest: Rest) -> None:
    for tenant in ("alpha", "beta", "beta"):
        await rest.pool.execute(
            "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
            " input, accepted_at, deadline_at)"
            " VALUES (gen_random_uuid()::text, 0, $1, 'p', 1, 'running', 'standard', '{}', now(),"
            " now())",
            tenant,
        )
    spec = {"pipeline": "p", "nodes": {"a": {"type": "signal", "signal": "go"}}}
    for tenant in ("beta", "gamma"):
        await rest.post("/v1/pipelines", spec, headers={"X-Hocket-Tenant": tenant})
    await rest.make_key("viewer", "delta")
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = (await rest.get(f"/v1/tenants?limit=3&after={after}")).body
        assert len(page["tenants"]) <= 3
        found += [one["tenant"] for one in page["tenants"]]
        after = page["next"]
    assert found == ["alpha", "beta", "delta", "gamma"]


async def test_workers_are_shown_with_the_steps_that_they_take(rest: Rest) -> None:
    types = rest.app.state.context.node_types.types
    types.announced("w2", {"llm": 4}, now_ms())
    types.announced("w1", {GPU: 2, "sql": 8}, now_ms())
    first = (await rest.get("/v1/workers?limit=1")).body
    pools = [
        {"type": "crm.lookup", "queue": "gpu", "slots": 2},
        {"type": "sql", "queue": "default", "slots": 8},
    ]
    assert first == {"workers": [{"worker": "w1", "pools": pools}], "next": "w1"}
    second = (await rest.get("/v1/workers?limit=1&after=w1")).body
    assert [one["worker"] for one in second["workers"]] == ["w2"]
    assert second["next"] is None


async def test_queues_say_what_waits_and_what_is_at_workers(rest: Rest) -> None:
    rest.app.state.context.node_types.types.announced("w1", {GPU: 2}, now_ms())
    token = subjects.pool_token(GPU)
    name = subjects.step_consumer(token, "urgent")
    config = ConsumerConfig(
        durable_name=name,
        filter_subject=subjects.step(GPU, "urgent"),
        ack_policy=AckPolicy.EXPLICIT,
    )
    await rest.bus.js.add_consumer(subjects.STEPS, config)
    for number in range(3):
        await rest.bus.publish(subjects.step(GPU, "urgent"), b"{}", msg_id=f"m{number}")
    puller = await rest.bus.js.pull_subscribe_bind(durable=name, stream=subjects.STEPS)
    await puller.fetch(1, timeout=5)
    found = (await rest.get("/v1/queues")).body["queues"]
    assert [one for one in found if one["type"] == "crm.lookup"] == [
        {
            "type": "crm.lookup",
            "queue": "gpu",
            "lane": "urgent",
            "waiting": 2,
            "handed_out": 1,
            "redelivered": 0,
            "asking": 0,
            "drained_for_s": None,
        }
    ]


async def test_a_drained_type_hands_out_nothing_until_it_is_resumed(rest: Rest) -> None:
    rest.app.state.context.node_types.types.announced("w1", {GPU: 2}, now_ms())
    token = subjects.pool_token(GPU)
    await make_consumers(rest.bus, token, ACK_WAIT_S)
    place = "/v1/types/crm.lookup"
    drained = await rest.post(f"{place}/drain", {"queue": "gpu", "for_s": 600, "reason": "moves"})
    assert drained.status == 200, drained.body
    assert [one["lane"] for one in drained.body["queues"]] == list(subjects.LANES)
    assert all(590 < one["drained_for_s"] <= 600 for one in drained.body["queues"])
    await rest.bus.publish(subjects.step(GPU, "urgent"), b"{}", msg_id="m")
    name = subjects.step_consumer(token, "urgent")
    puller = await rest.bus.js.pull_subscribe_bind(durable=name, stream=subjects.STEPS)
    with pytest.raises(TimeoutError):
        await puller.fetch(1, timeout=1)

    await make_consumers(rest.bus, token, ACK_WAIT_S)  # as a worker that comes has it done
    with pytest.raises(TimeoutError):
        await puller.fetch(1, timeout=1)

    resumed = await rest.post(f"{place}/resume", {"queue": "gpu"})
    assert {one["drained_for_s"] for one in resumed.body["queues"]} == {None}
    assert len(await puller.fetch(1, timeout=5)) == 1
    audit = (await rest.get("/v1/audit?limit=500")).body["entries"]
    told = [(one["action"], one["target"]) for one in audit if one["target"].startswith("queue:")]
    assert told == [("queues.drain", f"queue:{GPU}"), ("queues.resume", f"queue:{GPU}")]


async def test_a_type_that_no_worker_ever_took_cannot_be_drained(rest: Rest) -> None:
    answer = await rest.post("/v1/types/none.such/drain")
    assert (answer.status, answer.body["code"]) == (404, "node_type_unknown")
    for wish in ("drain", "resume"):
        answer = await rest.post(f"/v1/types/llm/{wish}", {"queue": "nowhere"})
        assert (answer.status, answer.body["code"]) == (404, "queue_unknown")
        assert "`nowhere`" in answer.body["detail"]


async def test_partitions_say_whose_they_are_and_how_many_runs_are_open(rest: Rest) -> None:
    await rest.pool.execute(
        "INSERT INTO hocket.partition (partition, owner, epoch, applied_seq)"
        " VALUES (0, 'coordinator-2', 7, 41), (1, '', 0, 0)"
        " ON CONFLICT (partition) DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch,"
        " applied_seq = excluded.applied_seq"
    )
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at)"
        " VALUES ('r1', 0, 'default', 'p', 1, 'running', 'standard', '{}', now(), now())"
    )
    found = (await rest.get("/v1/partitions")).body["partitions"]
    shown = [
        (one["partition"], one["owner"], one["epoch"], one["applied_seq"], one["open_runs"])
        for one in found
    ]
    assert shown[:2] == [(0, "coordinator-2", 7, 41, 1), (1, "", 0, 0, 0)]
