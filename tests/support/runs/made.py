"""Runs and steps in the state that a test wants, without the events that lead there."""

import copy
from typing import Any, TypeVar

from hocket.coordinator.core.run.state.run import Run, Step
from hocket.coordinator.core.run.state.values import json_of

T = TypeVar("T", Run, Step)


def altered(one: T, **fields: Any) -> T:
    """Return a copy of a run or a step with other fields; inputs and outputs are given as plain values.
    x"""
    made = copy.copy(one)
    for name, value in fields.items():
        setattr(made, name, json_of(value) if name in ("input", "output") else value)
    return made


def with_step(run: Run, key: str = "a", **fields: Any) -> Run:
    """Return a copy of a run with other fields in one of its steps."""
    made = copy.copy(run)
    made.steps = run.steps | {key: altered(run.steps[key], **fields)}
    return made
