"""Whoever asks for journals shows that he was handed the step; what he claims is checked."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import asyncpg
import pytest
from nats.aio.msg import Msg

from hocket.coordinator.journals import former_runs
from hocket.coordinator.journals import room as room_module
from hocket.coordinator.journals.door import QUEUE, JournalDoor
from hocket.coordinator.journals.former_runs import MARGIN_MS, FormerRuns
from hocket.coordinator.journals.room import JournalRoom
from hocket.schemas import subjects
from hocket.schemas.journals import (
    JournalEntry,
    JournalKept,
    JournalPage,
    JournalRead,
    JournalWrite,
)
from hocket.schemas.messages import StepRequested, encoded
from hocket.workers.runtime.execution.context import Context
from support.durable.rig import CAPABILITIES, TYPE, again, capable, durable_rig, ok, send, worker
from support.worker_rig import Rig

Answer = TypeVar("Answer", JournalPage, JournalKept)


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    async with durable_rig(nats_url) as rig:
        yield rig


ADD = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
    accepted_at, deadline_at)
VALUES ($1, 0, 'acme', 'p', 1, 'running', 'standard', '{}', to_timestamp($2::float8), now())
"""
ENTRY = JournalEntry(ordinal=1, name="charge", value="forged", started_at_ms=1, finished_at_ms=1)


async def ask(rig: Rig, asked: JournalRead | bytes, answer: type[Answer]) -> Answer:
    verb = subjects.JOURNAL_READ if answer is JournalPage else subjects.JOURNAL_WRITE
    body = asked if isinstance(asked, bytes) else encoded(asked)
    reply = await rig.bus.request(f"{verb}.durable-step", body, timeout_ms=5_000)
    return answer.model_validate_json(reply.data)


def head(step: StepRequested, /, **changes: Any) -> dict[str, Any]:
    return {
        name: getattr(step, name) for name in JournalRead.model_fields if name != "after_seq"
    } | (changes)


async def test_a_journal_is_for_those_who_were_handed_the_step(rig: Rig) -> None:
    now_ms = round(time.time() * 1000)
    first = capable(rig.step(dispatched_at_ms=now_ms))
    assert (await ask(rig, JournalWrite(**head(first), entries=(ENTRY,)), JournalKept)).seq > 0
    assert len((await ask(rig, JournalRead(**head(first)), JournalPage)).messages) == 1
    strangers = (
        {"capability": None}, {"capability": "0" * 32}, {"capability": "\u00e9"}, {"step": "t"},
        {"attempt": 2}, {"attempt": 99}, {"dispatched_at_ms": now_ms + 1}, {"tenant": "other"},
        {"run_id": "r" + "9" * 24}, {"run_id": "*"}, {"run_id": "a.b"},
    )  # fmt: skip
    for claim in strangers:
        page = await ask(rig, JournalRead(**head(first, **claim)), JournalPage)
        kept = await ask(rig, JournalWrite(**head(first, **claim), entries=(ENTRY,)), JournalKept)
        assert (page.refusal, page.messages, kept.refusal) == ("refused", (), "refused"), claim
    second = capable(first.model_copy(update={"attempt": 2, "dispatched_at_ms": now_ms + 5}))
    seq = (await ask(rig, JournalRead(**head(second)), JournalPage)).last_seq
    opened = JournalWrite(**head(second), after_seq=seq, input_digest="mine")
    kept_seq = (await ask(rig, opened, JournalKept)).seq
    assert kept_seq > seq
    assert (await ask(rig, opened, JournalKept)).seq == kept_seq  # asked again: stored once
    page = await ask(rig, JournalRead(**head(first)), JournalPage)
    assert (page.refusal, page.messages) == ("taken", ())
    late = JournalWrite(**head(first), after_seq=kept_seq, entries=(ENTRY,))
    assert (await ask(rig, late, JournalKept)).refusal == "taken"
    for after_seq, refusal in ((0, "taken"), (seq, "taken"), (kept_seq + 9, "unavailable")):
        other = JournalWrite(**head(second), after_seq=after_seq, entries=(ENTRY,))
        assert (await ask(rig, other, JournalKept)).refusal == refusal
    assert len((await ask(rig, JournalRead(**head(second)), JournalPage)).messages) == 2


@pytest.mark.parametrize(
    ("accepted_after_ms", "begins_anew"),
    [(MARGIN_MS + 1, True), (MARGIN_MS - 1, False), (-1.0, False), (None, False)],
    ids=["of a deleted run", "accepted anew", "of this run", "not in Postgres"],
)
async def test_what_a_deleted_run_has_done_is_done_again_by_the_next_of_its_id(
    nats_url: str,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    accepted_after_ms: float | None,
    begins_anew: bool,
) -> None:
    monkeypatch.setattr(former_runs, "APPEARS_WITHIN_S", 0.2)
    now_ms = round(time.time() * 1000)
    rig = await Rig.open(nats_url)
    async with (
        asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool,
        JournalDoor(rig.bus, CAPABILITIES, FormerRuns(pool)).open(),
    ):
        former = capable(rig.step(dispatched_at_ms=now_ms))
        await ask(rig, JournalWrite(**head(former), entries=(ENTRY,)), JournalKept)
        if accepted_after_ms is not None:
            at_s = (now_ms + accepted_after_ms) / 1000
            await pool.execute("INSERT INTO hocket.partition (partition) VALUES (0)")
            await pool.execute(ADD, former.run_id, at_s)
        later = capable(former.model_copy(update={"dispatched_at_ms": now_ms + 70_000}))
        page = await ask(rig, JournalRead(**head(later)), JournalPage)
        assert (page.messages == ()) is begins_anew
        kept = JournalWrite(**head(later), after_seq=page.last_seq, entries=(ENTRY,))
        assert (await ask(rig, kept, JournalKept)).refusal is None
        page = await ask(rig, JournalRead(**head(later)), JournalPage)
        assert len(page.messages) == (1 if begins_anew else 2)
    await rig.close()


async def test_one_tenant_does_not_fill_the_stream_for_all(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def written(tenant: str, size: int) -> JournalKept:
        step = capable(rig.step(tenant=tenant))
        entry = ENTRY.model_copy(update={"value": "x" * size})
        return await ask(rig, JournalWrite(**head(step), entries=(entry,)), JournalKept)

    room = JournalRoom(rig.bus)
    await room.measure()
    assert room.refusal("flood", 100) is None
    stream_bytes = int((await rig.bus.js.stream_info(subjects.JOURNALS)).config.max_bytes or 0)
    monkeypatch.setattr(room_module, "TENANT_SHARE", 1_000_000 / stream_bytes)
    async with JournalDoor(rig.bus, CAPABILITIES).open():  # beside that of the rig
        refused: list[JournalKept] = []
        for _ in range(60):  # either door may be asked
            kept = await written("flood", 200_000)
            refused = [*refused, kept] if kept.refusal else []
            if len(refused) == 12:
                break
        assert {one.refusal for one in refused} == {"full"}
        assert "journals of the tenant's runs come to about" in refused[0].reason
        assert [(await written("other", 1_000)).refusal for _ in range(8)] == [None] * 8
    started = JournalRoom(rig.bus)  # of a coordinator that does not know who filled the stream
    await started.measure()
    assert started.refusal("other", 1_000) is None
    assert started.refusal("flood", 1_000_000) is not None


async def test_a_coordinator_that_stands_still_costs_no_step_its_journal(rig: Rig) -> None:
    in_vain = 0

    async def run(_given: Any, context: Context) -> str:
        return str(await context.step("charge", lambda: "paid"))

    async def never_answers(_question: Msg) -> None:
        nonlocal in_vain
        in_vain += 1

    for verb in (subjects.JOURNAL_READ, subjects.JOURNAL_WRITE):
        await rig.bus.subscribe(f"{verb}.durable-step", never_answers, queue=QUEUE)
    async with worker(rig, run):
        sent = [await send(rig) for _ in range(8)]
        results = [ok(await rig.result(step, within_s=90)) for step in sent]
    assert results == ["paid"] * 8
    assert in_vain > 0


async def test_questions_that_are_none_are_refused_with_a_reason(rig: Rig) -> None:
    step = capable(rig.step())
    fine = JournalWrite(**head(step), entries=(ENTRY,)).model_dump(mode="json")

    def spoiled(**changes: Any) -> bytes:
        return json.dumps(fine | {"entries": [fine["entries"][0] | changes]}).encode()

    hostile = {
        b"": "", b"[]": "", b"\xff": "", b"[" * 100_000: "",
        spoiled(ordinal=-1): "ordinal", spoiled(kind="x"): "kind", spoiled(name="a\nb"): "name",
        spoiled(name="a\n"): "name", spoiled(started_at_ms=1e300): "started_at_ms",
        spoiled(cost_usd="NaN"): "cost_usd", spoiled(cost_usd="-1"): "cost_usd",
        json.dumps(fine | {"entries": fine["entries"] * 1_001}).encode(): "entries",
    }  # fmt: skip
    for body, field in hostile.items():
        kept = await ask(rig, body, JournalKept)
        assert kept.refusal == "refused", body[:80]
        assert field in kept.reason
    for body in (spoiled(value="x" * 300_000), b" " * 700_000):
        assert (await ask(rig, body, JournalKept)).refusal == "full"
    deep = spoiled(value=None).replace(b'"value": null', b'"value": ' + b"[" * 190 + b"]" * 190)
    assert (await ask(rig, deep, JournalKept)).seq > 0  # opaque: whoever reads it has its fault


async def test_entries_that_nobody_can_read_cost_their_own_step_only(rig: Rig) -> None:
    async def run(_given: Any, context: Context) -> str:
        return str(await context.step("charge", lambda: "paid"))

    spoiled, healthy = capable(rig.step(type=TYPE, journal=True)), rig.step(type=TYPE, journal=True)
    told = JournalWrite(**head(spoiled), entries=(ENTRY,)).model_dump(mode="json")
    body = json.dumps(told).encode().replace(b'"forged"', b'"\xff"').replace(
        b'"error": null', b'"error": {"code": 7}'
    )  # fmt: skip
    await ask(rig, body, JournalKept)
    async with worker(rig, run):
        error = (await again(rig, spoiled)).error
        assert ok(await rig.result(await send(rig, **healthy.model_dump()))) == "paid"
    assert error is not None
    assert error.code == "journal_incomplete"
