"""The committer over a real Postgres that refuses rows: their run ends, every other is written."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.ends.aborting import closed
from hocket.coordinator.core.run.faults import RunNotStorable, reason_of
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.core.time.duration_estimates import Estimate
from hocket.coordinator.core.time.pipeline_forecasts import KeptEstimate
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.storage import committer as module
from hocket.coordinator.storage.committer import Committer
from hocket.coordinator.storage.pending_changes import Ended
from hocket.coordinator.storage.store import Store
from hocket.coordinator.storage.tenure import Tenure
from hocket.kit.process.lifecycle import Health
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import RunParent
from support.run_player import Play, python
from support.runs.made import altered, with_step

pytestmark = pytest.mark.plain  # its runs and steps are copies of others

BOUND_S = 30


class Watched(Health):
    """Says when a component was reported not to be well."""

    def __init__(self) -> None:
        super().__init__()
        self.unwell = asyncio.Event()

    def report(self, component: str, ok: bool, detail: str = "") -> None:
        super().report(component, ok, detail)
        if not ok:
            self.unwell.set()


@dataclass
class Rig:
    """One committer, its tenure of partition 0, and what followed its commits."""

    store: Store
    pool: asyncpg.Pool
    committer: Committer
    health: Watched
    tenure: Tenure = field(init=False)
    told: list[tuple[str, str]] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    seq: int = 0

    async def own(self, name: str = "a") -> None:
        offset = await self.store.acquire(0, name)
        self.seq = offset.applied_seq
        self.tenure = self.committer.open(0, offset, lost=lambda: None, refused=self.refused)

    def refused(self, run: Run, error: Exception, late: bool) -> Ended | None:
        self.set_aside.append(run.run_id)
        if late:
            return None
        info = RunNotStorable(reason=reason_of(error)).info()
        outcome = closed(run, info, now_ms=run.accepted_at_ms + 5)
        return Ended(outcome.run, outcome.changed, partial(self.tell, outcome.run))

    def tell(self, run: Run) -> None:
        self.told.append((run.run_id, str(run.status)))

    def add(self, run: Run, *, first: bool = True, attempts: Any = (), changed: Any = None) -> None:
        self.tenure.add(
            run,
            changed=run.steps.values() if changed is None else [run.steps[key] for key in changed],
            run_changed=changed is None,
            first=first,
            attempts=list(attempts),
            urgent=False,
        )
        self.tenure.after_commit(partial(self.tell, run), run_id=run.run_id)
        self.seq += 1
        self.tenure.applied(self.seq, f"m{self.seq}", 100)

    async def flushed(self) -> None:
        async with asyncio.timeout(BOUND_S):
            await self.tenure.flush()

    async def rows(self) -> dict[str, Any]:
        rows = await self.pool.fetch("SELECT * FROM hocket.run")
        return {row["run_id"]: row for row in rows}

    async def steps(self, run_id: str) -> dict[str, str]:
        rows = await self.pool.fetch("SELECT key, state FROM hocket.step WHERE run_id = $1", run_id)
        return {row["key"]: row["state"] for row in rows}

    async def applied_seq(self) -> int:
        seq: int = await self.pool.fetchval(
            "SELECT applied_seq FROM hocket.partition WHERE partition = 0"
        )
        return seq


@pytest.fixture
async def rig(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)
    async with asyncpg.create_pool(database_url, min_size=1, max_size=3) as pool:
        health = Watched()
        store = Store(pool)
        committer = Committer(store, health, CoordinatorMetrics(CollectorRegistry()))
        rig = Rig(store, pool, committer, health)
        await rig.own()
        running = asyncio.create_task(committer.run())
        yield rig
        running.cancel()
        await asyncio.wait({running})


def a_run(run_id: str, **fields: Any) -> Run:
    play = Play({"a": python(), "b": python()}, run_id=run_id)
    return altered(play.run, **fields)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


BAD_ERROR = ErrorInfo(code="c", message="").model_copy(update={"message": "half \ud800 of a pair"})
BAD_PARENT = RunParent(run_id="p", step="s", attempt=1, partition=0).model_copy(
    update={"step": "\ud800"}
)
REFUSED = {
    "half a surrogate pair in a step's input": lambda run: with_step(run, input={"x": "\ud800"}),
    "half a surrogate pair in an error": lambda run: with_step(run, error=BAD_ERROR),
    "NUL in traceparent": lambda run: altered(run, traceparent="00-\x00"),
    "NUL in the idempotency key": lambda run: altered(run, idempotency_key="k\x00"),
    "half a surrogate pair in reply-to": lambda run: altered(run, reply_to="\udcff"),
    "a budget with 20,000 digits": lambda run: altered(run, budget_usd=Decimal("1e-20000")),
    "a deadline that is no time": lambda run: altered(run, deadline_at_ms=float("nan")),
    "a deadline in the year 300,000": lambda run: altered(run, deadline_at_ms=9.5e15),
    "an input that nests 300 levels": lambda run: with_step(run, input=nested(300)),
    "an attempt beyond an integer": lambda run: with_step(run, attempt=2**40),
    "an input that is no JSON": lambda run: altered(run, input={"x": object()}),
    "a worker's name with NUL": lambda run: with_step(run, worker="w\x00"),
    "a parent whose step is no text": lambda run: altered(run, parent=BAD_PARENT),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_run_that_postgres_refuses_fails_and_the_others_are_written(
    rig: Rig, what: str
) -> None:
    for number in range(7):
        rig.add(a_run(f"before{number}"))
    rig.add(REFUSED[what](a_run("bad")))
    rig.add(a_run("after"))
    await rig.flushed()
    rows = await rig.rows()
    assert {r for r, row in rows.items() if row["status"] == "running"} == {
        "after",
        *(f"before{number}" for number in range(7)),
    }
    assert rows["bad"]["status"] == "failed"
    assert '"run_not_storable"' in rows["bad"]["error"]
    assert set((await rig.steps("bad")).values()) <= {"cancelled"}
    assert await rig.applied_seq() == rig.seq == 9
    assert rig.set_aside == ["bad"]
    assert ("bad", "failed") in rig.told
    assert ("bad", "running") not in rig.told, "what followed the state that was not written"
    assert len(rig.told) == 9
    assert rig.health.components["postgres"] == (True, "")
    assert "bad" not in [one.row["run_id"] for one in await rig.store.in_flight(0)]


async def test_several_runs_are_refused_among_many(rig: Rig) -> None:
    bad = {f"r{number}" for number in (0, 17, 18, 63)}
    for number in range(64):
        run = a_run(f"r{number}")
        rig.add(altered(run, traceparent="\x00") if run.run_id in bad else run)
    await rig.flushed()
    failed = {r for r, row in (await rig.rows()).items() if row["status"] == "failed"}
    assert (failed, len(await rig.rows())) == (bad, 64)


async def test_what_a_refused_run_decided_meanwhile_is_dropped_with_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = altered(a_run("bad"), traceparent="\x00")
    asked, go_on = asyncio.Event(), asyncio.Event()
    rehearse = rig.store.rehearse

    async def slowly(batch: Any) -> None:
        asked.set()
        await go_on.wait()
        await rehearse(batch)

    monkeypatch.setattr(rig.store, "rehearse", slowly)
    rig.add(run)
    async with asyncio.timeout(BOUND_S):
        await asked.wait()
    ended = altered(run, status="succeeded", finished_at_ms=run.accepted_at_ms + 1)
    rig.add(ended, first=False)  # decided while its first state is being refused
    go_on.set()
    await rig.flushed()
    assert (await rig.rows())["bad"]["status"] == "failed"
    assert rig.told == [("bad", "failed")]


async def test_a_run_that_ends_while_its_step_is_refused_is_not_taken_for_one_that_had_ended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are changed in place: what a batch holds is older than the run."""
    run = a_run("bad")
    rig.add(run)
    await rig.flushed()
    asked, go_on = asyncio.Event(), asyncio.Event()
    rehearse = rig.store.rehearse

    async def slowly(batch: Any) -> None:
        asked.set()
        await go_on.wait()
        await rehearse(batch)

    monkeypatch.setattr(rig.store, "rehearse", slowly)
    run.steps["a"].worker = "w\x00"
    rig.add(run, first=False, changed=("a",))
    async with asyncio.timeout(BOUND_S):
        await asked.wait()
    run.status, run.finished_at_ms = "succeeded", run.accepted_at_ms + 1
    rig.add(run, first=False)
    go_on.set()
    await rig.flushed()
    assert (await rig.rows())["bad"]["status"] == "failed"
    assert rig.told[-1] == ("bad", "failed")


async def test_a_run_that_is_in_postgres_already_loses_its_open_steps(rig: Rig) -> None:
    run = a_run("bad")
    rig.add(run)
    await rig.flushed()
    assert set((await rig.steps("bad")).values()) == {"dispatched"}
    rig.add(with_step(run, output="\ud800"), first=False, changed=("a",))
    await rig.flushed()
    assert set((await rig.steps("bad")).values()) == {"cancelled"}
    assert (await rig.rows())["bad"]["status"] == "failed"


async def test_a_late_attempt_that_is_refused_changes_nothing_of_its_ended_run(rig: Rig) -> None:
    run = a_run("done")
    ended = altered(run, status="succeeded", finished_at_ms=run.accepted_at_ms + 1)
    rig.add(ended)
    await rig.flushed()
    late = RecordAttempt("a", 1, "late", None, None, None, ended.accepted_at_ms, "w\x00")
    rig.add(ended, first=False, changed=(), attempts=[late])
    rig.add(a_run("after"))
    await rig.flushed()
    rows = await rig.rows()
    assert (rows["done"]["status"], rows["after"]["status"]) == ("succeeded", "running")
    assert await rig.pool.fetchval("SELECT count(*) FROM hocket.attempt") == 0
    assert rig.set_aside == ["done"]


async def test_an_expectation_that_is_refused_is_left_out(rig: Rig) -> None:
    def kept(pipeline: str) -> KeptEstimate:
        return KeptEstimate("t", pipeline, "a", Estimate(1.0, 1.0, 1.0))

    rig.tenure.expects([kept("p\x00"), kept("p")])
    rig.add(a_run("r1"))
    await rig.flushed()
    assert [row.pipeline for row in await rig.store.outlook(0)] == ["p"]
    assert await rig.applied_seq() == 1


async def test_a_batch_that_is_refused_for_no_run_waits_and_says_so(rig: Rig) -> None:
    await rig.pool.execute("ALTER TABLE hocket.partition RENAME COLUMN batch TO batch_moved")
    rig.add(a_run("r1"))
    async with asyncio.timeout(BOUND_S):
        await rig.health.unwell.wait()
    assert "UndefinedColumn" in rig.health.components["postgres"][1]
    assert rig.set_aside == []
    await rig.pool.execute("ALTER TABLE hocket.partition RENAME COLUMN batch_moved TO batch")
    await rig.flushed()
    assert rig.health.components["postgres"] == (True, "")
    assert (await rig.rows())["r1"]["status"] == "running"


async def test_rows_that_are_only_refused_together_are_written_one_by_one(rig: Rig) -> None:
    await rig.pool.execute(
        """CREATE FUNCTION refuse_many() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF (SELECT count(*) FROM added) > 1 THEN RAISE 'too many at once'; END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER refuse_many AFTER INSERT ON hocket.run
        REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION refuse_many()"""
    )
    rig.add(a_run("r1"))
    rig.add(a_run("r2"))
    await rig.flushed()
    assert set(await rig.rows()) == {"r1", "r2"}
    assert rig.set_aside == []


async def test_a_batch_of_more_than_a_statement_may_have_is_written_whole(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        rig.add(with_step(a_run(f"r{number}"), input="x" * 1_000_000))
    await rig.flushed()
    assert len(await rig.rows()) == 30
    assert await rig.pool.fetchval("SELECT count(*) FROM hocket.step") == 60
    assert await rig.applied_seq() == 30


async def test_the_next_owner_sets_the_same_run_aside(rig: Rig) -> None:
    """One that was killed before its commit left nothing; its successor decides the same again."""
    bad = altered(a_run("bad"), traceparent="\x00")
    await rig.own("b")
    rig.add(bad)
    await rig.flushed()
    await rig.own("c")
    assert rig.tenure.epoch == 3
    assert await rig.store.in_flight(0) == []
    assert [run.run_id for run in await rig.store.ended_since(0, 0.0)] == ["bad"]
