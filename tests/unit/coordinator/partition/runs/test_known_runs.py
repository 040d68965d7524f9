"""When Postgres is asked whether a task has already begun a run."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.coordinator.partition.runs.known_runs import FORGOTTEN_MS, KnownRuns
from hocket.coordinator.partition.runs.run_cache import Runs
from hocket.schemas import ids
from hocket.schemas.messages import Priority, RunAccepted

ATTACHED_MS = 1_800_000_000_000.0
FORGOTTEN_AT_MS = ATTACHED_MS + 60_000
RUN = ids.run_id("acme", "key")


class Store:
    """Counts what it is asked for; it knows a run."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.run = SimpleNamespace(status="running", finished_at_ms=None)

    async def known(self, run_ids: list[str]) -> dict[str, Any]:
        self.asked += run_ids
        return dict.fromkeys(run_ids, self.run)


def accepted(*, stored_ms: float, checked_at_ms: float | None = None) -> RunAccepted:
    return RunAccepted(
        run_id=RUN,
        tenant="acme",
        pipeline="p",
        version=1,
        input={},
        priority=Priority.STANDARD,
        deadline_at_ms=stored_ms + 60_000,
        idempotency_key="key",
        task_ack=f"$JS.ACK.TASKS.intake.1.22.33.{int(stored_ms) * 1_000_000}.4",
        checked_at_ms=checked_at_ms,
    )


def known_runs(store: Store) -> KnownRuns:
    """Return the known runs of a partition that has just been taken."""
    runs = Runs()
    runs.forgotten_ms = FORGOTTEN_AT_MS
    context: Any = SimpleNamespace(
        services=SimpleNamespace(store=store),
        runs=runs,
        tenure=None,
        position=SimpleNamespace(attached_at_ms=ATTACHED_MS),
    )
    return KnownRuns(context)


@pytest.mark.parametrize(
    ("event", "is_asked"),
    [
        (accepted(stored_ms=ATTACHED_MS - 1), True),
        (accepted(stored_ms=FORGOTTEN_AT_MS - 1), True),  # a run that left the memory, posted again
        (accepted(stored_ms=FORGOTTEN_AT_MS + 1), False),
        (
            accepted(
                stored_ms=FORGOTTEN_AT_MS + 1, checked_at_ms=FORGOTTEN_AT_MS + FORGOTTEN_MS - 1
            ),
            True,
        ),
        (
            accepted(
                stored_ms=FORGOTTEN_AT_MS + 1, checked_at_ms=FORGOTTEN_AT_MS + FORGOTTEN_MS + 1
            ),
            False,
        ),
    ],
)
async def test_postgres_is_asked_where_a_run_may_have_left_the_memory(
    event: RunAccepted, is_asked: bool
) -> None:
    store = Store()
    found = await known_runs(store).begun_by(event)
    assert cast(Any, found) is (store.run if is_asked else None)
    assert store.asked == [RUN] * is_asked


@pytest.mark.parametrize(("stored_ms", "is_known"), [(-3, True), (-1, False)])
async def test_a_task_stored_before_its_run_was_refused_is_that_one_delivered_again(
    stored_ms: float, is_known: bool
) -> None:
    store = Store()
    store.run = SimpleNamespace(status="rejected", finished_at_ms=ATTACHED_MS - 2)
    found = await known_runs(store).begun_by(accepted(stored_ms=ATTACHED_MS + stored_ms))
    assert (found is not None) is is_known
