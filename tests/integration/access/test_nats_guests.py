"""What the bearers of keys can do on NATS, with any client: publish tasks, hear of their runs, read
events, work; until their key goes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import nats
import pytest
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from hocket.coordinator.journals.door import JournalDoor
from hocket.kit.access.nats_accounts import MAX_GUEST_SUBSCRIPTIONS
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL
from hocket.schemas.journals import JournalEntry, JournalPage, JournalRead, JournalWrite
from hocket.schemas.messages import CancelRequested, StepRequested, encoded
from hocket.worker import Context, Retryable, Worker
from support.access.nats_guests import Guest, guest, guests_welcome, url_with
from support.coordinator_rig import Rig as Coordinators
from support.durable.rig import CAPABILITIES, again, ok, send
from support.handlers.lead_worker import worker as leads
from support.rest_rig import Rest, running_rest
from support.worker_rig import Rig

BOUND_S = 20.0
OUT_WITHIN_S = 5.0


@pytest.fixture
async def rest(servers: EmbeddedServers, nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with (
        running_rest(nats_url, database_url) as rest,
        guests_welcome(servers, rest.book),
    ):
        yield rest


async def is_refused(url: str, key: str) -> bool:
    try:
        async with guest(url, key):
            return False
    except NatsError as error:
        return "authorization" in str(error).lower()


async def test_a_tenant_publishes_tasks_and_hears_of_them(rest: Rest, nats_url: str) -> None:
    key = await rest.make_key("developer", "acme")
    async with guest(nats_url, key) as acme:
        inbox, heard = acme.client.new_inbox(), asyncio.Queue[Msg]()
        assert subjects.is_inbox(inbox)
        await acme.client.subscribe(inbox, cb=heard.put)
        headers = {"Hocket-Reply-To": inbox}
        ack = await acme.client.jetstream().publish("hocket.task.acme.p", b"{}", headers=headers)
        assert ack.stream == "TASKS"
        await rest.bus.nc.publish(inbox, b"the end")  # as a coordinator answers
        assert (await asyncio.wait_for(heard.get(), BOUND_S)).data == b"the end"
    assert (await rest.bus.js.stream_info("TASKS")).state.messages == 1


async def test_who_may_not_see_content_hears_of_ends_without_their_output(
    rest: Rest, nats_url: str
) -> None:
    """Nor of those of others' runs, by their idempotency keys, nor by way of another tenant's key."""
    keys = [await rest.make_key(role, "acme") for role in ("developer", "operator")]
    rival = await rest.make_key("developer", "rival")
    coordinators = Coordinators(rest.bus, rest.pool)
    await coordinators.open()
    async with (
        coordinators.coordinator("one", rest.book),
        guest(nats_url, keys[0]) as developer,
        guest(nats_url, keys[1]) as operator,
        guest(nats_url, rival) as other,
    ):
        assert await output(developer, "order-1", developer) is not None
        assert await output(operator, "order-1", operator) is None
        assert await output(operator, "order-2", operator) is None
        assert await output(operator, "order-2", other) is None
        assert await output(operator, "order-3", other) is None


async def output(publisher: Guest, key: str, hearer: Guest) -> object:
    """Publish a task of acme, and return the output that another guest is told."""
    inbox, heard = hearer.client.new_inbox(), asyncio.Queue[Msg]()
    await hearer.client.subscribe(inbox, cb=heard.put)
    await hearer.client.flush()
    headers = {"Hocket-Reply-To": inbox, "Hocket-Idempotency-Key": key}
    await publisher.client.jetstream().publish("hocket.task.acme.p", b"{}", headers=headers)
    end = json.loads((await asyncio.wait_for(heard.get(), BOUND_S)).data)
    assert end["status"] == "succeeded"
    return end["output"]


async def test_a_message_id_of_one_tenant_drops_no_task_of_another(
    rest: Rest, nats_url: str
) -> None:
    """Streams know ids of all publishers together, for as short as a server can."""
    keys = [await rest.make_key("developer", tenant) for tenant in ("acme", "rival")]
    async with guest(nats_url, keys[0]) as acme, guest(nats_url, keys[1]) as rival:
        same = {"Nats-Msg-Id": "order-77"}
        first = await acme.client.jetstream().publish("hocket.task.acme.p", b"{}", headers=same)
        assert not first.duplicate
        async with asyncio.timeout(BOUND_S):
            while True:
                sent = rival.client.jetstream().publish("hocket.task.rival.p", b"{}", headers=same)
                if not (await sent).duplicate:
                    break
    assert (await rest.bus.js.stream_info("TASKS")).state.messages == 2


async def test_a_tenant_reads_the_events_of_its_runs_and_no_others(
    rest: Rest, nats_url: str
) -> None:
    key = await rest.make_key("developer", "acme")
    async with guest(nats_url, key) as acme:
        asked = f"hocket.access.events.{acme.key_id}"
        name = (await acme.client.request(asked, b"", timeout=BOUND_S)).data.decode()
        for number in range(60):
            for tenant in ("acme", "rival"):
                subject = f"hocket.event.{tenant}.p.run-finished"
                await rest.bus.publish(subject, b"%d" % number)
        pull = await acme.client.jetstream().pull_subscribe_bind(name, "EVENTS")
        read: list[Msg] = []
        while len(read) < 60:
            read += await pull.fetch(25, timeout=BOUND_S)
        for message in read:
            await message.ack_sync(timeout=BOUND_S)
        assert {message.subject for message in read} == {"hocket.event.acme.p.run-finished"}
        assert [int(message.data) for message in read] == list(range(60))
        info = await rest.bus.js.consumer_info("EVENTS", name)
        assert (info.num_ack_pending, info.num_pending) == (0, 0)


async def test_who_has_nothing_to_do_on_nats_is_not_let_in(rest: Rest, nats_url: str) -> None:
    for role in ("viewer", "auditor"):
        assert await is_refused(nats_url, await rest.make_key(role, "acme")), role
    operator = await rest.make_key("operator", "acme")
    wrong = operator[:-1] + ("0" if operator[-1] != "0" else "1")
    assert await is_refused(nats_url, wrong)
    assert not await is_refused(nats_url, operator)
    narrowed = await rest.make_key("developer", "acme", scopes=frozenset({"models.call"}))
    assert await is_refused(nats_url, narrowed)


async def test_a_key_may_be_token_password_or_user(rest: Rest, nats_url: str) -> None:
    key, place = await rest.make_key("developer", "acme"), nats_url.rpartition("@")[2]
    for account in (key, f"anybody:{key}", f"{key}:"):
        client = await nats.connect(f"nats://{account}@{place}", allow_reconnect=False)
        await client.close()


async def test_a_key_that_goes_takes_its_connections_along(rest: Rest, nats_url: str) -> None:
    revoked = await rest.make_key("developer", "acme")
    rotated = await rest.make_key("developer", "acme")
    kept = await rest.make_key("developer", "acme")
    ends_at = datetime.now(UTC) + timedelta(seconds=1)
    ending = await rest.make_key("developer", "acme", expires_at=ends_at)
    async with (
        guest(nats_url, revoked) as one,
        guest(nats_url, rotated) as two,
        guest(nats_url, ending) as three,
        guest(nats_url, kept) as stays,
    ):
        began_s = time.monotonic()
        await rest.ask("DELETE", f"/v1/keys/{one.key_id}")
        again = (await rest.post(f"/v1/keys/{two.key_id}/rotate", {"overlap_s": 0})).body["key"]
        async with asyncio.timeout(BOUND_S):
            for gone in (one, two, three):
                await gone.lost.wait()
        took_s = time.monotonic() - began_s
        print(f"out after {took_s:.1f} s")
        assert took_s < OUT_WITHIN_S
        assert stays.client.is_connected
        await stays.client.flush()
        assert await is_refused(nats_url, revoked)
        assert await is_refused(nats_url, rotated)
        assert await is_refused(nats_url, ending)
        assert not await is_refused(nats_url, again)


async def test_a_tenant_has_so_many_connections_and_others_are_let_in(
    servers: EmbeddedServers, nats_url: str, database_url: str
) -> None:
    async with (
        running_rest(nats_url, database_url) as rest,
        guests_welcome(servers, rest.book, most=4),
        AsyncExitStack() as stack,
    ):
        keys = [await rest.make_key("developer", "acme") for _ in range(2)]
        for number in range(4):
            last = await stack.enter_async_context(guest(nats_url, keys[number % 2]))
        assert await is_refused(nats_url, keys[0])
        assert await is_refused(nats_url, keys[1])
        assert not await is_refused(nats_url, await rest.make_key("developer", "rival"))
        await last.client.close()
        async with asyncio.timeout(BOUND_S):
            while await is_refused(nats_url, keys[0]):
                pass


async def test_a_connection_has_so_many_subscriptions(rest: Rest, nats_url: str) -> None:
    key = await rest.make_key("developer", "acme")
    reader, writer = await asyncio.open_connection(*nats_url.rpartition("@")[2].split(":"))
    try:
        writer.write(b'CONNECT {"auth_token": "%s", "verbose": false}\r\n' % key.encode())
        for number in range(1, MAX_GUEST_SUBSCRIPTIONS + 2):
            subject = f"_INBOX.key.{key.split('_')[1]}.{number}"
            writer.write(f"SUB {subject} {number}\r\n".encode())
        async with asyncio.timeout(BOUND_S):
            said = await reader.readuntil(b"-ERR")
            assert await reader.readline() == b" 'maximum subscriptions exceeded'\r\n", said
    finally:
        writer.close()


async def test_both_secrets_of_a_rotated_key_connect_and_stay(rest: Rest, nats_url: str) -> None:
    key = await rest.make_key("developer", "acme")
    async with guest(nats_url, key) as before:
        path = f"/v1/keys/{before.key_id}/rotate"
        again = (await rest.post(path, {"overlap_s": 60})).body["key"]
        async with guest(nats_url, again) as after:
            assert not await is_refused(nats_url, key)
            await asyncio.wait_for(before.client.flush(), BOUND_S)
            await after.client.flush()


async def test_without_anybody_who_decides_the_services_go_on_and_guests_wait(
    rest: Rest, servers: EmbeddedServers, nats_url: str
) -> None:
    key = await rest.make_key("developer", "acme")
    async with guest(nats_url, key) as acme:
        await servers.nats.kill()  # whoever decides connects anew, as everybody does
        await servers.nats.wait_ready()
        bus = await Bus.connect(servers.nats.url_of("coordinator"), name="coordinator")
        assert bus.connected
        await bus.close()
        async with asyncio.timeout(BOUND_S):
            await acme.lost.wait()
            while await is_refused(nats_url, key):
                pass


async def test_a_worker_with_a_key_runs_the_steps_of_its_types(rest: Rest, nats_url: str) -> None:
    heard: list[str] = []

    async def announced(message: Msg) -> None:
        heard.append(message.subject)

    await rest.bus.subscribe("hocket.worker.>", announced)
    key = await rest.make_key("worker", None, pools=("crm.lookup", "crm.score", "crm.wait"))
    rig = await Rig.open(nats_url)
    try:
        async with leads.run(nats_url=url_with(nats_url, key)):
            sent = []
            for node_type, email in (("crm.lookup", "ada@x.org"), ("crm.score", "c@x.org")):
                given = {"email": email, "score": 4}
                step = rig.step(type=node_type, input=given, capability="c" * 32)
                body = step.model_dump_json().encode()
                await rig.bus.publish(subjects.step(node_type, "normal"), body)
                sent.append(step)
            results = [await rig.result(step) for step in sent]
            assert [one.output for one in results] == [{"name": "ada", "region": "eu"}, 5]
            assert {one.capability for one in results} == {"c" * 32}
        assert {f"hocket.worker.announced.{one}" for one in ("crm-lookup", "crm-score")} <= {*heard}
        assert "hocket.worker.described.crm-lookup" in heard
        assert not {"hocket.worker.announced", "hocket.worker.described"} & {*heard}
        await rig.until_stream("STEPS", lambda messages: messages == 0)  # all are acknowledged
    finally:
        await rig.close()


async def test_a_worker_with_a_key_keeps_journals_by_way_of_a_coordinator(
    rest: Rest, servers: EmbeddedServers, nats_url: str
) -> None:
    calls: list[int] = []
    types = Worker()

    @types.node("crm.charge")
    async def charge(_given: object, context: Context) -> int:
        number = await context.step("charge", lambda: calls.append(1) or len(calls))
        if context.step.attempt == 1:
            raise Retryable
        return int(number)

    key = await rest.make_key("worker", None, pools=("crm.charge",))
    coordinator = await Bus.connect(servers.nats.url_of("coordinator"), name="coordinator")
    rig = await Rig.open(nats_url)
    try:
        async with (
            JournalDoor(coordinator, CAPABILITIES).open(),
            types.run(nats_url=url_with(nats_url, key)),
        ):
            step = await send(rig, "crm.charge")
            assert (await rig.result(step)).error is not None
            assert ok(await again(rig, step)) == 1
        assert calls == [1]
    finally:
        await coordinator.close()
        await rig.close()


async def test_a_worker_that_hears_a_cancellation_cannot_act_for_the_attempt(
    rest: Rest, nats_url: str
) -> None:
    """All workers hear it, and REST tells viewers when the step was dispatched."""
    key = await rest.make_key("worker", None, pools=("crm.lookup",))
    viewer = await rest.make_key("viewer", "acme")
    taken, heard = asyncio.Queue[StepRequested](), asyncio.Queue[Msg]()

    async def dispatched(message: Msg) -> None:
        await taken.put(StepRequested.model_validate_json(message.data))

    await rest.bus.subscribe("hocket.step.python.*", dispatched)
    coordinators = Coordinators(rest.bus, rest.pool)
    await coordinators.open()
    coordinators.holding.set()
    async with (
        coordinators.coordinator("one", rest.book, CAPABILITIES),
        JournalDoor(rest.bus, CAPABILITIES).open(),
        guest(nats_url, key) as worker,
    ):
        await worker.client.subscribe(subjects.CANCEL_FILTER, cb=heard.put)
        await worker.client.flush()
        await rest.bus.publish("hocket.task.acme.p", b"{}")
        while (step := await asyncio.wait_for(taken.get(), BOUND_S)).step != "b":
            pass
        claim = {
            name: getattr(step, name) for name in JournalRead.model_fields if name != "after_seq"
        }
        entry = JournalEntry(ordinal=1, name="x", value="secret", started_at_ms=1, finished_at_ms=1)
        written = encoded(JournalWrite(**claim, entries=(entry,)))
        await rest.bus.request(f"{subjects.JOURNAL_WRITE}.python", written, timeout_ms=5_000)
        at_ms = await shown_dispatch_ms(rest, viewer, step)
        wanted = encoded(CancelRequested(run_id=step.run_id, reason="enough", by="a test"))
        headers = {SEAL: CAPABILITIES.seal(CancelRequested.kind, wanted)}
        log = subjects.log(step.partition, CancelRequested.kind)
        await rest.bus.publish(log, wanted, headers=headers)
        told = json.loads((await asyncio.wait_for(heard.get(), BOUND_S)).data)
        assert (told["run_id"], told["step"]) == (step.run_id, "b")
        claim["dispatched_at_ms"] = at_ms
        for text in filter(None, map(str, told.values())):
            asked = encoded(JournalRead(**claim | {"capability": text}))
            reply = await worker.client.request(f"{subjects.JOURNAL_READ}.crm-lookup", asked)
            assert JournalPage.model_validate_json(reply.data).refusal == "refused", told


async def shown_dispatch_ms(rest: Rest, key: str, step: StepRequested) -> float:
    """Return when a step was dispatched, as REST says."""
    headers = {"Authorization": f"Bearer {key}"}
    async with asyncio.timeout(BOUND_S):
        while True:
            found = (await rest.get(f"/v1/runs/{step.run_id}/steps", headers=headers)).body
            for one in found.get("steps", ()):
                if one["step"] == step.step and one["dispatched_at"] is not None:
                    return datetime.fromisoformat(one["dispatched_at"]).timestamp() * 1_000
            await asyncio.sleep(0.1)


async def test_a_workers_key_is_of_all_tenants_and_names_its_pools(rest: Rest) -> None:
    bodies: dict[str, dict[str, object]] = {
        "all_tenants": {"role": "worker", "pools": ["crm.lookup"]},
        "pools": {"role": "worker", "all_tenants": True},
    }
    wrong = ({"role": "viewer", "pools": ["crm.lookup"]}, {"role": "worker", "pools": ["a b@"]})
    for field, body in [*bodies.items(), *(("pools", one) for one in wrong)]:
        answer = await rest.post("/v1/keys", {"name": "x", **body})
        assert answer.status == 422, body
        assert field in str(answer.body), answer.body
    body = {"name": "x", "role": "worker", "all_tenants": True, "pools": ["crm.lookup@gpu"]}
    made = await rest.post("/v1/keys", body)
    assert made.status == 201
    shown = await rest.get(f"/v1/keys/{made.body['key_id']}")
    assert shown.body["pools"] == ["crm.lookup@gpu"]
