"""What the bearers of keys cannot do on NATS, tried on a real server, subject by subject: no operation
reaches the platform, none is answered, and nothing of others' is heard."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from nats.aio.msg import Msg

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.step_consumers import make_consumers
from support.access.nats_guests import Guest, guest, guests_welcome
from support.rest_rig import Rest, running_rest

API = "$JS.API."
BOUND_S = 20.0
STREAMS = (
    "TASKS TASK_BATCHES LOG STEPS EVENTS USAGE DLQ CALLS PROBATION JOURNALS "
    "GUEST_RESULTS GUEST_LETTERS GUEST_WORKERS GUEST_TYPES"
).split()
RIVAL_CONSUMER = "key-0123456789ab"
PUSHED = {
    "stream_name": "EVENTS",
    "config": {"deliver_subject": "hocket.task.rival.p", "name": "x"},
}

OF_ALL = (
    "hocket.task.rival.p hocket.batched.acme.p hocket.batched.rival.p "
    "hocket.log.0.accepted hocket.log.0.cancel hocket.log.0.signal "
    "hocket.log.0.timer hocket.log.0.cache hocket.log.0.outlook hocket.log.0.charged "
    "hocket.step.python.normal "
    "hocket.step.crm-lookup.normal hocket.usage hocket.call.opened hocket.call.refused "
    "hocket.event.acme.p.run-finished hocket.event.rival.p.run-finished "
    "hocket.event._gateway.x.arm-rolled-back hocket.dlq.task.acme hocket.dlq.log.acme "
    "hocket.probation.0123 hocket.cancel hocket.worker.announced hocket.worker.described "
    "hocket.worker.announced.python hocket.worker.described.python hocket.worker.asked "
    "hocket.guest.announced.python hocket.guest.described.python "
    "hocket.guest.result.0123456789ab hocket.guest.letter.0123456789ab "
    "hocket.worker.consumers.python hocket.worker.journal.read.python "
    "hocket.worker.journal.write.python hocket.worker.journal.read.crm-lookup@gpu "
    "hocket.worker.lines.python hocket.worker.lines.crm-lookup@gpu "
    "hocket.journal.r1.x hocket.journal.crm-lookup.x hocket.gateway.guest hocket.gateway.control "
    "hocket.gateway.models hocket.gateway.experiments hocket.gateway.expected "
    "hocket.gateway.replicas hocket.gateway.states "
    "hocket.gateway.prompt hocket.gateway.held hocket.gateway.used hocket.gateway.outcome "
    "hocket.ledger.spent hocket.ledger.content hocket.access.keys hocket.access.events.0123456789ab "
    "$KV.hocket-coordinators.x $KV.hocket-gateways.x $KV.hocket-budgets.x "
    "$JS.ACK.TASKS.intake.1.1.1.1.0 $JS.ACK.TASK_BATCHES.intake.1.1.1.1.0 "
    "$JS.ACK.USAGE.ledger.1.1.1.1.0 "
    f"$JS.ACK.STEPS.step-python-normal.1.1.1.1.0 $JS.ACK.EVENTS.{RIVAL_CONSUMER}.1.1.1.1.0 "
    "$JS.FC.LOG.x.y _INBOX.x _INBOX.key.0123456789ab.x _INBOX.service.coordinator.x "
    "_INBOX.service.gateway.x _R_.x $SYS.REQ.SERVER.PING $SYS.REQ.SERVER.PING.CONNZ "
    "$SYS.REQ.SERVER.x.KICK $SYS.REQ.USER.AUTH $SYS.REQ.ACCOUNT.PING.CONNZ"
).split()
APIS = (
    "INFO STREAM.NAMES STREAM.LIST STREAM.INFO.TASKS STREAM.INFO.TASK_BATCHES "
    "STREAM.INFO.EVENTS STREAM.CREATE.MINE "
    "STREAM.UPDATE.EVENTS STREAM.PURGE.TASKS STREAM.PURGE.PROBATION STREAM.DELETE.TASKS "
    "STREAM.INFO.JOURNALS STREAM.PURGE.JOURNALS STREAM.MSG.GET.JOURNALS DIRECT.GET.JOURNALS "
    "DIRECT.GET.JOURNALS.hocket.journal.r1.x DIRECT.GET.JOURNALS.hocket.journal.*.* "
    "CONSUMER.CREATE.JOURNALS.x STREAM.MSG.GET.TASKS STREAM.MSG.GET.STEPS STREAM.MSG.GET.PROBATION "
    "STREAM.MSG.DELETE.EVENTS STREAM.SNAPSHOT.EVENTS STREAM.RESTORE.EVENTS "
    "STREAM.LEADER.STEPDOWN.TASKS STREAM.MSG.GET.KV_hocket-coordinators DIRECT.GET.EVENTS "
    "DIRECT.GET.TASKS DIRECT.GET.STEPS DIRECT.GET.EVENTS.hocket.event.rival.p.run-finished "
    "DIRECT.GET.STEPS.hocket.step.python.normal "
    "DIRECT.GET.KV_hocket-budgets.$KV.hocket-budgets.x CONSUMER.CREATE.EVENTS "
    "CONSUMER.CREATE.EVENTS.x CONSUMER.CREATE.EVENTS.x.hocket.event.acme.> "
    "CONSUMER.CREATE.STEPS.x.hocket.step.crm-lookup.normal CONSUMER.DURABLE.CREATE.EVENTS.x "
    "CONSUMER.DURABLE.CREATE.STEPS.step-crm-lookup-normal CONSUMER.DELETE.TASKS.intake "
    "CONSUMER.DELETE.STEPS.step-python-normal CONSUMER.LIST.STEPS CONSUMER.NAMES.EVENTS "
    f"CONSUMER.PAUSE.STEPS.step-python-normal CONSUMER.INFO.EVENTS.{RIVAL_CONSUMER} "
    f"CONSUMER.INFO.STEPS.step-python-normal CONSUMER.MSG.NEXT.EVENTS.{RIVAL_CONSUMER} "
    "CONSUMER.MSG.NEXT.TASKS.intake CONSUMER.MSG.NEXT.STEPS.step-python-normal "
    "CONSUMER.MSG.NEXT.STEPS.step-crm-lookup@gpu-normal CONSUMER.MSG.NEXT.USAGE.ledger "
    "CONSUMER.MSG.NEXT.LOG.x ACCOUNT.PURGE.HOCKET META.LEADER.STEPDOWN"
).split()
TENANTS_ONLY = "hocket.task.acme.p hocket.access.events.{key_id}".split()
WORKERS_ONLY = (
    "hocket.log.0.finished hocket.log.0.results hocket.dlq.step.acme "
    "hocket.worker.announced.crm-lookup hocket.worker.described.crm-lookup "
    "hocket.worker.journal.read.crm-lookup hocket.worker.journal.write.crm-lookup "
    "hocket.worker.lines.crm-lookup "
    "hocket.worker.consumers.crm-lookup hocket.gateway.call hocket.gateway.cancel "
    "$JS.API.CONSUMER.MSG.NEXT.STEPS.step-crm-lookup-normal "
    ""
    "$JS.ACK.STEPS.step-crm-lookup-normal.1.1.1.1.0"
).split()
HEARD_BY_NOBODY = (
    "> hocket.> hocket.*.> hocket.task.> hocket.task.acme.p hocket.log.> "
    "hocket.log.0.finished hocket.step.> hocket.step.crm-lookup.normal hocket.event.> "
    "hocket.event.acme.> hocket.event.rival.> hocket.usage hocket.call.* hocket.dlq.> "
    "hocket.probation.* hocket.worker.announced hocket.worker.described hocket.gateway.> "
    "hocket.gateway.call hocket.ledger.spent hocket.access.> hocket.access.keys _INBOX.> "
    "_INBOX.key.> _INBOX.key.*.> _INBOX.key.0123456789ab.> _INBOX.service.> "
    "_INBOX.service.coordinator.> _R_.> $JS.> $JS.API.> $JS.ACK.> $JS.EVENT.> $JS.FC.> "
    "$KV.> $KV.hocket-budgets.> $SYS.> $SYS.REQ.USER.AUTH $SYS.ACCOUNT.>"
).split()
HEARD_BY_WORKERS = ["hocket.cancel", "hocket.worker.asked"]
HIJACKS = (
    "hocket.task.rival.p",
    "hocket.task.acme.q",
    "hocket.log.0.accepted",
    "hocket.step.python.normal",
    "hocket.usage",
    "hocket.event.rival.p.run-finished",
    "$KV.hocket-coordinators.x",
    "$JS.API.STREAM.DELETE.TASKS",
    "$JS.API.STREAM.PURGE.EVENTS",
    "_INBOX.service.coordinator.x",
)
REFUSED_REPLY = "$JS.ACK.TASKS.intake.1.1.1.1.0"
"""What the server takes from nobody as a place for an answer."""


@dataclass
class Tap:
    """Everything that passes on the platform's side."""

    bus: Bus
    heard: list[Msg] = field(default_factory=list)

    async def hear(self, message: Msg) -> None:
        self.heard.append(message)

    async def told(self) -> list[Msg]:
        """Return what came since it was asked last; everything that was sent before has come."""
        done = self.bus.nc.new_inbox()
        await self.bus.nc.publish(done, b"")
        async with asyncio.timeout(BOUND_S):
            while not any(one.subject == done for one in self.heard):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        found, self.heard[:] = [one for one in self.heard if one.subject != done], []
        return found

    async def stored(self) -> dict[str, dict[str, int]]:
        """Return how many messages there are by stream and subject."""
        return {
            stream: dict((await self.bus.js.stream_info(stream, ">")).state.subjects or {})
            for stream in STREAMS
        }


@dataclass
class Scene:
    """Two guests on the platform of a test, and what passes there."""

    tap: Tap
    tenant: Guest
    worker: Guest


@pytest.fixture
async def scene(servers: EmbeddedServers, nats_url: str, database_url: str) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        rest: Rest = await stack.enter_async_context(running_rest(nats_url, database_url))
        await stack.enter_async_context(guests_welcome(servers, rest.book, hands_on=False))
        for token in ("python", "crm-lookup", "crm-lookup@gpu"):
            await make_consumers(rest.bus, token, 10.0)
        acme = await rest.make_key("developer", "acme")
        crm = await rest.make_key("worker", None, pools=("crm.lookup",))
        tap = Tap(rest.bus)
        await rest.bus.publish("hocket.step.python.normal", b"{}")
        await rest.bus.publish("hocket.event.rival.p.run-finished", b"{}")
        await rest.bus.subscribe(">", tap.hear)
        tenant = await stack.enter_async_context(guest(nats_url, acme))
        worker = await stack.enter_async_context(guest(nats_url, crm))
        yield Scene(tap, tenant, worker)


async def forge(one: Guest, subject: str, number: int, reply: str = "") -> None:
    body = json.dumps({**PUSHED, "batch": 1, "last_by_subj": "hocket.step.python.normal"}).encode()
    await one.client.publish(subject, body, reply=reply, headers={"Forged": str(number)})


async def test_no_forbidden_operation_on_the_wire_succeeds(scene: Scene) -> None:
    apis = [API + call for call in APIS]
    tried = 0
    for one, others in ((scene.tenant, WORKERS_ONLY), (scene.worker, TENANTS_ONLY)):
        await one.client.subscribe(f"{one.inbox}.>", cb=one.hear)
        await one.client.flush()
        await scene.tap.told()
        before = await scene.tap.stored()
        await scene.tap.told()
        for subject in (*OF_ALL, *apis, *others):
            for reply in ("", f"{one.inbox}.answer"):
                await forge(one, subject.format(key_id=one.key_id), tried, reply)
                tried += 1
        await one.client.flush()
        reached = await scene.tap.told()
        assert [message.subject for message in reached] == []
        assert await scene.tap.stored() == before
        assert [message.data for message in one.came] == [], "nothing is answered"
    print(f"{tried} forbidden operations: 0 reached the platform")
    assert tried >= 60


async def test_nothing_of_others_is_heard(scene: Scene) -> None:
    sent = [*OF_ALL, *WORKERS_ONLY, "hocket.event.acme.p.run-finished", "hocket.task.acme.p"]
    for one, more in ((scene.tenant, HEARD_BY_WORKERS), (scene.worker, [])):
        for subject in (*HEARD_BY_NOBODY, *more):
            await one.client.subscribe(subject, cb=one.hear)
        await one.client.flush()
        for subject in sent:
            if not subject.startswith("$"):
                await scene.tap.bus.nc.publish(subject, b"secret")
        await scene.tap.bus.nc.flush()
        await one.client.flush()
        await one.client.flush()  # what was routed before the first answer is here
        assert [message.subject for message in one.came] == []


async def test_an_answer_goes_nowhere_but_to_its_guest(scene: Scene) -> None:
    """A server answers a publisher, and gives messages to one that asks, wherever these say: it must not
    say there what they may not."""
    tenant, worker, tap = scene.tenant, scene.worker, scene.tap
    await tenant.client.request(f"hocket.access.events.{tenant.key_id}", b"", timeout=BOUND_S)
    for number in range(len(HIJACKS)):
        await tap.bus.publish("hocket.event.acme.p.run-finished", b"{}", msg_id=f"e{number}")
        await tap.bus.publish("hocket.step.crm-lookup.normal", b"{}", msg_id=f"s{number}")
    before = await tap.stored()
    hijacked = Tap(tap.bus)
    for subject in (*HIJACKS, REFUSED_REPLY):
        await tap.bus.subscribe(subject, hijacked.hear)
    for number, reply in enumerate((*HIJACKS, REFUSED_REPLY)):
        events = f"{API}CONSUMER.MSG.NEXT.EVENTS.key-{tenant.key_id}"
        steps = f"{API}CONSUMER.MSG.NEXT.STEPS.step-crm-lookup-normal"
        await tenant.client.publish("hocket.task.acme.p", b"{}", reply=reply)
        await tenant.client.publish(events, b'{"batch": 1}', reply=reply)
        await worker.client.publish(steps, b'{"batch": 1}', reply=reply)
        await worker.client.publish(
            "hocket.dlq.step.acme", b"{}", reply=reply, headers={"Nats-Msg-Id": f"d{number}"}
        )
    await tenant.client.flush()
    await worker.client.flush()
    after = await tap.stored()
    async with asyncio.timeout(BOUND_S):
        while after["TASKS"].get("hocket.task.acme.p") != len(HIJACKS):
            after = await tap.stored()
    after["TASKS"].pop("hocket.task.acme.p")
    assert after["GUEST_LETTERS"].pop("hocket.guest.letter.any") == len(HIJACKS)
    assert after == before
    await tap.told()  # what was sent before has come
    assert [one.subject for one in hijacked.heard] == []
