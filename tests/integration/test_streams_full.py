"""A stream without room refuses its publisher in words, and a post that waits says so."""

import asyncio

import pytest
from nats.js.errors import APIError

from hocket.kit.nats import bus as bus_module
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import stream_configs
from hocket.schemas import subjects

MAX_BYTES = 64 * 1024
SUBJECT = subjects.task("default", "any")


@pytest.fixture
async def full(bus: Bus) -> int:
    """The number of tasks that fitted into a TASKS that is now full."""
    config = next(one for one in stream_configs() if one["name"] == subjects.TASKS)
    answer = await bus.api(
        f"STREAM.UPDATE.{subjects.TASKS}", {**config, "max_bytes": MAX_BYTES}, timeout_ms=5_000
    )
    assert "error" not in answer
    stored = 0
    while True:
        try:
            await bus.js.publish(SUBJECT, b"x" * 1_000)
        except APIError as error:
            if error.description == "maximum bytes exceeded":
                return stored
            raise
        stored += 1


async def test_a_full_stream_of_tasks_refuses_and_loses_nothing_it_took(
    bus: Bus, full: int
) -> None:
    state = (await bus.js.stream_info(subjects.TASKS)).state
    assert state.messages == full
    assert state.first_seq == 1


async def test_a_post_that_no_stream_takes_says_so_until_there_is_room(
    bus: Bus, full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "STALLED_S", 0.2)
    assert bus.stalled == ""
    stored = bus.post(SUBJECT, b"y" * 1_000)
    while not bus.stalled:  # noqa: ASYNC110 - time has to pass
        await asyncio.sleep(0.05)
    assert f"`{SUBJECT}` is not acknowledged" in bus.stalled
    assert "maximum bytes exceeded" in bus.stalled
    await bus.js.purge_stream(subjects.TASKS)
    assert (await stored).seq == full + 1
    assert bus.stalled == ""


def test_every_stream_has_a_bound_in_bytes_and_all_but_work_queues_one_in_time() -> None:
    for config in stream_configs():
        assert config["max_bytes"] > 0
        assert config["max_age"] > 0 or config["retention"] == "workqueue"
        assert config["discard"] == ("new" if config["retention"] == "workqueue" else "old")
