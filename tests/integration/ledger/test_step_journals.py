"""Journals of steps are shown with their run, and go when it has ended for a while."""

import threading
from typing import Any

import pytest

from hocket.admin.runs import step_journals as shown_journals
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.postgres.database import connect_pool
from hocket.ledger import step_journals
from hocket.schemas import journals, subjects
from hocket.schemas.journals import JournalEntry, JournalWritten
from hocket.schemas.messages import encoded
from support.administration.console_rig import PAGE
from support.rest_rig import running_rest

RUNS = tuple(f"r{number:024x}" for number in range(4))
ADD = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
    accepted_at, deadline_at, finished_at)
VALUES ($1, 0, 'default', 'p', 1,
    CASE WHEN $2::float8 IS NULL THEN 'running' ELSE 'succeeded' END, 'standard', '{}', now(), now(),
    now() - make_interval(secs => $2::float8))
"""


async def write(
    bus: Bus, run_id: str, *, name: str = "charge", step: str = "s", entries: int = 1
) -> None:
    subject = subjects.journal(run_id, journals.name_of(run_id, step))
    entry = JournalEntry(
        ordinal=1, name=name, value="paid", started_at_ms=1e12, finished_at_ms=1e12 + 5
    )
    all_of_them = (entry,) * entries
    body = encoded(
        JournalWritten(run_id=run_id, step=step, attempt=2, number=0, entries=all_of_them)
    )
    await bus.publish(subject, body)


async def test_journals_are_shown_and_go_after_their_run(
    nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_rest(nats_url, database_url) as rest:
        for run_id in RUNS:
            await write(rest.bus, run_id)
        await rest.pool.execute("INSERT INTO hocket.partition (partition) VALUES (0)")
        for run_id, ended_s_ago in zip(RUNS[:3], (None, 100.0, 10_000.0), strict=True):
            await rest.pool.execute(ADD, run_id, ended_s_ago)
        shown = (await rest.get(f"/v1/runs/{RUNS[0]}/journal")).body
        assert [(one["step"], one["name"], one["attempt"]) for one in shown["entries"]] == [
            ("s", "charge", 2)
        ]
        assert (shown["entries"][0]["duration_ms"], shown["truncated"]) == (5, False)
        assert await step_journals.remove_ended(rest.bus, rest.pool) == 1
        counts = [
            len((await rest.get(f"/v1/runs/{run}/journal")).body["entries"]) for run in RUNS[:3]
        ]
        assert counts == [1, 1, 0]
        assert await rest.stored(subjects.JOURNALS) == 3  # that of the run nobody knows yet, too
        monkeypatch.setattr(step_journals, "UNKNOWN_KEPT_S", 0.0)
        assert await step_journals.remove_ended(rest.bus, rest.pool) == 1
        assert await rest.stored(subjects.JOURNALS) == 2


async def test_the_first_entries_of_a_long_journal_are_shown(
    nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read in a thread, with one of its tenant's places for what takes long."""
    async with running_rest(nats_url, database_url) as rest:
        for number in range(6):
            for step in ("s", "t"):
                await write(rest.bus, RUNS[0], name=f"{step}{number}", step=step, entries=1_000)
        await rest.pool.execute("INSERT INTO hocket.partition (partition) VALUES (0)")
        await rest.pool.execute(ADD, RUNS[0], None)
        read, seen = shown_journals.read_kept, set[tuple[bool, int]]()

        def decode(body: bytes) -> Any:
            own = rest.app.state.context.long_reads._tenants.get("default")
            on_the_loop = threading.current_thread() is threading.main_thread()
            seen.add((on_the_loop, 0 if own is None else own.clients))
            return read(body)

        monkeypatch.setattr(shown_journals, "read_kept", decode)
        shown = (await rest.get(f"/v1/runs/{RUNS[0]}/journal")).body
        assert (len(shown["entries"]), shown["truncated"]) == (5_000, True)
        assert seen == {(False, 1)}
        page = await rest.get(f"/console/runs/{RUNS[0]}?view=journal", headers=PAGE)
        assert "More entries exist than are shown." in page.body
        monkeypatch.setattr(shown_journals, "MAX_SHOWN_ENTRIES", 12_000)
        shown = (await rest.get(f"/v1/runs/{RUNS[0]}/journal")).body
        assert (len(shown["entries"]), shown["truncated"]) == (12_000, False)


async def test_a_crowded_stream_drops_what_has_ended_at_once(
    nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await Bus.connect(nats_url, name="test")
    pool = await connect_pool(database_url, size=1, name="test")
    await ensure_streams(bus)
    await pool.execute("INSERT INTO hocket.partition (partition) VALUES (0)")
    await pool.execute(ADD, RUNS[0], 1.0)
    await write(bus, RUNS[0])
    assert await step_journals.remove_ended(bus, pool) == 0
    monkeypatch.setattr(step_journals, "CROWDED_SHARE", 1e-9)
    assert await step_journals.remove_ended(bus, pool) == 1
    await pool.close()
    await bus.close()


async def test_journals_behind_many_that_are_in_use_go_too(
    nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass examines one page of two journals and goes on where the one before it stopped, although
    what was removed moves the others up; after the last page comes the first."""
    monkeypatch.setattr(step_journals, "MAX_SUBJECTS", 2)
    bus = await Bus.connect(nats_url, name="test")
    pool = await connect_pool(database_url, size=1, name="test")
    await ensure_streams(bus)
    await pool.execute("INSERT INTO hocket.partition (partition) VALUES (0)")
    runs = [f"r{number:024x}" for number in range(7)]
    ended = {runs[number] for number in (2, 5, 6)}
    for run_id in runs:
        await pool.execute(ADD, run_id, 10_000.0 if run_id in ended else None)
        await write(bus, run_id)
    position = step_journals.Position()
    passes = []
    for _ in range(5):
        removed = await step_journals.remove_ended(bus, pool, position=position)
        passes.append((removed, position.offset))
    # 0 1 | 2 3 | 4 5 | 6, then 0 1 | 3 4
    assert passes == [(0, 2), (1, 3), (1, 4), (1, 0), (0, 2)]
    await pool.close()
    await bus.close()
