"""What the coordinator needs from Postgres: the real store and the simulated one behave the same."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from hocket.coordinator.core.run.commands import LookUpCache, RecordAttempt, ReleaseCache
from hocket.coordinator.core.run.ends.notification_watermark import NotificationWatermark
from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.state.columns import (
    RUN_COLUMNS,
    STEP_COLUMNS,
    attempt_row,
    completed,
)
from hocket.coordinator.core.run.state.rows import charges_row, run_row, spending_row, step_row
from hocket.coordinator.core.run.state.run import Owner, Run, ScopeProgress, Step
from hocket.coordinator.core.run.state.values import json_of
from hocket.coordinator.core.time.duration_estimates import Estimate
from hocket.coordinator.storage.cache_store import CacheStore, Filling
from hocket.coordinator.storage.commit_batch import Batch
from hocket.coordinator.storage.pipelines.pipeline_store import PipelineStore
from hocket.coordinator.storage.pipelines.release import Release
from hocket.coordinator.storage.store import PartitionLost, Store
from hocket.schemas.messages import Priority
from hocket.schemas.pipeline.plan import compile_pipeline
from simulation.engine.cache_tables import CacheTables, SimulatedCacheStore
from simulation.engine.database import Database, SimulatedPipelineStore, SimulatedStore
from simulation.engine.scenes import play_scene
from simulation.engine.world import EPOCH_S, Process, World
from support.runs.made import altered

pytestmark = pytest.mark.plain  # its runs and steps are copies of others

LIMIT_S = 30.0
NOW_MS = EPOCH_S * 1_000
SPEC = {"pipeline": "p", "nodes": {"a": {"type": "python", "handler": "m:f"}}}
PLAN = PipelinePlan(compile_pipeline(SPEC))


class Parts:
    """The stores under test, with functions that apply a pipeline to their database and choose the
    version that runs take."""

    def __init__(
        self,
        store: Any,
        cache: Any,
        pipelines: Any,
        apply: Callable[[dict[str, Any]], Awaitable[None]],
        choose: Callable[[str, dict[str, Any]], Awaitable[None]],
    ) -> None:
        self.store: Store = store
        self.cache: CacheStore = cache
        self.pipelines: PipelineStore = pipelines
        self.apply = apply
        self.choose = choose


Scene = Callable[[Parts], Awaitable[None]]
Play = Callable[[Scene], None]


@pytest.fixture(params=["real", "simulated"])
def play(request: pytest.FixtureRequest) -> Play:
    if request.param == "simulated":
        return _play_simulated
    url: str = request.getfixturevalue("database_url")
    return lambda scene: asyncio.run(_play_real(scene, url))


async def _play_real(scene: Scene, url: str) -> None:
    async with asyncpg.create_pool(url, min_size=1, max_size=3) as pool, asyncio.timeout(LIMIT_S):

        async def apply(document: dict[str, Any]) -> None:
            await pool.execute(
                """INSERT INTO hocket.pipeline (tenant, name, version, spec, spec_hash)
                SELECT 't', $1, count(*) + 1, $2, 'x' FROM hocket.pipeline WHERE name = $1""",
                document["pipeline"],
                json.dumps(document),
            )

        async def choose(pipeline: str, chosen: dict[str, Any]) -> None:
            await pool.execute(
                """INSERT INTO hocket.pipeline_release
                (tenant, name, active_version, canary_version, canary_share, canary_since)
                VALUES ('t', $1, $2, $3, $4, now())""",
                pipeline,
                *(chosen[name] for name in ("active", "canary", "canary_share")),
            )

        day_at = datetime.fromtimestamp(EPOCH_S, UTC).replace(hour=0, minute=0, second=0)
        await pool.execute("UPDATE hocket.step_days SET to_at = $1", day_at)
        await pool.execute(
            "SELECT hocket.make_step_days($1, $2)", day_at, day_at + timedelta(days=1)
        )
        await scene(Parts(Store(pool), CacheStore(pool), PipelineStore(pool), apply, choose))


def _play_simulated(scene: Scene) -> None:
    world = World("contract")
    database = Database(world)

    async def apply(document: dict[str, Any]) -> None:
        database.apply("t", document)

    async def choose(pipeline: str, chosen: dict[str, Any]) -> None:
        database.releases["t", pipeline] = chosen

    async def main(process: Process) -> None:
        tables = CacheTables(database)
        await scene(
            Parts(
                SimulatedStore(database, process),
                SimulatedCacheStore(tables, database, process),
                SimulatedPipelineStore(database, process),
                apply,
                choose,
            )
        )

    play_scene(world, lambda: None, main, LIMIT_S)


def a_run(run_id: str = "r1", steps: list[Step] | None = None, **fields: Any) -> Run:
    run = Run(
        Owner(0, 1, None),
        PLAN,
        run_id=run_id,
        tenant="t",
        pipeline="p",
        version=1,
        priority=Priority.STANDARD,
        given=json_of({"longer": 1, "b": [1.5, None], "a": {"y": 1, "x": "\u00e9"}}),
        accepted_at_ms=NOW_MS + 0.125,
        deadline_at_ms=NOW_MS + 60_000,
    )
    run.budget_usd = Decimal("0.10")
    run.steps = {step.key: step for step in steps or ()}
    return altered(run, **fields)


def a_step(key: str = "a", **fields: Any) -> Step:
    scope = ScopeProgress(PLAN.root, None, None)
    step = Step(key, PLAN.nodes[0], "leaf", "node", None, scope, 0, NOW_MS + 1)
    step.state, step.attempt, step.input, step.slack_ms = "dispatched", 1, json_of({"q": 1}), 0.5
    return altered(step, **fields)


def batch_of(
    epoch: int,
    seq: int,
    *runs: Run,
    told: float | NotificationWatermark | None = None,
    number: int = 0,
) -> Batch:
    batch = Batch(offsets={0: (epoch, seq, f"m{seq}")}, numbers={0: number})
    batch.runs = [run_row(run) for run in runs]
    batch.placements = {run.run_id: (run.tenant, run.accepted_at_ms) for run in runs}
    batch.steps = [step_row(run.run_id, step) for run in runs for step in run.steps.values()]
    if told is not None:
        batch.told = {
            0: told if isinstance(told, NotificationWatermark) else NotificationWatermark(told)
        }
    return batch


def plain(columns: Any, values: Any) -> dict[str, Any]:
    """Return a row with its JSON decoded, as Postgres or this test has it."""
    row = values if isinstance(values, dict) else dict(zip(columns, values, strict=True))
    return {name: _read(kind, row[name]) for name, kind in columns.items()}


def _read(kind: str, value: Any) -> Any:
    return json.loads(value) if kind == "jsonb" and value is not None else value


def test_an_owner_goes_on_where_the_former_one_committed(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        first = await store.acquire(0, "a")
        assert (first.epoch, first.applied_seq, first.applied_msg_id) == (1, 0, "")
        await store.commit(batch_of(1, 7, told=NOW_MS + 5))
        second = await store.acquire(0, "b")
        assert (second.epoch, second.applied_seq, second.applied_msg_id) == (2, 7, "m7")
        assert second.told.told_ms == NOW_MS + 5
        assert (await store.acquire(1, "b")).epoch == 1

    play(scene)


def test_what_is_told_never_goes_back(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        await store.commit(batch_of(1, 1, told=NOW_MS + 50))
        await store.commit(batch_of(1, 2, told=NOW_MS + 20))
        assert (await store.acquire(0, "a")).told.told_ms == NOW_MS + 50

    play(scene)


def test_the_next_owner_gets_the_mark_of_what_was_acknowledged(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store, marked = parts.store, NotificationWatermark(NOW_MS, NOW_MS + 50, NOW_MS + 60)
        await store.acquire(0, "a")
        await store.commit(batch_of(1, 1, told=marked))
        await store.commit(batch_of(1, 2))
        assert (await store.acquire(0, "b")).told == marked

    play(scene)


@pytest.mark.parametrize("second_told", [None, NotificationWatermark(NOW_MS)])
def test_the_mark_of_an_owner_before_the_last_one_is_void(
    play: Play, second_told: NotificationWatermark | None
) -> None:
    """The last owner may have published an end again that the server had lost, without keeping a mark
    of its own."""

    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        await store.commit(
            batch_of(1, 1, told=NotificationWatermark(NOW_MS, NOW_MS + 50, NOW_MS + 60))
        )
        await store.acquire(0, "b")
        await store.commit(batch_of(2, 2, told=second_told))
        assert (await store.acquire(0, "c")).told == NotificationWatermark(NOW_MS)

    play(scene)


def test_a_former_owner_writes_nothing(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        await store.acquire(1, "a")
        await store.acquire(0, "b")
        batch = batch_of(1, 9, a_run())
        batch.offsets[1] = (1, 4, "m4")
        with pytest.raises(PartitionLost) as lost:
            await store.commit(batch)
        assert lost.value.fields == {"partition": 0, "epoch": 1}
        assert await store.known(["r1"]) == {}
        assert (await store.acquire(1, "c")).applied_seq == 0

    play(scene)


def test_runs_in_flight_come_back_with_their_steps(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        steps = [a_step(), a_step("b", state="backoff", wake_at_ms=NOW_MS + 9)]
        going = a_run(steps=steps)
        later = a_run("r0", accepted_at_ms=NOW_MS + 10)
        ended = a_run("r2", status="succeeded", finished_at_ms=NOW_MS + 3, output={"x": [1, 2]})
        await store.commit(batch_of(1, 3, going, later, ended))
        found = await store.in_flight(0)
        assert [one.row["run_id"] for one in found] == ["r1", "r0"]
        row, kept = found[0]
        assert plain(RUN_COLUMNS, dict(row)) == plain(RUN_COLUMNS, run_row(going))
        assert {step["key"]: plain(STEP_COLUMNS, dict(step)) for step in kept} == {
            step.key: plain(STEP_COLUMNS, step_row("r1", step)) for step in steps
        }
        assert list(json.loads(row["input"])) == ["a", "b", "longer"]
        assert await store.in_flight(1) == []
        stored = await store.stored("r1")
        assert stored is not None
        assert {step["key"] for step in stored.steps} == {"a", "b"}
        assert await store.row("r1") == stored.row
        assert await store.row("nothing") is None
        assert await store.stored_for_events("r1") == stored
        assert await store.all_stored_for_events(["nothing", "r1"]) == {"r1": stored}
        place = await store.place("r1", "b")
        assert place is not None
        assert (place.path, place.role, place.home) == ("a", "leaf", "")
        assert await store.place("r1", "nowhere") is None

    play(scene)


def test_of_a_run_that_has_ended_events_get_no_values_of_its_steps(play: Play) -> None:
    """They may be very large, and a late result changes none of them."""

    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        step = a_step(state="succeeded", output={"k": 2})
        ended = a_run(status="succeeded", finished_at_ms=NOW_MS + 3, output={"x": 1}, steps=[step])
        await store.commit(batch_of(1, 3, ended))
        whole, bare = await store.stored("r1"), await store.stored_for_events("r1")
        assert await store.all_stored_for_events(["r1"]) == {"r1": bare}
        assert whole is not None
        assert bare is not None
        assert bare.row == whole.row
        (had,), (has,) = whole.steps, bare.steps
        assert had["output"] is not None
        assert dict(has) == {**had, "input": None, "output": None}

    play(scene)


def test_a_later_row_without_what_was_written_of_a_step_leaves_it(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        before = a_step(deadline_at_ms=NOW_MS + 7)
        await store.commit(batch_of(1, 3, a_run(steps=[before])))
        after = a_step(state="succeeded", input=None, slack_ms=None, worker="w", output={"k": 2})
        await store.commit(batch_of(1, 4, a_run(steps=[after])))
        ((_, (step,)),) = await store.in_flight(0)
        found = plain(STEP_COLUMNS, dict(step))
        wanted = plain(STEP_COLUMNS, completed(step_row("r1", after), step_row("r1", before)))
        assert found == wanted
        assert (found["worker"], found["slack_ms"]) == ("w", 0.5)

    play(scene)


def test_a_run_that_has_ended_never_changes(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        ended = a_run(status="succeeded", finished_at_ms=NOW_MS + 3, output=1)
        await store.commit(batch_of(1, 3, ended))
        await store.commit(batch_of(1, 4, a_run(status="failed", finished_at_ms=NOW_MS + 4)))
        found = (await store.known(["r1", "r9"]))["r1"]
        assert (found.status, found.output.value) == ("succeeded", 1)
        assert [run.run_id for run in await store.ended_since(0, NOW_MS + 3)] == ["r1"]
        assert await store.ended_since(0, NOW_MS + 3.001) == []

    play(scene)


def test_what_a_run_spent_after_its_end_changes_nothing_else_of_it(play: Play) -> None:
    def spent(usd: str, key: str, charged: str) -> tuple[Any, ...]:
        step = a_step(key, charged_usd=Decimal(charged), counted=((1, 1, Decimal(charged)),))
        return spending_row(a_run(spent_usd=Decimal(usd)), step)

    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        steps = [a_step(key, state="succeeded", output=2, winner="w") for key in ("a", "b")]
        end = {"status": "succeeded", "finished_at_ms": NOW_MS + 3, "output": {"x": 1}}
        ended = a_run(steps=steps, **end)
        other = a_run("r2", steps=[a_step()])
        first = batch_of(1, 3, ended, other)
        first.spending = [spent("0.1", "b", "0.1")]  # in the batch of its end, too
        await store.commit(first)
        before = await store.stored("r1")
        later = batch_of(1, 4)
        later.placements = {"r1": (ended.tenant, ended.accepted_at_ms)}
        later.spending = [spent("0.7", "b", "0.5"), spent("0.4", "a", "0.2")]
        for _ in range(2):
            await store.commit(later)
        after = await store.stored("r1")
        assert before is not None
        assert after is not None
        assert {**after.row, "spent_usd": None} == {**before.row, "spent_usd": None}
        assert after.row["spent_usd"] == Decimal("0.7")
        facts = {step["key"]: json.loads(step["facts"]) for step in after.steps}
        assert facts == {
            key: {"winner": "w", "charged_usd": usd, "counted": [[1, 1, usd]]}
            for key, usd in (("a", "0.2"), ("b", "0.5"))
        }
        rest = [[{**s, "facts": ""} for s in found.steps] for found in (before, after)]
        by_key = [sorted(one, key=lambda step: step["key"]) for one in rest]
        assert by_key[0] == by_key[1]
        assert (await store.known(["r2"]))["r2"].spent_usd == 0
        with pytest.raises(PartitionLost):
            await store.commit(replace(later, offsets={0: (7, 5, "m5")}))

    play(scene)


def test_what_a_run_is_charged_after_its_end_changes_nothing_else_of_it(play: Play) -> None:
    def charged(**fields: Any) -> Any:
        run = a_run(status="succeeded", finished_at_ms=NOW_MS + 3, output={"x": 1})
        run.set_seldom(**fields)
        return run

    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        ended = charged(probe=True)
        await store.commit(batch_of(1, 3, ended, a_run("r2", steps=[a_step()])))
        before = await store.stored("r1")
        later = batch_of(1, 4)
        later.placements = {"r1": (ended.tenant, ended.accepted_at_ms)}
        step = spending_row(
            a_run(spent_usd=Decimal("0.7")), a_step("a", charged_usd=Decimal("0.5"))
        )
        untold, charges = {"g2": Decimal("0.4")}, {"g1": Decimal("0.3")}
        spent = charged(spent_usd=Decimal("0.4"), charges=charges, untold=untold)
        later.spending = [step, charges_row(spent)]
        for _ in range(2):
            await store.commit(later)
        after = await store.stored("r1")
        assert before is not None
        assert after is not None
        changed = {"spent_usd": None, "facts": None}
        assert {**after.row, **changed} == {**before.row, **changed}
        assert after.row["spent_usd"] == Decimal("0.7")
        found = (await store.known(["r1"]))["r1"]
        assert (found.charges, found.untold, found.probe) == (charges, untold, True)
        assert (await store.known(["r2"]))["r2"].charges is None

    play(scene)


def test_a_step_of_no_run_is_refused_whole(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        batch = batch_of(1, 3, a_run())
        batch.steps = [step_row("nobody", a_step())]
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await store.commit(batch)
        assert await store.known(["r1"]) == {}
        assert (await store.acquire(0, "a")).applied_seq == 0

    play(scene)


def test_a_batch_may_be_written_twice(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        batch = batch_of(1, 3, a_run(steps=[a_step()]))
        attempt = RecordAttempt("a", 1, "failed", None, None, None, NOW_MS, "w")
        batch.attempts = [attempt_row("r1", attempt)]
        await store.commit(batch)
        await store.commit(batch)
        ((row, steps),) = await store.in_flight(0)
        assert (row["run_id"], [step["key"] for step in steps]) == ("r1", ["a"])

    play(scene)


def test_a_batch_that_comes_after_a_later_one_writes_nothing(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        for number in (1, 1, 2):  # the first one twice: its answer was lost
            await store.commit(batch_of(1, 6 + number, number=number))
        with pytest.raises(AssertionError, match="late"):
            await store.commit(batch_of(1, 7, a_run(), number=1))
        assert await store.known(["r1"]) == {}
        again = await store.acquire(0, "b")
        assert again.applied_seq == 8
        await store.commit(batch_of(2, 9, number=1))

    play(scene)


def test_specs_by_version_and_which_of_them_runs_take(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        pipelines = parts.pipelines
        assert await pipelines.release("t", "p") is None
        assert await pipelines.spec("t", "p", 1) is None
        await parts.apply(SPEC)
        await parts.apply(SPEC | {"description": "two"})
        first, second = [await pipelines.spec("t", "p", number) for number in (1, 2)]
        assert first is not None
        assert second is not None
        assert (json.loads(first), json.loads(second)["description"]) == (SPEC, "two")
        assert await pipelines.spec("t", "p", 3) is None
        assert await pipelines.spec("other", "p", 1) is None
        assert await pipelines.release("t", "p") == Release(2)
        await parts.choose("p", {"active": 1, "canary": 2, "canary_share": 0.25})
        assert await pipelines.release("t", "p") == Release(2, 1, 2, 0.25)
        assert await pipelines.release("other", "p") is None

    play(scene)


def test_estimates_and_outlooks_are_kept(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        await parts.pipelines.keep_durations([("t", "p", "a", Estimate(1.5, 0.25, 2.0))])
        await parts.pipelines.keep_durations([("t", "p", "a", Estimate(2.5, 0.5, 3.0))])
        assert await parts.pipelines.durations("t", "p") == {"a": Estimate(2.5, 0.5, 3.0)}
        batch = batch_of(1, 1)
        batch.outlooks = [(0, "t", "p", "a", 2.0, 1.5, 0.25)]
        await store.commit(batch)
        (kept,) = await store.outlook(0)
        assert (kept.path, kept.estimate) == ("a", Estimate(1.5, 0.25, 2.0))
        assert await store.outlook(1) == []

    play(scene)


# ---- the step cache -------------------------------------------------------------------------


def asks(run_id: str, *, ttl_ms: float = 60_000, claim_ms: float = 60_000) -> LookUpCache:
    from hocket.kit.process.clock import now_ms

    return LookUpCache(
        key="k",
        tenant="t",
        run_id=run_id,
        step="a",
        ttl_ms=ttl_ms,
        claim_until_ms=now_ms() + claim_ms,
    )


FILLING = Filling("k", "t", "r1", "a", 60_000, '{"x":1}', Decimal("0.02"))


def test_the_first_computes_and_the_others_wait_for_its_output(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        cache = parts.cache
        (turn,) = await cache.look_up([asks("r1"), asks("r2")])
        assert (turn.run_id, turn.output) == ("r1", None)
        assert await cache.look_up([asks("r3")]) == []
        answers = await cache.fill([FILLING])
        assert [(answer.run_id, answer.output) for answer in answers] == [
            ("r2", '{"x":1}'),
            ("r3", '{"x":1}'),
        ]
        (hit,) = await cache.look_up([asks("r4")])
        assert (hit.output, hit.computed_by_run, hit.cost_usd) == ('{"x":1}', "r1", Decimal("0.02"))

    play(scene)


def test_who_computes_may_ask_again(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        await parts.cache.look_up([asks("r1")])
        (again,) = await parts.cache.look_up([asks("r1")])
        assert (again.run_id, again.output) == ("r1", None)

    play(scene)


def test_a_claim_that_is_given_up_goes_to_the_next(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        cache = parts.cache
        await cache.look_up([asks("r1"), asks("r2"), asks("r3")])
        assert await cache.release([ReleaseCache("k", "r2", "a")]) == []
        (turn,) = await cache.release([ReleaseCache("k", "r1", "a")])
        assert (turn.run_id, turn.output) == ("r3", None)
        assert await cache.release([ReleaseCache("k", "r3", "a")]) == []
        (free,) = await cache.look_up([asks("r4")])
        assert (free.run_id, free.output) == ("r4", None)

    play(scene)


def test_a_claim_whose_time_is_over_holds_off_nobody(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        await parts.cache.look_up([asks("r1", claim_ms=-1)])
        (turn,) = await parts.cache.look_up([asks("r2")])
        assert (turn.run_id, turn.output) == ("r2", None)

    play(scene)


def test_an_output_that_is_too_old_is_computed_again(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        await parts.cache.fill([FILLING])
        (turn,) = await parts.cache.look_up([asks("r2", ttl_ms=0)])
        assert (turn.run_id, turn.output) == ("r2", None)

    play(scene)


def test_a_rehearsal_writes_nothing_and_refuses_what_a_commit_would(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        await store.rehearse(batch_of(1, 3, a_run()))
        assert await store.known(["r1"]) == {}
        refused = batch_of(1, 3, a_run(), a_run("r2", traceparent="00-\x00"))
        for write in (store.rehearse, store.commit):
            with pytest.raises(asyncpg.CharacterNotInRepertoireError):
                await write(refused)
        assert await store.known(["r1", "r2"]) == {}
        with pytest.raises(PartitionLost):
            await store.rehearse(batch_of(7, 3))
        assert (await store.acquire(0, "b")).applied_seq == 0

    play(scene)


def test_a_run_that_is_closed_leaves_no_step_open(play: Play) -> None:
    async def scene(parts: Parts) -> None:
        store = parts.store
        await store.acquire(0, "a")
        steps = [a_step(), a_step("b")]
        await store.commit(batch_of(1, 3, a_run(steps=steps), a_run("r2", steps=steps)))
        batch = batch_of(1, 4, a_run(status="failed", finished_at_ms=NOW_MS + 4))
        batch.closed = ["r1"]
        await store.commit(batch)
        for run_id, state in (("r1", "cancelled"), ("r2", "dispatched")):
            stored = await store.stored(run_id)
            assert stored is not None
            assert {step["state"] for step in stored.steps} == {state}

    play(scene)
