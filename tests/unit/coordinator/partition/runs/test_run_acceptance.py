"""The version of sub-runs that repeat others."""

from types import SimpleNamespace
from typing import Any, Literal

import pytest

from hocket.coordinator.core.run.state.restore import StoredRun
from hocket.coordinator.core.run.state.run import Owner
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.partition.runs.run_acceptance import RunAcceptance
from hocket.coordinator.storage.pipelines.pipeline_catalog import Entry
from hocket.coordinator.storage.source_runs import Origins
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import Priority, RunAccepted, RunOrigin, RunParent
from support.run_player import START_MS, Play, python, stored

PARENT = RunParent(run_id="above", step="c", attempt=1, partition=0, dispatched_at_ms=START_MS)
NEWEST = 9
BROKEN = ErrorInfo(code="broken", message="broken")


def a_sub_run(
    operation: Literal["retry", "rerun"] | None = "retry",
    *,
    version: int = 0,
    parent: RunParent | None = PARENT,
) -> RunAccepted:
    return RunAccepted(
        run_id="again",
        tenant="t",
        pipeline="p",
        version=version,
        input={},
        priority=Priority.STANDARD,
        deadline_at_ms=START_MS + 60_000,
        parent=parent,
        origin=RunOrigin(run_id="r1", operation=operation) if operation else None,
    )


class Doors:
    """A partition's acceptance, with an origin `r1` whose row has these `changes`; `versions` are those
    that runs began as, `kept` what each took over, `reads` the runs that were read."""

    def __init__(self, origin: Play | None, **changes: Any) -> None:
        self.versions: list[int] = []
        self.kept: list[list[str]] = []
        self.reads: list[str] = []
        plan = Play({"a": python(), "b": python()})

        async def stored_run(run_id: str) -> StoredRun | None:
            self.reads.append(run_id)
            if origin is None or run_id != "r1":
                return None
            found = stored(origin.run)
            return StoredRun({**found.row, **changes}, found.steps)

        async def entry(tenant: str, pipeline: str, version: int, run_id: str = "") -> Entry:
            return Entry(version or NEWEST, plan.plan, plan.compiled)

        async def unknown(event: RunAccepted) -> None:
            return None

        def record(outcome: Outcome, *, first: bool) -> None:
            self.versions.append(outcome.run.version)
            reuse = outcome.run.reuse
            self.kept.append([] if reuse is None else sorted(reuse.kept))

        store: Any = SimpleNamespace(stored=stored_run)
        catalog: Any = SimpleNamespace(entry_for=entry, entry=entry)
        context: Any = SimpleNamespace(
            services=SimpleNamespace(
                catalog=catalog, store=store, load=SimpleNamespace(begun=lambda *_: None)
            ),
            owner=Owner(0, 1, None),
            tenure=None,
            runs=None,
            notifier=None,
            measurements=SimpleNamespace(forecast=lambda *_: plan.forecast),
            origins=Origins(store, catalog),
            demand=SimpleNamespace(accepted=lambda *_: None),
            acknowledgement=SimpleNamespace(after_commit=lambda _: None),
            position=None,
        )
        recorder: Any = SimpleNamespace(record=record)
        self.acceptance = RunAcceptance(context, recorder)
        self.acceptance.known = SimpleNamespace(begun_by=unknown)  # type: ignore[assignment]

    async def accept(self, event: RunAccepted) -> bool:
        return await self.acceptance.accept(event, START_MS)


def under_way() -> Play:
    play = Play({"a": python(), "b": python(needs=["a"])})
    play.finish("a", 7)
    return play


def ended() -> Play:
    play = under_way()
    play.finish("b", error=BROKEN)
    return play


@pytest.mark.parametrize(
    ("event", "begun_as"),
    [
        (a_sub_run("retry"), 1),
        (a_sub_run("rerun"), NEWEST),
        (a_sub_run(None), NEWEST),
        (a_sub_run("retry", version=4), 4),
    ],
    ids=["retry", "rerun", "new", "named by its step"],
)
async def test_a_retried_sub_run_keeps_the_version_that_it_had(
    event: RunAccepted, begun_as: int
) -> None:
    doors = Doors(ended())
    assert await doors.accept(event)
    assert doors.versions == [begun_as]


@pytest.mark.parametrize("origin", [None, ended()], ids=["missing", "without a version"])
async def test_a_retried_sub_run_that_never_had_a_version_takes_that_of_new_runs(
    origin: Play | None,
) -> None:
    doors = Doors(origin, version=0)
    assert await doors.accept(a_sub_run("retry"))
    assert doors.versions == [NEWEST]


@pytest.mark.parametrize(
    ("origin", "kept"), [(ended(), ["a"]), (under_way(), [])], ids=["ended", "under way"]
)
async def test_the_origin_of_a_retried_sub_run_is_read_once_whether_it_has_ended_or_not(
    origin: Play, kept: list[str]
) -> None:
    doors = Doors(origin)
    assert await doors.accept(a_sub_run("retry"))
    assert (doors.versions, doors.kept, doors.reads) == ([1], [kept], ["r1"])


async def test_no_run_is_read_for_a_sub_run_that_repeats_none() -> None:
    doors = Doors(None)
    assert await doors.accept(a_sub_run(None))
    assert (doors.kept, doors.reads) == ([[]], [])


@pytest.mark.parametrize(
    ("changes", "version"),
    [({"facts": '{"signals": 1}'}, 1), ({"tenant": "another"}, NEWEST)],
    ids=["this release cannot read it", "it is another tenant's"],
)
async def test_nothing_is_taken_over_from_an_origin_that_cannot_be_used(
    changes: dict[str, Any], version: int
) -> None:
    doors = Doors(ended(), **changes)
    assert await doors.accept(a_sub_run("retry"))
    assert (doors.versions, doors.kept) == ([version], [[]])
