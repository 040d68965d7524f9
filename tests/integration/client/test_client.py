"""The client against a platform: what it submits, reads, follows, and what it does where connections
drop."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from decimal import Decimal
from urllib.parse import urlsplit

import pytest

from hocket.cli.local.admin_key import read_admin_key
from hocket.cli.local.platform import Platform
from hocket.client import (
    ApiUnreachable,
    AsyncHocket,
    Hocket,
    RequestRefused,
    RunNotSucceeded,
)
from hocket.schemas.administration.live import RunNotice
from hocket.schemas.rest import RunReceipt, RunResult, StepDetail

BOUND_S = 60
UNKNOWN = "r" + 24 * "0"
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
GREET = {"pipeline": "greet", "nodes": {"a": {**ECHO, "with": {"name": "{{ input.name }}"}}}}
FAILS = {
    "pipeline": "fails",
    "nodes": {"a": {"type": "python", "handler": "hocket.workers.builtin:fail"}},
}


@pytest.fixture(scope="module")
async def platform(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Platform]:
    async with Platform(tmp_path_factory.mktemp("client") / "d") as platform:
        yield platform


@pytest.fixture
async def client(platform: Platform) -> AsyncIterator[AsyncHocket]:
    async with connected(platform) as client, asyncio.timeout(BOUND_S):
        for pipeline in (GREET, FAILS):
            await client.pipelines.apply(pipeline)
        yield client


def connected(platform: Platform, url: str | None = None) -> AsyncHocket:
    return AsyncHocket(url or platform.api_url, key=read_admin_key(platform.data_dir))


async def test_a_task_is_run_and_its_result_comes(client: AsyncHocket) -> None:
    run = await client.run("greet", {"name": "Ada"}, labels={"customer": "a b"})
    assert (run.status, run.output["name"]) == ("succeeded", "Ada")
    found = [one.run_id async for one in client.runs.each(labels={"customer": "a b"}, limit=1)]
    assert found == [run.run_id]


async def test_the_same_key_is_the_same_run(client: AsyncHocket) -> None:
    first = await client.runs.submit("greet", input={"name": "x"}, idempotency_key="once")
    again = await client.runs.submit("greet", input={"name": "x"}, idempotency_key="once")
    other = await client.runs.submit("greet", input={"name": "x"})
    assert first.run_id == again.run_id != other.run_id


async def test_a_run_that_fails_says_why(client: AsyncHocket) -> None:
    with pytest.raises(RunNotSucceeded) as failed:
        await client.run("fails")
    assert failed.value.run.status == "failed"
    assert failed.value.run.error is not None


async def test_a_refusal_names_the_field(client: AsyncHocket) -> None:
    with pytest.raises(RequestRefused) as refused:
        await client.runs.submit("greet", deadline_ms=-1)
    assert refused.value.status == 422
    assert refused.value.error.field == "deadline_ms"
    with pytest.raises(RequestRefused) as refused:
        await client.runs.get(UNKNOWN)
    assert refused.value.status == 404


async def test_all_pages_of_a_list_come_once(client: AsyncHocket) -> None:
    labels = {"case": "pages"}
    runs = [await client.runs.submit("greet", input={"name": "x"}, labels=labels) for _ in range(7)]
    for one in runs:
        await client.result(one.run_id)
    found = [one.run_id async for one in client.runs.each(labels=labels, limit=2)]
    assert sorted(found) == sorted(one.run_id for one in runs)


async def test_a_run_is_followed_to_its_end(client: AsyncHocket) -> None:
    taken = await client.runs.submit("greet", input={"name": "Ada"})
    events = [event async for event in client.follow(taken.run_id)]
    assert isinstance(events[-1], RunResult)
    assert events[-1].status == "succeeded"
    steps = [event for event in events if isinstance(event, StepDetail)]
    assert {step.step for step in steps} == {"a"}
    assert steps[-1].state == "succeeded"


async def test_two_runs_are_compared_node_by_node(platform: Platform, client: AsyncHocket) -> None:
    first, same, other = [await client.run("greet", {"name": name}) for name in ("x", "x", "y")]
    (node,) = (await client.runs.compare(first.run_id, same.run_id)).nodes
    assert (node.node, node.differs, node.first) == ("a", (), False)
    found = await client.runs.compare(first.run_id, other.run_id)
    assert (found.a.run_id, found.b.run_id) == (first.run_id, other.run_id)
    assert (found.nodes[0].differs, found.nodes[0].first) == (("input", "output"), True)
    failed = await client.runs.submit("fails")
    with pytest.raises(RunNotSucceeded):
        await client.result(failed.run_id)
    found = await client.runs.compare(first.run_id, failed.run_id)
    assert "state" in found.nodes[0].differs

    viewer = await client.keys.create("a viewer", "viewer")
    async with AsyncHocket(platform.api_url, key=viewer.key) as blind:
        found = await blind.runs.compare(first.run_id, other.run_id)
    assert (found.withheld, found.nodes[0].differs) == (True, ())


async def test_another_writer_is_noticed(client: AsyncHocket) -> None:
    task = {"pipeline": "greet", "input": {"name": "x"}}
    made = await client.schedules.put("hourly", "0 * * * *", task, if_none_match="*")
    await client.schedules.pause("hourly", if_match=made.revision)
    with pytest.raises(RequestRefused) as refused:
        await client.schedules.delete("hourly", if_match=made.revision)
    assert refused.value.status == 412
    assert await client.schedules.delete("hourly") is None


async def test_without_asyncio_it_does_the_same(platform: Platform, client: AsyncHocket) -> None:
    def play() -> tuple[str, list[str], str]:
        with Hocket(platform.api_url, key=read_admin_key(platform.data_dir)) as hocket:
            run = hocket.run("greet", {"name": "Bob"}, labels={"case": "sync"})
            found = [one.run_id for one in hocket.runs.each(labels={"case": "sync"})]
            with pytest.raises(RequestRefused) as refused:
                hocket.runs.get(UNKNOWN)
            assert found == [run.run_id]
            return run.output["name"], found, refused.value.error.code

    name, _, code = await asyncio.to_thread(play)
    assert (name, code) == ("Bob", "run_unknown")


async def test_a_server_that_is_away_is_named() -> None:
    async with AsyncHocket("http://127.0.0.1:1") as client:
        with pytest.raises(ApiUnreachable, match=r"http://127\.0\.0\.1:1 did not answer"):
            await client.runs.signal("r", "go")  # not sent again: it may have come


# ---- connections that drop -----------------------------------------------------------------------


class Line:
    """A TCP line to the API that can be cut: in front of an answer, or in the middle of one."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._streams: list[asyncio.StreamWriter] = []
        self.answered = asyncio.Event()
        self.swallows = 0
        """So many answers more do not arrive."""
        self.swallowed = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._target.hostname is not None
        behind, before = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._streams += [writer, before]
        await asyncio.gather(self._copy(reader, before), self._copy(behind, writer, answers=True))

    def cut(self) -> None:
        for stream in self._streams:
            stream.transport.abort()
        self._streams.clear()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if answers and self.swallows:
                    self.swallows -= 1
                    self.swallowed += 1
                    self.cut()
                    return
                writer.write(data)
                await writer.drain()
                if answers:
                    self.answered.set()
        writer.close()


@asynccontextmanager
async def line_to(platform: Platform) -> AsyncIterator[tuple[Line, str]]:
    line = Line(platform.api_url)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    async with server:
        yield line, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        line.cut()


async def test_a_task_whose_answer_was_lost_is_one_run(
    platform: Platform, client: AsyncHocket
) -> None:
    async with line_to(platform) as (line, url), connected(platform, url) as over:
        line.swallows = 2
        taken = await over.runs.submit("greet", input={"name": "x"}, labels={"case": "lost"})
        assert isinstance(taken, RunReceipt)
        assert line.swallowed == 2
    await client.result(taken.run_id)
    found = [one.run_id async for one in client.runs.each(labels={"case": "lost"})]
    assert found == [taken.run_id]


async def test_tasks_whose_answer_was_lost_are_one_run_each(
    platform: Platform, client: AsyncHocket
) -> None:
    labels = {"case": "lost together"}
    tasks = [{"pipeline": "greet", "input": {"name": "x"}, "labels": labels} for _ in range(3)]
    async with line_to(platform) as (line, url), connected(platform, url) as over:
        line.swallows = 1
        taken = await over.bulk.submit(tasks)
        assert line.swallowed == 1
        ended = [(await over.result(one.run_id or "")).run_id for one in taken.runs]
    found = [one.run_id async for one in client.runs.each(labels=labels)]
    assert sorted(found) == sorted(set(ended))
    assert len(found) == len(tasks)


async def test_an_amount_inside_a_task_is_taken_however_it_is_written(client: AsyncHocket) -> None:
    task = {"pipeline": "greet", "input": {"name": "x"}, "budget_usd": Decimal("1E+2")}
    put = await client.schedules.put("rich", "0 6 * * *", task)
    assert put.task.budget_usd == 100
    assert (await client.bulk.submit([task])).accepted == 1
    await client.schedules.delete("rich")
    assert (await client.runs.list(labels={}, limit=1)).runs


async def test_runs_are_followed_over_connections_that_drop(
    platform: Platform, client: AsyncHocket
) -> None:
    """Each run is told once when it is accepted and once when it ends, whatever drops meanwhile."""
    async with line_to(platform) as (line, url), connected(platform, url) as over:
        told: Counter[tuple[str, str]] = Counter()
        submitted: list[str] = []
        async with aclosing(over.follow_all(labels={"case": "drops"})) as events:
            submitting = asyncio.create_task(submit_and_cut(client, line, submitted))
            async for event in events:
                assert isinstance(event, RunNotice)
                told[event.run_id, "ended" if event.priority is None else "accepted"] += 1
                if submitting.done() and len(told) == 2 * len(submitted):
                    break
        await submitting
    assert set(told) == {(run_id, s) for run_id in submitted for s in ("accepted", "ended")}
    assert set(told.values()) == {1}


async def submit_and_cut(client: AsyncHocket, line: Line, submitted: list[str]) -> None:
    await line.answered.wait()
    for number in range(12):
        taken = await client.runs.submit("greet", input={"name": "x"}, labels={"case": "drops"})
        submitted.append(taken.run_id)
        if number % 4 == 3:
            line.cut()
