"""What is read of a run that another one repeats: no more than is asked."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.core.run.faults import RunNotRestorable
from hocket.coordinator.storage import source_runs as module
from hocket.coordinator.storage.pipelines.pipeline_catalog import Entry
from hocket.coordinator.storage.source_runs import Origins
from hocket.schemas.errors import RunUnknown
from hocket.schemas.messages import RunOrigin
from support.run_player import Play, python, stored

ASKED = RunOrigin(run_id="r1", operation="retry")


def origins_with(**changes: Any) -> Origins:
    """Return the origins of a store that has one run, whose steps it does not give."""
    found = {**stored(Play({"a": python()}).run).row, **changes}

    async def row(run_id: str) -> Any:
        return found if run_id == "r1" else None

    store: Any = SimpleNamespace(row=row)
    catalog: Any = None
    return Origins(store, catalog)


async def test_intake_reads_the_row_of_an_origin_without_its_steps() -> None:
    run = await origins_with().run("t", ASKED)
    assert (run.run_id, run.pipeline, run.steps) == ("r1", "p", {})


@pytest.mark.parametrize(
    ("tenant", "run_id", "changes", "error"),
    [
        ("another", "r1", {}, RunUnknown),
        ("t", "r2", {}, RunUnknown),
        ("t", "r1", {"facts": '{"signals": 1}'}, RunNotRestorable),
    ],
)
async def test_an_origin_that_cannot_be_used_is_named(
    tenant: str, run_id: str, changes: dict[str, Any], error: type[Exception]
) -> None:
    asked = ASKED.model_copy(update={"run_id": run_id})
    with pytest.raises(error):
        await origins_with(**changes).run(tenant, asked)


@pytest.mark.parametrize(("many_steps", "beside"), [(1, True), (2, False)])
async def test_what_a_run_takes_over_from_many_steps_is_found_beside_everything_else(
    monkeypatch: pytest.MonkeyPatch, many_steps: int, beside: bool
) -> None:
    threads: list[int] = []
    reuse_of = module.reuse_of

    def found(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return reuse_of(*arguments)

    monkeypatch.setattr(module, "MANY_STEPS", many_steps)
    monkeypatch.setattr(module, "reuse_of", found)
    play = Play({"a": python()})
    play.finish("a", 7)

    async def stored_run(run_id: str) -> Any:
        return stored(play.run)

    async def entry(*arguments: object) -> Entry:
        return Entry(1, play.plan, play.compiled)

    store: Any = SimpleNamespace(stored=stored_run)
    catalog: Any = SimpleNamespace(entry=entry)
    origins = Origins(store, catalog)
    reuse = await origins.reuse(await origins.stored("t", ASKED), ASKED, play.compiled)
    assert reuse is not None
    assert reuse.kept["a"].output.value == 7
    assert [ident != threading.get_ident() for ident in threads] == [beside]
