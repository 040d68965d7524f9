"""The clock can be told where time comes from."""

import time

import pytest

from hocket.kit.process import clock


def test_another_source_serves_inside_its_block_only() -> None:
    with clock.source(lambda: 1_700_000_000.5, lambda: 12.0):
        assert (clock.now_ms(), clock.monotonic_ms()) == (1_700_000_000_500.0, 12_000.0)
    assert clock.now_ms() == pytest.approx(time.time() * 1000, abs=60_000)


def test_the_source_is_put_back_after_a_failure() -> None:
    with pytest.raises(RuntimeError), clock.source(lambda: 0.0, lambda: 0.0):
        raise RuntimeError
    assert clock.now_ms() > 0
