"""Whatever a test plays through the core, the new core does too."""

from collections.abc import Iterator

import pytest

from simulation.oracle.shadow import Shadow
from support import run_player

COMPARED = frozenset({"graph", "reuse", "waiting"})
"""Folders whose tests are compared; those of the others take as long again and say the same."""
MOST_EVENTS = 150
"""Of one test; what goes beyond is what came before, many times over."""


@pytest.fixture(autouse=True)
def new_core_agrees(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.parent.name not in COMPARED:
        yield
        return
    shadow = Shadow(most_events=MOST_EVENTS)
    with shadow.watching((run_player, "accept"), (run_player, "decide"), (run_player, "reuse_of")):
        yield
    assert not shadow.report.found, "\n".join(map(str, shadow.report.found))
