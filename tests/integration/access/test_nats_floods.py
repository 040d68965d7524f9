"""Workers with a key that post without end, on a real server: others' runs and letters do not feel it,
and what was accepted is handed on."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from hocket.coordinator.guests import posts
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats import dead_letters
from hocket.kit.nats.streams import KEY_LETTERS, KEY_RESULTS, POOL_ANNOUNCEMENTS
from hocket.schemas import subjects
from hocket.schemas.access.nats_table import EVENTS_ASKED
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import AttemptFinished
from support.access.nats_guests import Guest, guest, guests_welcome
from support.coordinator_rig import Rig
from support.rest_rig import Rest, running_rest

BOUND_S = 30.0
AT_ONCE = 500
FLOODS = 20
"""Times AT_ONCE: far more than a key has room for."""


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


async def flood(one: Guest, subject: str, body: Callable[[int], bytes], times: int) -> None:
    for number in range(times * AT_ONCE):
        await one.client.publish(subject, body(number))
        if number % AT_ONCE == 0:
            await one.client.flush()
    await one.client.flush()


@asynccontextmanager
async def flooding(one: Guest, subject: str, body: Callable[[int], bytes]) -> AsyncIterator[None]:
    """Publish as fast as the server reads, until the block ends; the block begins in the middle."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def go_on() -> None:
        while not ended.is_set():
            await flood(one, subject, body, 2)
            begun.set()

    task = asyncio.create_task(go_on())
    try:
        await asyncio.wait_for(begun.wait(), BOUND_S)
        yield
    finally:
        ended.set()  # a flush that is cancelled breaks the client
        await task


def forged(number: int) -> bytes:
    return AttemptFinished(run_id=f"r{number}", step="a", attempt=1).model_dump_json().encode()


def garbage(_number: int) -> bytes:
    return b'{"x":"' + b"a" * 200 + b'"}'


async def stored(rest: Rest, stream: str) -> int:
    return (await rest.bus.js.stream_info(stream)).state.messages


async def test_runs_end_while_a_worker_floods_results(
    rest: Rest,
    servers: EmbeddedServers,
    nats_url: str,
    database_url: str,
) -> None:
    async with (
        guests_welcome(servers, rest.book),
        asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool,
    ):
        rig = Rig(rest.bus, pool)
        await rig.open()
        key = await rest.make_key("worker", None, pools=("crm.lookup",))
        async with rig.coordinator("c1"), guest(nats_url, key) as worker:
            own = subjects.guest_result(worker.key_id)
            for subject in ("hocket.log.0.results", own):
                async with flooding(worker, subject, garbage):
                    end = await rig.ends("default", subject)
                    assert end["status"] == "succeeded"
        log = (await rest.bus.js.stream_info(subjects.LOG)).state
        assert log.last_seq < AT_ONCE, "what cannot be read did not reach it"


async def test_of_a_flood_a_key_has_a_small_place_and_the_log_nothing(
    rest: Rest, servers: EmbeddedServers, nats_url: str
) -> None:
    async with guests_welcome(servers, rest.book, hands_on=False):
        keys = [await rest.make_key("worker", None, pools=("crm.lookup",)) for _ in range(2)]
        url = nats_url
        async with guest(url, keys[0]) as hostile, guest(url, keys[1]) as other:
            for subject in ("hocket.log.3.results", subjects.guest_result(hostile.key_id)):
                await flood(hostile, subject, garbage, 4)
            for number in range(4):
                await flood(hostile, f"hocket.dlq.step.t{number}", garbage, 1)
            ack = await other.client.jetstream().publish(
                subjects.guest_result(other.key_id), forged(1)
            )
            assert ack.stream == subjects.GUEST_RESULTS
        assert await stored(rest, subjects.LOG) == 0
        assert await stored(rest, subjects.GUEST_RESULTS) == 2 * KEY_RESULTS + 1
        assert await stored(rest, subjects.GUEST_LETTERS) == KEY_LETTERS


async def test_what_was_accepted_of_a_worker_beyond_its_rate_is_handed_on_later(
    rest: Rest, servers: EmbeddedServers, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posts, "RESULTS_PER_S", 20.0)
    async with guests_welcome(servers, rest.book, hands_on=True):
        key = await rest.make_key("worker", None, pools=("crm.lookup",))
        async with guest(nats_url, key) as worker:
            js = worker.client.jetstream()
            for number in range(60):  # of which 40 at once
                headers = {"Nats-Msg-Id": f"m{number}"}
                await js.publish(
                    subjects.guest_result(worker.key_id), forged(number), headers=headers
                )
        async with asyncio.timeout(BOUND_S):
            while await stored(rest, subjects.GUEST_RESULTS):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await stored(rest, subjects.LOG) == 60


async def test_few_announcements_of_a_flood_are_heard(
    rest: Rest, servers: EmbeddedServers, nats_url: str
) -> None:
    heard: list[str] = []

    async def hear(message: Msg) -> None:
        heard.append(message.subject)

    def announced(number: int) -> bytes:
        return json.dumps({"worker": f"w{number}", "slots": {"crm.lookup": 1}}).encode()

    async with guests_welcome(servers, rest.book):
        await rest.bus.subscribe(f"{subjects.WORKER_ANNOUNCED}.>", hear)
        key = await rest.make_key("worker", None, pools=("crm.lookup", "crm.score"))
        async with guest(nats_url, key) as worker:
            await flood(worker, "hocket.worker.announced.crm-lookup", announced, FLOODS)
            await worker.client.publish("hocket.worker.announced.crm-score", announced(1))
            async with asyncio.timeout(BOUND_S):
                while "hocket.worker.announced.crm-score" not in heard:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
    assert 0 < heard.count("hocket.worker.announced.crm-lookup") < FLOODS * AT_ONCE / 2
    assert POOL_ANNOUNCEMENTS < FLOODS * AT_ONCE / 2


async def test_a_workers_letters_are_kept_and_a_flood_pushes_out_none(
    rest: Rest, servers: EmbeddedServers, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posts, "KEY_LETTER_BYTES", 1024 * 1024)
    error = ErrorInfo(code="x", message="why")
    where = subjects.step("crm.lookup", "normal")
    await dead_letters.bury(
        rest.bus, "step", subject=where, payload=b'{"tenant":"rival"}', headers=None, error=error
    )
    async with guests_welcome(servers, rest.book):
        key = await rest.make_key("worker", None, pools=("crm.lookup",))
        async with guest(nats_url, key) as worker:
            body = b'{"tenant":"acme","x":"' + b"x" * 200_000 + b'"}'
            for _ in range(60):
                await worker.client.publish("hocket.dlq.step.rival", body)
            await worker.client.flush()
        async with asyncio.timeout(BOUND_S):
            while await stored(rest, subjects.DLQ) < 6:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    kept = await dead_letters.list_(rest.bus)
    assert [one.tenant for one in kept].count("rival") == 1
    assert len(kept) == 6, "five of 200 kB, and the rival's"
    assert 0 < await stored(rest, subjects.GUEST_LETTERS) <= KEY_LETTERS


async def test_who_asks_without_end_loses_his_connection_before_the_server_has_no_memory(
    rest: Rest, servers: EmbeddedServers, nats_url: str
) -> None:
    """For a question a server remembers the way of its answer; who is let in again later is told why."""
    async with guests_welcome(servers, rest.book, per_s=500.0, burst=2_000.0):
        key, other = [await rest.make_key("admin", tenant) for tenant in ("acme", "rival")]
        async with guest(nats_url, key) as hostile, guest(nats_url, other) as calm:
            name = (await hostile.client.request(f"{EVENTS_ASKED}.{hostile.key_id}")).data.decode()
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{subjects.EVENTS}.{name}"
            ask = b'{"batch":1,"no_wait":true}'
            async with asyncio.timeout(BOUND_S):
                # a client whose last bytes find no connection is closed, and tells nobody
                while not (hostile.lost.is_set() or hostile.client.is_closed):
                    for number in range(AT_ONCE):
                        with suppress(NatsError):
                            await hostile.client.publish(
                                subject, ask, reply=f"{hostile.inbox}{number}"
                            )
                    await asyncio.sleep(0.01)
            assert calm.client.is_connected
            with pytest.raises(NatsError):
                async with guest(nats_url, key):
                    pass
            async with guest(nats_url, other):
                pass


async def test_events_are_not_asked_for_for_longer_than_their_answer_finds_its_way(
    rest: Rest, servers: EmbeddedServers, nats_url: str
) -> None:
    async with guests_welcome(servers, rest.book):
        key = await rest.make_key("admin", "acme")
        async with guest(nats_url, key) as reader:
            name = (await reader.client.request(f"{EVENTS_ASKED}.{reader.key_id}")).data.decode()
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{subjects.EVENTS}.{name}"
            asked = {"batch": 1, "expires": 56_000_000_000}
            refused = await reader.client.request(subject, json.dumps(asked).encode(), timeout=10)
            assert refused.headers is not None
            assert "MaxRequestExpires" in refused.headers["Description"]
