"""The handler of imported workflows takes as long as it is told, never less."""

import time

import pytest
from pydantic import ValidationError

from hocket.workers.replay import Task, sleep


@pytest.mark.parametrize("seconds", [0.0, 0.0004, 0.0125])
async def test_a_task_takes_at_least_its_time(seconds: float) -> None:
    begun_s = time.monotonic()
    done = await sleep(Task(task="t", seconds=seconds))
    assert time.monotonic() - begun_s >= seconds
    assert done["task"] == "t"
    assert done["seconds"] >= seconds


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(ValidationError):
        Task(task="t", seconds=-1)
