"""Runs followed live over a real NATS and Postgres: the tests tell what a coordinator would, and write
its rows; the last one has a real coordinator."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from hocket.admin.live import event_facts, live_events, streams
from hocket.admin.live.event_facts import EventFacts, Fact
from hocket.admin.live.live_events import ListFilter
from hocket.admin.requests.identity import Caller
from hocket.kit.process.limits.tenant_places import TenantPlaces
from hocket.schemas import subjects
from support.administration.live_rig import AT_MS, Heard, change, following, run_id, tell, tell_end
from support.coordinator_rig import Rig
from support.ledger_rig import until
from support.rest_rig import Rest, running_rest

BOUND_S = 60.0
CLIENTS = 200


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest, asyncio.timeout(BOUND_S):
        yield rest


def of_run(rest: Rest, number: int) -> str:
    return f"{rest.url}/v1/runs/{run_id(number)}/events"


def of_list(rest: Rest, query: str = "") -> str:
    return f"{rest.url}/v1/runs/events{query}"


async def is_let_in(rest: Rest) -> bool:
    async with rest.session.get(of_list(rest)) as answer:
        return answer.status == 200


async def insert(rest: Rest, number: int, log_seq: int = 0) -> None:
    """Write a running run, and how far the log of its partition is applied."""
    await rest.pool.execute(
        "INSERT INTO hocket.partition (partition, applied_seq) VALUES (0, $1)"
        " ON CONFLICT (partition) DO UPDATE SET applied_seq = $1",
        log_seq,
    )
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at)"
        " VALUES ($1, 0, 'default', 'greet', 1, 'running', 'standard', '{}', $2, $2)",
        run_id(number),
        datetime.fromtimestamp(AT_MS / 1_000, UTC),
    )


async def insert_step(rest: Rest, number: int, name: str, state: str) -> None:
    await rest.pool.execute(
        "INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at)"
        " VALUES ($1, $2, $2, 'python', 'step', $3, 1, $4)",
        run_id(number),
        name,
        state,
        datetime.fromtimestamp(AT_MS / 1_000, UTC),
    )


async def end(rest: Rest, number: int) -> None:
    await rest.pool.execute(
        "UPDATE hocket.run SET status = 'succeeded', finished_at = accepted_at, output = '{\"x\": 1}'"
        " WHERE run_id = $1",
        run_id(number),
    )
    await tell_end(rest.bus, number, output={"x": 1})


def states(events: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, str]]:
    return [(data.get("step", name), data.get("state") or data["status"]) for name, data in events]


async def test_who_follows_a_run_sees_it_as_it_is_and_each_change_until_its_end(rest: Rest) -> None:
    await insert(rest, 1, log_seq=7)
    await insert_step(rest, 1, "plan", "dispatched")
    async with following(rest.session, of_run(rest, 1)) as heard:
        assert states([await heard.next()]) == [("plan", "dispatched")]
        assert (await heard.next())[0] == "place"
        await tell(rest.bus, change(1, 7, steps=[("plan", "dispatched", 1)]), change(2, 7))
        await tell(
            rest.bus,
            change(2, 8, steps=[("other", "succeeded", 1)]),
            change(1, 8, steps=[("plan", "succeeded", 1), ("draft", "dispatched", 1)]),
        )
        await tell(rest.bus, change(1, 9, steps=[("draft", "succeeded", 1)]))
        await end(rest, 1)
        events = await heard.rest()

    assert states(events) == [
        ("plan", "succeeded"),  # what the rows had already (log place 7) is not told again
        ("draft", "dispatched"),
        ("draft", "succeeded"),
        ("run", "succeeded"),
    ]
    assert events[-1][1]["output"] == {"x": 1}


async def test_a_run_that_has_ended_is_shown_and_its_stream_ends(rest: Rest) -> None:
    await insert(rest, 1)
    await insert_step(rest, 1, "plan", "succeeded")
    await end(rest, 1)
    async with following(rest.session, of_run(rest, 1)) as heard:
        events = [one for one in await heard.rest() if one[0] != "place"]
    assert states(events) == [("plan", "succeeded"), ("run", "succeeded")]


async def test_the_end_shows_no_output_to_a_key_that_may_not_see_content(rest: Rest) -> None:
    await insert(rest, 1)
    key = await rest.make_key("viewer")
    headers = {"Authorization": f"Bearer {key}"}
    async with following(rest.session, of_run(rest, 1), **headers) as heard:
        assert (await heard.next())[0] == "place"
        await end(rest, 1)
        ((name, told),) = await heard.rest()
    assert (name, told["output"], told["withheld"]) == ("run", None, True)


async def test_lists_tell_what_is_wanted_of_the_own_tenant(rest: Rest) -> None:
    async with AsyncExitStack() as stack:
        everything, failed, acme = [
            await stack.enter_async_context(following(rest.session, of_list(rest, query)))
            for query in ("", "?status=failed", "?labels=customer%3Dacme&pipeline=greet")
        ]
        for heard in (everything, failed, acme):
            assert (await heard.next())[0] == "place"
        labels = {"customer": "acme"}
        await tell(rest.bus, change(1, 1, is_new=True, labels=labels), tenant="rival")
        await tell(rest.bus, change(2, 1, is_new=True, labels=labels), change(3, 1, is_new=True))
        await tell(rest.bus, change(2, 2, steps=[("plan", "dispatched", 1)]))
        await tell_end(rest.bus, 3, status="failed")
        await tell_end(rest.bus, 4, labels=labels, pipeline="other")
        await tell_end(rest.bus, 2, labels=labels)

        async def heard_of(heard: Heard, count: int) -> list[tuple[str, str]]:
            told = [(await heard.next())[1] for _ in range(count)]
            return [(one["run_id"], one["status"]) for one in told]

        assert await heard_of(everything, 5) == [
            (run_id(2), "running"),
            (run_id(3), "running"),
            (run_id(3), "failed"),
            (run_id(4), "succeeded"),
            (run_id(2), "succeeded"),
        ]
        assert await heard_of(failed, 1) == [(run_id(3), "failed")]
        assert await heard_of(acme, 2) == [(run_id(2), "running"), (run_id(2), "succeeded")]


async def test_a_page_says_in_its_address_since_when_it_misses_what_happened(rest: Rest) -> None:
    await insert(rest, 1)
    address = f"{rest.url}/console/live/runs/{run_id(1)}"
    async with following(rest.session, of_run(rest, 1)) as heard:
        while (await heard.next())[0] != "place":
            pass
        for place in (1, 2, 3):
            await tell(rest.bus, change(1, place, steps=[("plan", "dispatched", place)]))
        places = [(await heard.next(), heard.place)[1] for _ in range(3)]

    async def attempts(since: str, last: str | None = None) -> list[int]:
        async with following(rest.session, f"{address}?since={since}", last) as again:
            return [(await again.next())[1]["attempt"] for _ in (places if last is None else [1])]

    assert await attempts("0") == [1, 2, 3]
    assert await attempts("0", places[1]) == [3], "what the browser says itself is later"
    async with rest.session.get(f"{address}?since=now") as refused:
        assert refused.status == 422


async def test_many_clients_come_again_and_again_and_miss_nothing(rest: Rest) -> None:
    """Each of 200 follows a run of its own, and loses its connection after every sixth event."""
    for number in range(CLIENTS):
        await insert(rest, number)
    ready = asyncio.Barrier(CLIENTS + 1)

    async def client(number: int) -> list[int]:
        told: list[int] = []
        since: str | None = None
        while True:
            async with following(rest.session, of_run(rest, number), since) as heard:
                if since is None:
                    assert (await heard.next())[0] == "place"
                    since = heard.place
                    await ready.wait()
                for _ in range(3):
                    name, data = await heard.next()
                    since = heard.place
                    if name == "run":
                        return told
                    if name == "step":
                        told.append(data["attempt"])

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=rest.session.headers, connector=connector) as session:
        rest.session, own = session, rest.session
        clients = [asyncio.create_task(client(number)) for number in range(CLIENTS)]
        await ready.wait()
        for place in range(1, 11):
            every = [
                change(number, place, steps=[("plan", "dispatched", place)])
                for number in range(CLIENTS)
            ]
            for first in range(0, CLIENTS, 50):
                await tell(rest.bus, *every[first : first + 50])
        for number in range(CLIENTS):
            await end(rest, number)
        told = await asyncio.gather(*clients)
        rest.session = own
    assert told == [list(range(1, 11))] * CLIENTS
    consumers = await rest.bus.js.consumers_info(subjects.EVENTS)
    assert len([one for one in consumers if one.num_pending]) == 0


async def test_a_slow_client_harms_only_itself_and_goes_on_where_it_was(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_events, "MAX_QUEUED", 20)
    reads = asyncio.Event()
    real = streams._live

    async def slow(watch: live_events.Watch) -> Any:
        async for batch in real(watch):
            yield batch
            if len(watches) == 0:
                watches.append(watch)
            if watch is watches[0]:
                await reads.wait()

    watches: list[live_events.Watch] = []
    monkeypatch.setattr(streams, "_live", slow)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(following(rest.session, of_list(rest)))
        assert (await first.next())[0] == "place"
        await tell(rest.bus, change(0, 1, is_new=True))
        assert (await first.next())[1]["run_id"] == run_id(0)
        other = await stack.enter_async_context(following(rest.session, of_list(rest)))
        assert (await other.next())[0] == "place"
        for number in range(1, 51):
            await tell(rest.bus, change(number, number, is_new=True))
            assert (await other.next())[1]["run_id"] == run_id(number)
        assert len(watches[0].news) == 0
        reads.set()
        ((name, told),) = await first.rest()
        assert (name, "Last-Event-ID" in told["cure"]) == ("lagged", True)
        again = await stack.enter_async_context(following(rest.session, of_list(rest), first.place))
        missed = [(await again.next())[1]["run_id"] for _ in range(50)]
    assert missed == [run_id(number) for number in range(1, 51)]


async def test_who_missed_what_is_not_kept_is_told_to_load_again(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [await tell(rest.bus, change(number, 1, is_new=True)) for number in range(5)]
    await rest.bus.js.purge_stream(subjects.EVENTS, seq=places[3])
    for since in (str(places[0]), "999999"):
        async with following(rest.session, of_list(rest), since) as heard:
            name, told = await heard.next()
            assert (name, told["cure"][:6]) == ("reset", "Reload"), since
    monkeypatch.setattr(streams, "MAX_CATCH_UP", 1)
    async with following(rest.session, of_list(rest), str(places[2])) as heard:
        assert (await heard.next())[0] == "reset"


@pytest.mark.parametrize("since", ["0", "0.0", "0.7"])
async def test_a_place_before_all_facts_misses_none(rest: Rest, since: str) -> None:
    async with following(rest.session, of_list(rest), since) as heard:
        assert (await heard.next())[0] == "place"
        await tell(rest.bus, change(1, 1, is_new=True))
        assert (await heard.next())[1]["run_id"] == run_id(1)
    async with following(rest.session, of_list(rest), since) as heard:
        assert (await heard.next())[1]["run_id"] == run_id(1)


async def test_clients_that_do_not_read_what_they_missed_keep_nobody_from_it(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_facts, "PORTION_BYTES", 1)
    place = await tell(rest.bus, change(0, 1, is_new=True))
    for number in range(1, 4):
        await tell(rest.bus, change(number, 1, is_new=True))
    caller = Caller("default", await rest.book.bearer(rest.key), "")
    context = rest.app.state.context
    await context.live.until_attached()
    async with AsyncExitStack() as stack:
        for _ in range(2 * live_events.CATCHING_UP_AT_ONCE):
            told = streams.follow_list(context, caller, ListFilter(), (place - 1, None))
            await stack.enter_async_context(aclosing(told))
            assert b"event: run" in await anext(told), "it waits here for its client"
        async with following(rest.session, of_list(rest), str(place - 1)) as heard:
            missed = [(await heard.next())[1]["run_id"] for _ in range(4)]
    assert missed == [run_id(number) for number in range(4)]


async def test_a_tenant_that_catches_up_leaves_places_for_others() -> None:
    places = TenantPlaces(4, 2)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(places.place("loud"))
        waiting = asyncio.create_task(stack.enter_async_context(places.place("loud")))
        await asyncio.sleep(0)
        async with asyncio.timeout(BOUND_S), places.place("quiet"):
            assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})
    assert places._tenants == {}


async def test_places_in_a_fact_are_told_apart(rest: Rest) -> None:
    place = await tell(rest.bus, *[change(number, 1, is_new=True) for number in range(4)])
    async with following(rest.session, of_list(rest), f"{place}.1") as heard:
        told = [(await heard.next())[1]["run_id"] for _ in range(2)]
        assert told == [run_id(2), run_id(3)]


async def test_streams_have_a_limit_of_their_own(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_events, "MAX_CLIENTS", 4)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            heard = await stack.enter_async_context(following(rest.session, of_list(rest)))
            assert (await heard.next())[0] == "place"
        refused = await rest.get("/v1/runs/events")
        assert (refused.status, refused.body["code"]) == (429, "tenant_live_full")
        assert refused.headers["Retry-After"]
    await until(lambda: is_let_in(rest))  # a client that left has left its place


async def test_an_unreadable_place_is_refused(rest: Rest) -> None:
    refused = await rest.get("/v1/runs/events", headers={"Last-Event-ID": "yesterday"})
    assert (refused.status, refused.body["field"]) == (422, "last-event-id")


async def test_reading_goes_on_where_it_was_when_the_connection_was_away(rest: Rest) -> None:
    heard: list[Fact] = []
    came = asyncio.Event()

    def note(fact: Fact) -> None:
        heard.append(fact)
        came.set()

    facts = EventFacts(note, lambda: None)
    facts.want()
    reading = asyncio.create_task(facts.run(rest.bus))
    await facts.attached.wait()
    places = [await tell(rest.bus, change(1, 1))]
    await came.wait()
    facts._broken.set()
    places += [await tell(rest.bus, change(1, number)) for number in (2, 3)]
    while len(heard) < 3:
        came.clear()
        await came.wait()
    reading.cancel()
    await asyncio.wait({reading})
    assert [fact.seq for fact in heard] == places


async def test_nothing_is_read_while_nobody_follows_and_who_comes_again_misses_nothing(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_events, "REST_AFTER_S", 0.0)
    attached = rest.app.state.context.live._facts.attached
    assert not attached.is_set()
    async with following(rest.session, of_list(rest)) as heard:
        assert (await heard.next())[0] == "place"
        assert attached.is_set()
        place = heard.place
    while attached.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await tell(rest.bus, change(1, 1, is_new=True))
    again = {"Last-Event-ID": place}
    async with following(rest.session, of_list(rest), **again) as heard:
        assert (await heard.next())[1]["run_id"] == run_id(1)
        await tell(rest.bus, change(2, 2, is_new=True))
        told = [await heard.next(), await heard.next()]
    assert [data["run_id"] for name, data in told if name == "run"] == [run_id(2)]


async def test_a_coordinator_tells_each_change_that_it_committed(rest: Rest) -> None:
    rig = Rig(rest.bus, rest.pool)
    await rig.open()
    rig.holding.set()
    async with rig.coordinator("one"), AsyncExitStack() as stack:
        listed = await stack.enter_async_context(following(rest.session, of_list(rest)))
        assert (await listed.next())[0] == "place"
        told = await rig.publish("default", "mine")
        name, notice = await listed.next()
        assert (name, notice["status"], notice["pipeline"]) == ("run", "running", "p")
        url = f"{rest.url}/v1/runs/{notice['run_id']}/events"
        heard = await stack.enter_async_context(following(rest.session, url))
        seen: list[tuple[str, dict[str, Any]]] = []
        while ("b", "dispatched") not in states(seen):
            event = await heard.next()
            seen += [event] if event[0] != "place" else []
        await rest.post(f"/v1/runs/{notice['run_id']}/cancel", {"reason": "seen enough"})
        seen += [event for event in await heard.rest() if event[0] != "place"]
        await told
        assert (await listed.next())[1]["status"] == "cancelled"
    said = states(seen)
    assert ("a", "succeeded") in said
    assert said.index(("a", "succeeded")) < said.index(("b", "dispatched"))
    assert said[-2:] == [("b", "cancelled"), ("run", "cancelled")]
    steps = (await rest.get(f"/v1/runs/{notice['run_id']}/steps")).body["steps"]
    last = {data["step"]: data for name, data in seen if name == "step"}
    for step in steps:
        shown = last[step["step"]]
        assert {key: step[key] for key in shown if not key.endswith("_at")} == {
            key: value for key, value in shown.items() if not key.endswith("_at")
        }, json.dumps([step, shown])
