"""Lists that are open in the console: told of what changed, together, and by one reading for all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from hocket.admin.live import list_feeds
from hocket.admin.runs import reads
from support.administration.live_rig import Heard, change, following, run_id, tell, tell_end
from support.administration.schedule_rig import add_run
from support.rest_rig import Rest, bearer, running_rest

WAIT_S = 20.0


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


@pytest.fixture
async def session(rest: Rest) -> AsyncIterator[aiohttp.ClientSession]:
    headers = bearer(await rest.make_key("viewer"))
    async with aiohttp.ClientSession(rest.url, headers=headers) as session:
        yield session


def open_list(session: aiohttp.ClientSession, query: str = "") -> Any:
    return following(session, f"/console/live/runs?{query}")


async def rows(heard: Heard) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_S):
        name, told = await heard.next()
    assert name == "rows"
    return told


async def test_all_who_have_a_list_open_are_told_by_one_reading(
    rest: Rest, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    real = reads.list_runs

    async def counted(pool: Any, tenant: str, wanted: Any, *rest: Any) -> Any:
        read.append(wanted)
        return await real(pool, tenant, wanted, *rest)

    monkeypatch.setattr(reads, "list_runs", counted)
    await add_run(rest, run_id(1))
    async with AsyncExitStack() as stack:
        every = [await stack.enter_async_context(open_list(session)) for _ in range(5)]
        await tell(rest.bus, change(1, 1, is_new=True))
        told = [await rows(heard) for heard in every]
    assert len(read) == 1
    assert told[0]["lines"].count("<tr") == 1
    assert {one["lines"] for one in told} == {told[0]["lines"]}
    assert f'data-run="{run_id(1)}" data-fits' in told[0]["lines"]


async def test_what_no_longer_fits_a_list_is_told_without_being_offered(
    rest: Rest, session: aiohttp.ClientSession
) -> None:
    await add_run(rest, run_id(1), "failed")
    async with open_list(session, "status=running") as heard:
        await tell_end(rest.bus, 1, status="failed")
        lines = (await rows(heard))["lines"]
    assert f'data-run="{run_id(1)}">' in lines


async def test_lists_of_other_pipelines_labels_and_tenants_hear_nothing(
    rest: Rest, session: aiohttp.ClientSession
) -> None:
    await add_run(rest, run_id(1))
    await add_run(rest, run_id(2))
    async with (
        open_list(session, "pipeline=other") as pipeline,
        open_list(session, "labels=team%3Dred") as labels,
        open_list(session) as every,
    ):
        await tell(rest.bus, change(1, 1, is_new=True))
        await tell(rest.bus, change(9, 1, is_new=True), tenant="rival")
        assert (await rows(every))["lines"].count("<tr") == 1
        await tell(rest.bus, change(2, 2, is_new=True, labels={"team": "red"}), pipeline="other")
        for heard in (pipeline, labels):
            assert run_id(2) in (await rows(heard))["lines"]


async def test_only_the_latest_of_very_many_changes_are_told_and_that_others_were_left_out(
    rest: Rest, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_feeds, "MAX_RUNS", 3)
    for number in range(1, 8):
        await add_run(rest, run_id(number))
    async with open_list(session) as heard:
        await tell(rest.bus, *(change(number, number, is_new=True) for number in range(1, 8)))
        told = await rows(heard)
    assert told["left_out"] is True
    assert [run_id(number) in told["lines"] for number in range(1, 8)] == [False] * 4 + [True] * 3


async def test_one_tenants_many_lists_take_no_time_of_anothers(
    rest: Rest, session: aiohttp.ClientSession
) -> None:
    feeds = rest.app.state.context.lists
    rival = bearer(await rest.make_key("viewer", "rival"))
    async with (
        AsyncExitStack() as stack,
        following(session, "/console/live/runs", **rival),
    ):
        for number in range(9):
            await stack.enter_async_context(open_list(session, f"labels=team%3D{number}"))
        shares = [feeds._share(tenant) for tenant in ("default", "rival")]
    assert shares == [list_feeds.SHARE / 2 / 9, list_feeds.SHARE / 2]


async def test_a_list_that_nobody_has_open_any_more_costs_nothing(
    rest: Rest, session: aiohttp.ClientSession
) -> None:
    feeds = rest.app.state.context.lists
    async with open_list(session), open_list(session):
        assert len(feeds._feeds) == 1
    async with asyncio.timeout(WAIT_S):
        while feeds._feeds:  # noqa: ASYNC110  # until the server has noticed
            await asyncio.sleep(0.01)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "list-feed"]


async def test_a_list_that_cannot_be_read_is_told_of_what_changes_next(
    rest: Rest, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = reads.list_runs, asyncio.Event()

    async def away(*_given: Any) -> Any:
        failed.set()
        raise TimeoutError

    await add_run(rest, run_id(1))
    async with open_list(session) as heard:
        monkeypatch.setattr(reads, "list_runs", away)
        await tell(rest.bus, change(1, 1, is_new=True))
        await failed.wait()
        monkeypatch.setattr(reads, "list_runs", real)
        await tell_end(rest.bus, 1)
        assert run_id(1) in (await rows(heard))["lines"]


async def test_what_is_wrong_with_the_filters_is_an_answer(session: aiohttp.ClientSession) -> None:
    async with session.get("/console/live/runs?min_cost=much") as answer:
        assert answer.status == 422
    async with session.get("/console/live/runs?contains=x") as answer:
        assert answer.status == 403
