"""`replace` of the core gives what `dataclasses.replace` gives."""

import dataclasses

import pytest

from hocket.coordinator.core.run.state import ChildProgress, Run, RunStatus
from hocket.coordinator.core.structures.frozen import replace
from hocket.schemas.messages import Priority

RUN = Run("r1", "default", "p", 1, 0, Priority.STANDARD, {"a": 1}, 1.0, 2.0)


def test_a_copy_equals_the_one_of_the_standard_library() -> None:
    changes = {"status": RunStatus.FAILED, "finished_at_ms": 5.0}
    assert replace(RUN, **changes) == dataclasses.replace(RUN, **changes)


def test_the_original_stays_as_it_was() -> None:
    before = dataclasses.astuple(RUN)
    replace(RUN, output=3)
    assert dataclasses.astuple(RUN) == before


def test_a_copy_is_frozen_and_of_the_same_class() -> None:
    copy = replace(ChildProgress(1, 2), running=3)
    assert type(copy) is ChildProgress
    with pytest.raises(dataclasses.FrozenInstanceError):
        copy.running = 4  # type: ignore[misc]


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(AttributeError):
        replace(RUN, no_such_field=1)
