"""Hostile values through every door, read back in every view (docs/reference/values.md): each is
stored as it came, or refused with the name of its place, and none stops anybody else's run.

`HOCKET_VALUE_MIXTURES` asks for more random ones, `HOCKET_VALUE_SEED` for others.
"""

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.handlers import value_handlers
from support.values.comparison import LARGE, same
from support.values.hostile_values import CARRIED, REFUSED, mixtures, packed
from support.values.values_rig import (
    DOORS,
    UNSAFE,
    VIEWS,
    House,
    by_handler,
    by_model,
    by_nats,
    by_rest,
    house,
    printed,
)

MIXTURES = int(os.environ.get("HOCKET_VALUE_MIXTURES", "16"))
SEED = int(os.environ.get("HOCKET_VALUE_SEED", "1"))
FIRST_DOOR = next(iter(DOORS))
LIMITS = {"REST rerun": 65_000}
"""Bytes, where a door takes less than a task may have: a step's input travels in a header."""


@pytest.fixture(scope="module")
async def hall() -> AsyncIterator[House]:
    async with house() as found:
        yield found
        total = sum(found.cells.values())
        print(f"\n{total} cells (value, door, view) were right:")
        for cell, count in sorted(found.cells.items()):
            print(f"  {count:5} {cell}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("door", DOORS)
async def test_what_is_carried_shows_everywhere_as_it_came(hall: House, door: str) -> None:
    """Each value alone by the first door; by the others those that are small together, in one list: what
    a view shows of a run does not depend on the door."""
    values = [*CARRIED, *(one for one in mixtures(SEED, MIXTURES) if one.refused is None)]
    for value in values if door == FIRST_DOOR else packed(values):
        outcome = await DOORS[door](hall, value.text)
        if len(value.text) > LIMITS.get(door, len(value.text)):
            assert outcome.error["field"] == "step_input", (door, value.name, outcome)
            hall.cell(door, "refusal")
            continue
        assert outcome.status == "succeeded", (door, value.name, outcome)
        for view, look in VIEWS.items():
            assert same(await look(hall, outcome), value.expected), (door, value.name, view)
            hall.cell(door, view)
        if len(value.text) < LARGE:
            shown = await printed(hall, outcome)
            assert not UNSAFE.search(shown), (door, value.name, shown)
            hall.cell(door, "CLI for people")
    await hall.healthy()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("door", DOORS)
async def test_what_is_not_carried_is_refused_by_its_place(hall: House, door: str) -> None:
    values = [*REFUSED, *(one for one in mixtures(SEED, MIXTURES) if one.refused is not None)]
    for value in values:
        outcome = await DOORS[door](hall, value.text)
        assert outcome.refused, (door, value.name, outcome)
        message = outcome.error["message"]
        assert str(value.refused) in message, (door, value.name, outcome.error)
        place = outcome.error["field"] or outcome.error["details"].get("path")
        assert place, (door, value.name, outcome.error)
        assert not UNSAFE.search(message), (door, value.name)
        assert len(message) < 2_000
        hall.cell(door, "refusal")
    await hall.healthy()


@pytest.mark.timeout(300)
async def test_what_the_task_door_refused_is_kept_and_shown(hall: House) -> None:
    for value in REFUSED:
        await by_nats(hall, value.text)
        letters = (await hall.get("/v1/dead-letters", limit="1"))["dead_letters"]
        assert letters[0]["error"]["message"], value.name
        whole = await hall.get(f"/v1/dead-letters/{letters[0]['seq']}")
        assert whole["payload_bytes"] == len(value.text) + 7, value.name
        shown, error = await hall.cli("dlq", "show", str(letters[0]["seq"]))
        assert error is None, (value.name, error)
        assert not UNSAFE.search(shown), (value.name, shown)
        hall.cell("NATS task", "dead letter")
    shown, error = await hall.cli("dlq", "list", "--limit", "500")
    assert error is None
    assert not UNSAFE.search(shown)
    await hall.healthy()


MADE: dict[str, Any] = {
    "nan": None,
    "infinity": [None, None],
    "nul": "a\ufffdb",
    "a key with nul": {"a\ufffdb": 1},
    "half of a pair": "a\ufffdb",
    "two halves": "\ufffd\ufffd",
    "decimal": "1E-20000",
    "moment": "2026-01-02T00:00:00Z",
    "set": [1],
    "tuple": [1, 2],
    "2^70": 2**70,
    "a number as key": {"1": 2},
    "depth 30": value_handlers.MADE["depth 30"],
    "terminal": "\x1b[31m\u202e",
    "template": "{{ 7*7 }}",
}
"""What python nodes return, as it is stored; the others fail their step."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*value_handlers.MADE, "itself"])
async def test_what_a_handler_returns_is_stored_as_json_or_fails_its_step(
    hall: House, name: str
) -> None:
    outcome = await by_handler(hall, name)
    if name in MADE:
        assert outcome.status == "succeeded", outcome
        for view, look in VIEWS.items():
            assert same(await look(hall, outcome), MADE[name]), (name, view)
            hall.cell("python result", view)
    else:
        assert outcome.status == "failed", outcome
        assert outcome.error["message"]
        hall.cell("python result", "error")
    assert not UNSAFE.search(await printed(hall, outcome))
    await hall.healthy()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("index", range(len(value_handlers.RAISED)))
async def test_what_a_handler_raises_is_told_as_text(hall: House, index: int) -> None:
    outcome = await by_handler(hall, index)

    assert outcome.status == "failed"
    said = value_handlers.RAISED[index].replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    row = await hall.database.fetchval(
        "SELECT error ->> 'message' FROM hocket.run WHERE run_id = $1", outcome.run_id
    )
    for told in (outcome.error["message"], row):
        assert said[:200] in told, told
        assert len(told) < 20_500
    assert not UNSAFE.search(await printed(hall, outcome))
    hall.cell("python error", "REST run, Postgres run, CLI for people")
    await hall.healthy()


SAID = {
    "nul": ("a\x00b", "a\ufffdb"),
    "half of a pair": ("a\ud800b", "a\ufffdb"),
    "terminal": ("\x1b]0;x\x07\u202e",) * 2,
    "template": ("{{ 7*7 }}",) * 2,
    "empty": ("",) * 2,
    "emoji": ("👩‍👩‍👧‍👦",) * 2,
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SAID)
async def test_what_a_model_says_is_stored_as_text(hall: House, name: str) -> None:
    said, stored = SAID[name]
    outcome = await by_model(hall, {"content": said})

    assert outcome.run_id, outcome
    if outcome.status == "succeeded":
        for view, look in VIEWS.items():
            if view not in NOT_OF_MODELS:
                assert await look(hall, outcome) == stored, (name, view)
                hall.cell("model", view)
    else:
        assert name not in ("terminal", "template", "emoji"), outcome
        assert outcome.error["message"]
        hall.cell("model", "error")
    await hall.healthy()


@pytest.mark.timeout(300)
async def test_a_text_beyond_a_message_is_kept_as_a_reference(hall: House) -> None:
    outcome = await by_model(hall, {"content": "x" * 1_000_000})

    for view, look in VIEWS.items():
        if view not in NOT_OF_MODELS:
            assert (await look(hall, outcome))["size"] == 1_000_000, view
            hall.cell("model", view)
    await hall.healthy()


NOT_OF_MODELS = ("REST steps", "Postgres step")
"""There a step's whole result stands, which is not the text alone."""

HEADERS = (
    "Hocket-Idempotency-Key", "Hocket-Deadline-Ms", "Hocket-Deadline", "Hocket-Class",
    "Hocket-Budget-Usd", "Hocket-Version", "Hocket-Progress", "Hocket-Origin-Run",
    "Hocket-Operation", "Hocket-From-Step", "Hocket-Step-Input", "ce-id", "ce-source", "ce-type",
    "traceparent", "Nats-Msg-Id", "content-type", "X-Mine",
)  # fmt: skip
TEXTS = (
    "a\x00b", "\x1b[31m", "\u202ex", "e\u0301", "👩‍👩‍👧‍👦", "x" * 5_000, "{{ 7*7 }}", "1e-20000",
    "1e200000", "-0", "NaN", "0x10", "\u0661", "1_000", "9" * 5_000, "-1", "1e400",
    '{"v": 1, "v": 2}', "[" * 1_000,
)  # fmt: skip


NEED_AN_ORIGIN = ("Hocket-Operation", "Hocket-From-Step", "Hocket-Step-Input")
"""They may also be refused because `Hocket-Origin-Run` is missing; the error names both."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("header", HEADERS)
async def test_a_header_is_taken_or_refused_by_its_name(hall: House, header: str) -> None:
    for number, text in enumerate(TEXTS):
        told = await by_nats(hall, b'"%d"' % number, {header: text})
        if told.refused:
            named = {header, "Hocket-Origin-Run"} if header in NEED_AN_ORIGIN else {header}
            assert told.error["field"] in named, (header, text[:20], told.error)
            assert f"`{header}`" in told.error["message"]
            assert not UNSAFE.search(told.error["message"]), (header, text[:20])
            hall.cell(f"header {header}", "refusal")
        else:
            assert told.status == "succeeded", (header, text[:20], told)
            row = await hall.get(f"/v1/runs/{told.run_id}")
            assert row["budget_usd"] is None or 0 <= float(row["budget_usd"]) <= 1e9
            assert not UNSAFE.search(await printed(hall, told))
            hall.cell(f"header {header}", "REST run, CLI for people")
    await hall.healthy()


FIELDS: dict[str, tuple[str, dict[str, Any]]] = {
    "pipeline": ("/v1/runs", {}),
    "idempotency_key": ("/v1/runs", {"pipeline": "vals", "input": {"v": 1}}),
    "class": ("/v1/runs", {"pipeline": "vals", "input": {"v": 1}}),
    "budget_usd": ("/v1/runs", {"pipeline": "vals", "input": {"v": 1}}),
    "deadline_ms": ("/v1/runs", {"pipeline": "vals", "input": {"v": 1}}),
    "wait_ms": ("/v1/runs", {"pipeline": "vals", "input": {"v": 1}}),
    "version": ("/v1/runs", {"pipeline": "vals", "input": {"v": 1}}),
    "reason": ("/v1/runs/{run}/cancel", {}),
    "name": ("/v1/runs/{run}/signals", {}),
    "signal_id": ("/v1/runs/{run}/signals", {"name": "x"}),
    "from_step": ("/v1/runs/{ended}/rerun", {}),
    "description": (
        "/v1/pipelines", {"pipeline": "described", "nodes": {"a": {"type": "signal", "signal": "x",
        "wait_ms": 1000}}}
    ),
}  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize("field", FIELDS)
async def test_a_field_of_a_request_is_taken_or_refused_by_its_name(
    hall: House, field: str
) -> None:
    place, body = FIELDS[field]
    ended = await by_rest(hall, b"1")
    for value in [*CARRIED, *REFUSED]:
        if "{run}" in place:
            _, waiting = await hall.post("/v1/runs", b'{"pipeline": "waits"}')
        path = place.format(run=waiting["run_id"] if "{run}" in place else "", ended=ended.run_id)
        whole = json.dumps({**body, field: "?"}).encode().replace(b'"?"', value.text)
        status, answer = await hall.post(path, whole)
        if status >= 400:
            assert answer["field"] or status in (404, 409), (field, value.name, answer)
            assert not UNSAFE.search(answer["detail"]), (field, value.name, answer)
            hall.cell(f"field {field}", "refusal")
        else:
            assert value.refused is None, (field, value.name, answer)
            hall.cell(f"field {field}", "taken")
        if "{run}" in place:
            await hall.post(f"/v1/runs/{waiting['run_id']}/cancel", b"{}")
            run = await hall.ended(waiting["run_id"])
            assert run["status"] == "cancelled"
    await hall.healthy()
