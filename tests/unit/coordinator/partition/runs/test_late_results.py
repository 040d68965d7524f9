"""What comes for runs that ended: their steps, which may be very many, are not read for each event."""

from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.core.run.state.restore import readable
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.partition.partition import Partition
from hocket.coordinator.partition.runs.run_cache import MAX_ENDED_BYTES, STEP_BYTES
from hocket.coordinator.storage.pipelines.pipeline_catalog import Entry
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import AttemptFinished, AttemptReturned, RunEvent
from support.lone_partition import lone_partition
from support.run_player import Play, python, stored

CAPABILITIES = Capabilities([b"k" * 32])
AT_MS = 5.0


class Rig:
    """A partition whose database has one run; `read`: how often all its steps were read."""

    def __init__(self, play: Play) -> None:
        self.read = 0
        self.reports: list[str] = []
        rows, entry = stored(play.run), Entry(1, play.plan, play.compiled)

        async def stored_for_events(run_id: str) -> Any:
            self.read += 1
            return rows if run_id == play.run_id else None

        async def known(run_ids: list[str]) -> dict[str, Run]:
            return {play.run_id: readable(rows.row)[0]} if play.run_id in run_ids else {}

        async def entry_of(*arguments: object) -> Entry:
            return entry

        tenure = SimpleNamespace(
            partition=0,
            epoch=1,
            over=False,
            write_watermark=None,
            unwritten=SimpleNamespace(of=lambda run_id: []),
            add=lambda run, **changes: self.reports.extend(a.key for a in changes["attempts"]),
        )
        self.partition: Partition = lone_partition(
            tenure,
            store=SimpleNamespace(stored_for_events=stored_for_events, known=known),
            catalog=SimpleNamespace(entry=entry_of),
            load=SimpleNamespace(ended=lambda run_id: None),
            durations=SimpleNamespace(of=lambda *arguments: {}),
            capabilities=CAPABILITIES,
            dispatcher=SimpleNamespace(
                dispatch=None,
                cancel=None,
                has_sent=lambda *arguments: False,
                finished=lambda *arguments: None,
            ),
        )

    async def apply(self, event: RunEvent) -> None:
        await self.partition._events._application.apply(event, 9.0)


def result(kind: Any, claimed: str | None) -> Any:
    return kind(run_id="r1", step="a", attempt=1, dispatched_at_ms=AT_MS, capability=claimed)


def ended() -> Play:
    play = Play({"a": python()})
    play.finish("a")
    return play


@pytest.mark.parametrize("kind", [AttemptFinished, AttemptReturned])
@pytest.mark.parametrize("claimed", [None, "0" * 32])
async def test_no_steps_are_read_for_a_result_that_somebody_made_up(
    kind: Any, claimed: str | None
) -> None:
    rig = Rig(ended())
    await rig.apply(result(kind, claimed))
    assert (rig.read, rig.reports) == (0, [])


async def test_a_genuine_late_result_is_recorded_and_the_next_one_reads_nothing() -> None:
    rig = Rig(ended())
    genuine = CAPABILITIES.of_attempt("t", "r1", "a", 1, AT_MS)
    for _ in range(2):
        await rig.apply(result(AttemptFinished, genuine))
    assert (rig.read, rig.reports) == (1, ["a"] * 2)


async def test_a_result_without_a_capability_may_count_for_a_run_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(Play({"a": python()}))
    monkeypatch.setattr(rig.partition._loader, "_go_on", rig.partition._loader._ended)
    await rig.apply(result(AttemptFinished, None))
    assert rig.read == 1


async def test_a_run_larger_than_all_ended_runs_may_be_is_kept_beside_others_for_its_late_results() -> (
    None
):
    rig, small = Rig(ended()), Play({"a": python()}, run_id="small")
    small.finish("a")
    runs = rig.partition._runs
    runs.remember(small.run)
    large = ended().run
    large.steps |= {f"more{n}": large.steps["a"] for n in range(MAX_ENDED_BYTES // STEP_BYTES + 1)}
    runs.put(large)
    assert runs.get("small") is small.run
    genuine = CAPABILITIES.of_attempt("t", "r1", "a", 1, AT_MS)
    await rig.apply(result(AttemptFinished, genuine))
    assert (rig.read, rig.reports) == (0, ["a"])
