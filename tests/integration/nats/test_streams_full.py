"""A stream without room refuses its publisher in words, and a post that waits says so."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from nats.js.errors import APIError

from hocket.coordinator.partition.events import log_trimmer
from hocket.coordinator.partition.events.log_reader import identity_at
from hocket.coordinator.partition.events.log_trimmer import LogTrimmer
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection import durable_publisher
from hocket.kit.nats.streams import stream_configs
from hocket.schemas import subjects

MAX_BYTES = 64 * 1024
SUBJECT = subjects.task("default", "any")

UNTIL_DONE = (subjects.TASKS, subjects.TASK_BATCHES)
REFUSING = (
    *UNTIL_DONE,
    subjects.LOG,
    subjects.JOURNALS,
    subjects.GUEST_WORKERS,
    subjects.GUEST_TYPES,
)


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
    monkeypatch.setattr(durable_publisher, "STALLED_S", 0.2)
    assert bus.publisher.stalled == ""
    stored = bus.publish_durable(SUBJECT, b"y" * 1_000)
    while not bus.publisher.stalled:  # noqa: ASYNC110 - time has to pass
        await asyncio.sleep(0.05)
    assert f"`{SUBJECT}` is not acknowledged" in bus.publisher.stalled
    assert "maximum bytes exceeded" in bus.publisher.stalled
    await bus.js.purge_stream(subjects.TASKS)
    assert (await stored).seq == full + 1
    assert bus.publisher.stalled == ""


def test_every_stream_has_a_bound_in_bytes_and_all_but_queues_one_in_time() -> None:
    for config in stream_configs():
        assert config["max_bytes"] > 0
        is_queue = config["retention"] == "workqueue"
        assert config["max_age"] > 0 or is_queue or config["name"] in UNTIL_DONE
        refuses = is_queue or config["name"] in REFUSING
        assert config["discard"] == ("new" if refuses else "old")


# ---- LOG -----------------------------------------------------------------------------------------


class Logs:
    """LOG with a small bound, and what Postgres says that its partitions have applied."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.applied: dict[int, tuple[int, str]] = {}
        store: Any = SimpleNamespace(applied=self._applied)
        self.trimmer = LogTrimmer(bus, store, partitions=3, is_mine=lambda: True)

    async def _applied(self) -> dict[int, tuple[int, str]]:
        return self.applied

    async def bound(self, **changes: Any) -> None:
        info = await self.bus.api(f"STREAM.INFO.{subjects.LOG}", {}, timeout_ms=5_000)
        changed = {**info["config"], "max_bytes": MAX_BYTES, **changes}
        answer = await self.bus.api(f"STREAM.UPDATE.{subjects.LOG}", changed, timeout_ms=5_000)
        assert "error" not in answer

    async def post(self, partition: int, count: int = 1) -> int:
        """Post until it is refused, or so many; return the place of the last one."""
        seq = 0
        for _ in range(count):
            try:
                seq = (await self.bus.js.publish(f"hocket.log.{partition}.x", b"x" * 1_000)).seq
            except APIError as error:
                if error.description == "maximum bytes exceeded":
                    break
                raise
        return seq

    async def apply(self, partition: int, seq: int) -> None:
        identity = await identity_at(self.bus, seq)
        assert identity is not None
        self.applied[partition] = (seq, identity)

    async def first(self) -> int:
        return (await self.bus.js.stream_info(subjects.LOG)).state.first_seq


@pytest.fixture
async def logs(bus: Bus) -> Logs:
    logs = Logs(bus)
    await logs.bound()
    return logs


async def test_a_full_log_refuses_and_drops_nothing_that_is_not_applied(logs: Logs) -> None:
    signal = await logs.post(2)
    last = await logs.post(0, 1_000)
    assert 20 < last < 100
    assert await logs.first() == signal == 1, "nothing was dropped"
    await logs.apply(0, last)
    assert logs.trimmer.reason == ""
    await logs.trimmer.look()
    assert await logs.first() == signal, "it is not applied"
    assert "LOG" in logs.trimmer.reason, "intake stops"
    await logs.apply(2, signal)
    await logs.trimmer.look()
    assert signal < await logs.first() < last, "what there is room for is kept"
    assert await logs.post(1) == last + 1
    await logs.trimmer.look()
    assert logs.trimmer.reason == ""


async def test_what_partitions_have_not_applied_is_kept_wherever_it_stands(logs: Logs) -> None:
    await logs.post(0, 15)
    place = await logs.post(1)
    last = await logs.post(0, 30)
    await logs.apply(0, last)
    await logs.trimmer.look()
    assert await logs.first() == place
    await logs.trimmer.look()
    assert await logs.first() == place


async def test_a_log_that_was_rewound_is_kept_whole(logs: Logs) -> None:
    last = await logs.post(0, 45)
    logs.applied = {0: (last - 1, "another message@1")}
    await logs.trimmer.look()
    assert await logs.first() == 1
    logs.applied = {0: (last + 1_000, "lost@1")}
    await logs.trimmer.look()
    assert await logs.first() == 1


async def test_a_log_of_an_older_release_refuses_once_there_is_room(logs: Logs) -> None:
    await logs.bound(discard="old")
    last = await logs.post(0, 45)
    await logs.apply(0, last)
    for _ in range(2):
        await logs.trimmer.look()
    info = await logs.bus.js.stream_info(subjects.LOG)
    assert info.config.discard == "new"
    assert info.state.last_seq == last
    assert log_trimmer.TRIM_SHARE > log_trimmer.KEEP_SHARE
