"""What is read of a run that another one repeats: no more than is asked."""

from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.core.run.faults import RunNotRestorable
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
