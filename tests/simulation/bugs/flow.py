"""Bugs of flow control: each is caught by the seed that the test names."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from hocket.coordinator.core.flow import decisions
from hocket.coordinator.core.flow.decisions import Decision, Passed, Waiting
from hocket.coordinator.flow.controller import FlowController
from simulation.engine import flow_tables
from simulation.engine.swaps import swapped


def limit_is_not_counted() -> AbstractContextManager[None]:
    """Let every waiting run pass."""

    def everybody(waiting: Sequence[Waiting], passed: Passed) -> Decision:
        return Decision(passed=list(waiting))

    def all_of_them(*_: Any) -> int:
        return decisions.MAX_AT_ONCE

    return swapped((decisions, "_concurrency", everybody), (flow_tables, "room", all_of_them))


def nobody_looks() -> AbstractContextManager[None]:
    """Never look for what a dead coordinator left undecided or unpublished."""

    async def nothing(_: FlowController) -> None:
        return None

    return swapped((FlowController, "_find_left", nothing))
