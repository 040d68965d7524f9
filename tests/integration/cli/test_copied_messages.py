"""Messages of NATS in a backup: what comes back is what was there, batches too."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hocket.cli.backups import messages
from hocket.coordinator.intake.arrival import Arrival, read_arrival
from hocket.coordinator.intake.task_message import Task
from hocket.coordinator.journals.stored_journals import (
    NO_JOURNAL,
    JournalEnd,
    StoredJournals,
    digest_of,
)
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.post_batches import MIN_POSTS, Post, PostBatches
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects

TIMEOUT_S = 30.0


async def test_tasks_of_a_batch_come_back_each_by_itself(bus: Bus, tmp_path: Path) -> None:
    subject = subjects.batched_task("t", "p")
    posts = [Post(subject, b"%d" % n, f"id-{n}", {"ce-id": str(n)}) for n in range(MIN_POSTS)]
    assert await PostBatches(bus).post(posts, timeout_s=TIMEOUT_S) == [None] * MIN_POSTS
    folder = tmp_path / "nats"
    assert (await messages.copy_out(bus, folder))[subjects.TASK_BATCHES] == MIN_POSTS
    await bus.js.delete_stream(subjects.TASK_BATCHES)  # with the ids that it knows
    await ensure_streams(bus)

    assert (await messages.copy_in(bus, folder))[subjects.TASK_BATCHES] == MIN_POSTS

    state = (await bus.js.stream_info(subjects.TASK_BATCHES)).state
    back = [
        await bus.js.get_msg(subjects.TASK_BATCHES, seq, direct=False)
        for seq in range(state.first_seq, state.last_seq + 1)
    ]
    assert [(one.data, (one.headers or {})["ce-id"]) for one in back] == [
        (post.payload, post.headers["ce-id"]) for post in posts
    ]


async def arrival(bus: Bus, stream: str) -> Arrival:
    """Return the first task of a stream as intake reads it."""
    pull = await bus.js.pull_subscribe("", durable="test", stream=stream)
    [message] = await pull.fetch(1)
    await pull.unsubscribe()
    lines = "".join(f"{name}: {value}\r\n" for name, value in (message.headers or {}).items())
    head = f"NATS/1.0\r\n{lines}\r\n".encode() if lines else b""
    raw = RawMessage(message.subject, message.reply, message.data, head)
    return read_arrival(raw, max_bytes=1_000)


@pytest.mark.parametrize(
    ("stream", "subject"),
    [
        (subjects.TASKS, subjects.task("t", "p")),
        (subjects.TASK_BATCHES, subjects.batched_task("t", "p")),
    ],
)
async def test_a_task_without_a_key_is_the_same_run_after_it_is_restored(
    bus: Bus, tmp_path: Path, stream: str, subject: str
) -> None:
    await bus.js.publish(subject, b'{"text": "hi"}')
    first = await arrival(bus, stream)
    assert not first.is_doubtful
    for copy in ("one", "of what was restored"):
        folder = tmp_path / copy
        await messages.copy_out(bus, folder)
        await bus.js.delete_stream(stream)
        await ensure_streams(bus)
        await bus.js.publish(subject, b"{}", headers={"Hocket-Idempotency-Key": "other"})
        await bus.js.purge_stream(stream)
        await messages.copy_in(bus, folder)

        back = await arrival(bus, stream)

        assert isinstance(first.task, Task)
        assert isinstance(back.task, Task)
        assert (back.task.run_id, back.task.key) == (first.task.run_id, None)
        assert back.is_doubtful, "its run may be in Postgres"
        assert back.stored_at_ms == first.stored_at_ms, "it may have been refused since"


async def test_a_task_with_a_key_comes_back_with_the_time_at_which_it_was_stored(
    bus: Bus, tmp_path: Path
) -> None:
    await bus.js.publish(subjects.task("t", "p"), b"{}", headers={"ce-id": "1"})
    first = await arrival(bus, subjects.TASKS)
    folder = tmp_path / "nats"
    await messages.copy_out(bus, folder)
    await bus.js.delete_stream(subjects.TASKS)
    await ensure_streams(bus)
    await messages.copy_in(bus, folder)
    assert (await arrival(bus, subjects.TASKS)).stored_at_ms == first.stored_at_ms


async def test_a_copy_of_an_earlier_release_lacks_streams(bus: Bus, tmp_path: Path) -> None:
    folder = tmp_path / "nats"
    await bus.publish(subjects.task("t", "p"), b"{}")
    await messages.copy_out(bus, folder)
    (folder / f"{subjects.TASK_BATCHES}.jsonl").unlink()
    copied = await messages.copy_in(bus, folder)
    assert (copied[subjects.TASKS], copied[subjects.TASK_BATCHES]) == (1, 0)


async def test_a_journal_comes_back_and_can_be_continued(bus: Bus, tmp_path: Path) -> None:
    subject = subjects.journal("r1", "charge")
    journals, seq = StoredJournals(bus), 0
    for number, entry in enumerate((b"opened", b"card charged")):
        end = JournalEnd(0, number, len(entry), number, 1, 1.0, digest_of(entry))
        seq = await journals.add(subject, entry, end, seq)
    folder = tmp_path / "nats"
    assert (await messages.copy_out(bus, folder))[subjects.JOURNALS] == 2
    await bus.js.delete_stream(subjects.JOURNALS)
    await ensure_streams(bus)
    other = StoredJournals(bus)
    await other.add(subjects.journal("r2", "a"), b"opened", replace(NO_JOURNAL, number=0), 0)

    assert (await messages.copy_in(bus, folder))[subjects.JOURNALS] == 2

    found, more = await other.page(subject, 0)
    assert ([one.body for one in found], more) == ([b"opened", b"card charged"], False)
    last = await other.end_of(subject)
    assert (last.number, last.digest) == (1, digest_of(b"card charged"))
    await other.add(subject, b"mail sent", replace(last, number=2), last.seq)


async def test_tasks_of_two_tenants_under_the_same_id_come_back_both(
    bus: Bus, tmp_path: Path
) -> None:
    """A stream forgets ids soon, but not between two messages that are restored one after the other."""
    for tenant in ("t", "u"):
        async with asyncio.timeout(TIMEOUT_S):
            while (await bus.publish(subjects.task(tenant, "p"), b"{}", msg_id="1")).duplicate:
                pass
    folder = tmp_path / "nats"
    assert (await messages.copy_out(bus, folder))[subjects.TASKS] == 2
    await bus.js.delete_stream(subjects.TASKS)
    await ensure_streams(bus)

    await messages.copy_in(bus, folder)

    assert (await bus.js.stream_info(subjects.TASKS)).state.messages == 2
    back = (await arrival(bus, subjects.TASKS)).task
    assert isinstance(back, Task)
    assert back.key == "1"


@pytest.mark.parametrize("asked", ["STREAM.INFO", "STREAM.MSG.GET"])
async def test_a_stream_that_cannot_be_read_now_is_not_taken_for_an_empty_one(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    await bus.publish(subjects.task("t", "p"), b"{}")
    error = {
        "code": 503,
        "err_code": 10_008,
        "description": "JetStream system temporarily unavailable",
    }
    api = bus.api

    async def without_leader(subject: str, request: dict[str, Any], *, timeout_ms: float) -> Any:
        if subject == f"{asked}.{subjects.TASKS}":
            return {"error": error}
        return await api(subject, request, timeout_ms=timeout_ms)

    monkeypatch.setattr(bus, "api", without_leader)

    with pytest.raises(BusUnavailable, match="TASKS: JetStream system temporarily unavailable"):
        await messages.copy_out(bus, tmp_path / "nats")
    if asked == "STREAM.INFO":
        with pytest.raises(BusUnavailable, match="TASKS: JetStream system"):
            await messages.messages_in(bus)


async def test_a_task_as_large_as_the_server_allows_does_not_end_the_restore(
    bus: Bus, tmp_path: Path
) -> None:
    """A restored task has more headers than it had; those that follow must come back all the same."""
    largest = b"x" * bus.nc.max_payload
    await bus.nc.publish(subjects.task("t", "p"), largest)
    await bus.publish(subjects.task("t", "p"), b"{}")
    folder = tmp_path / "nats"
    assert (await messages.copy_out(bus, folder))[subjects.TASKS] == 2
    await bus.js.delete_stream(subjects.TASKS)
    await ensure_streams(bus)

    assert (await messages.copy_in(bus, folder))[subjects.TASKS] == 2

    assert (await bus.js.stream_info(subjects.TASKS)).state.messages == 2
    assert (await bus.js.get_msg(subjects.TASKS, 1)).data == largest
