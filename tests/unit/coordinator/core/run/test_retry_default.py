"""A handler that asks for another attempt gets it, whether its node has a `retry` or not."""

from typing import Any

import pytest

from hocket.coordinator.core.run.retries import ASKED
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import TimerFired
from hocket.workers.errors import Retryable
from support.run_player import Play, python

BROKEN = ErrorInfo(code="busy", message="it is busy", error_class=ErrorClass.TRANSIENT)


def attempts_of(error: ErrorInfo, **fields: Any) -> int:
    play = Play({"a": python(**fields)})
    while play.run.status == "running":
        if play.waiting():
            play.finish("a", error=error)
        else:
            play.now_ms += 1_000
            play.send(TimerFired(run_id="r1", due_at_ms=play.now_ms))
    assert play.run.status == "failed"
    return play.run.steps["a"].attempt


@pytest.mark.parametrize(
    ("fields", "attempts"),
    [({}, 3), ({"retry": {"max_attempts": 1}}, 1), ({"retry": {"max_attempts": 5}}, 5),
     ({"retry": {"on": ["busy"]}}, 1)],
)  # fmt: skip
def test_a_handler_that_asks_is_tried_again(fields: dict[str, Any], attempts: int) -> None:
    assert attempts_of(Retryable("later").info(), **fields) == attempts


def test_other_errors_are_tried_again_only_where_the_node_says_so() -> None:
    assert attempts_of(BROKEN) == 1
    assert attempts_of(BROKEN, retry={}) == 3


def test_it_is_the_code_of_the_error_that_handlers_raise() -> None:
    assert Retryable.code == ASKED
