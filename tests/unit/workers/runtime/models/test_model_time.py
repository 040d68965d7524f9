"""How long an attempt waited for models: calls in a row, side by side, and queued at the gateway."""

from hocket.schemas.messages import Timing
from hocket.workers.runtime.models.model_time import ModelTime


def test_without_a_call_there_is_no_model_time() -> None:
    assert ModelTime().timing() is None


def test_calls_in_a_row_add_up() -> None:
    time = ModelTime()
    time.asked(1_000)
    time.answered(1_300, asked_at_ms=1_000, queue_ms=0)
    time.asked(2_000)
    time.answered(2_500, asked_at_ms=2_000, queue_ms=200)
    assert time.timing() == Timing(gateway_queue_ms=200, model_ms=600)


def test_of_calls_side_by_side_each_moment_counts_once() -> None:
    time = ModelTime()
    time.asked(0)
    time.asked(100)
    time.answered(400, asked_at_ms=0, queue_ms=400)
    time.answered(500, asked_at_ms=100, queue_ms=0)
    # 500 ms of waiting, shared out as the 800 ms of calls were: half queued, half at the model
    assert time.timing() == Timing(gateway_queue_ms=250, model_ms=250)


def test_a_gateway_that_tells_of_more_queueing_than_the_call_took_is_bounded_by_the_call() -> None:
    time = ModelTime()
    time.asked(0)
    time.answered(100, asked_at_ms=0, queue_ms=9_999)
    assert time.timing() == Timing(gateway_queue_ms=100, model_ms=0)
