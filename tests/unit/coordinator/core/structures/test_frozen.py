"""What `maker` makes is what the class makes."""

import dataclasses

import pytest

from hocket.coordinator.core.structures.frozen import maker
from hocket.coordinator.core.time.duration_estimates import Estimate

new_estimate = maker(Estimate)


def test_what_is_made_equals_what_the_class_makes() -> None:
    assert new_estimate(1.0, 2.0) == Estimate(1.0, 2.0)
    assert new_estimate(1.0, 2.0, sure_ms=3.0) == Estimate(1.0, 2.0, sure_ms=3.0)


def test_it_is_frozen_and_of_the_class() -> None:
    made = new_estimate(1.0, 2.0)
    assert type(made) is Estimate
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.mean_ms = 4.0  # type: ignore[misc]


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError):
        new_estimate(1.0, 2.0, no_such_field=1)
