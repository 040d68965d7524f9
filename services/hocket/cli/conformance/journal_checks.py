"""Additional checks of workers with journals: docs/reference/worker-protocol.md, `Journals`."""

import asyncio
import time
from typing import Any

from pydantic_core import to_json

from hocket.cli.conformance.stage import NotSeen, Stage
from hocket.schemas import journals, subjects
from hocket.schemas.journals import JournalKept, JournalWrite
from hocket.schemas.messages import MAX_WAITS_BYTES, StepRequested, encoded

QUIET_S = 2.0
ENTRY_S = 10.0
ASK_MS = 5_000.0
BESIDE_MS = 500
MANY_CALLS = 6
CALL_CHARS = 190_000
"""Below the bound of one input, but not six times together."""


async def goes_on(stage: Stage) -> None:
    """What one attempt has done is not repeated by the next one."""
    first = await stage.send({"do": "journaled", "ms": 0}, journal=True)
    result = await stage.result(first)
    assert result.body.get("error"), "attempt 1 has no error"
    made = await _made(stage, first)
    later = {"dispatched_at_ms": round(time.time() * 1000) + 1, "attempt": 2}
    second = await stage.send(
        {"do": "journaled", "ms": 0}, journal=True, run_id=first.run_id, **later
    )
    await stage.until(lambda: len(stage.results(first)) == 2, "a result of attempt 2")
    body = stage.results(second)[1].body
    assert body.get("output") == made, f"attempt 2 gave {body.get('output')!r}, not {made!r}"
    assert await _made(stage, first) == made, "it repeated what was already in the journal"


async def yields_to_the_next(stage: Stage) -> None:
    """An attempt whose journal was taken over by a later attempt ends without a result."""
    step = await stage.send({"do": "journaled", "ms": 1_000 * QUIET_S}, journal=True)
    until_s = time.monotonic() + ENTRY_S
    while not await stage.journal(step):
        assert time.monotonic() < until_s, f"nothing was in its journal after {ENTRY_S:g} s"
        assert not stage.results(step), "it returned a result, but kept nothing in its journal"
        await asyncio.sleep(0.02)
    seq, _ = (await stage.journal(step))[-1]
    taken = JournalWrite(
        tenant=step.tenant,
        run_id=step.run_id,
        step=step.step,
        attempt=2,
        dispatched_at_ms=(step.dispatched_at_ms or 0.0) + 1,
        capability="of attempt 2",
        after_seq=seq,
    )
    answer = await stage.bus.request(
        f"{subjects.JOURNAL_WRITE}.conformance-step", encoded(taken), timeout_ms=ASK_MS
    )
    assert JournalKept.model_validate_json(answer.data).refusal is None
    try:
        await stage.until(lambda: bool(stage.results(step)), "a result", 2 * QUIET_S)
    except NotSeen:
        assert await stage.waiting() == 1, (
            "it acknowledged the step, which now belongs to another worker"
        )
        return
    raise AssertionError("it returned a result, although it no longer has the journal")


async def fails_beside(stage: Stage) -> None:
    """What fails beside other work is not in the journal, and is done again by the next attempt. What
    the other work made is in it."""
    task = {"do": "beside", "ms": BESIDE_MS}
    first = await stage.send(task, journal=True)
    assert (await stage.result(first)).body.get("error"), "attempt 1 has no error"
    await asyncio.sleep(2 * BESIDE_MS / 1000)
    kept = [entry for _, one in await stage.journal(first) for entry in one.entries]
    failed = [one.name for one in kept if one.error is not None]
    assert not failed, f"`{failed[0]}`, which failed beside other work, is in the journal"
    assert len(kept) == 1, f"its journal has {len(kept)} entries, not that of the other work alone"
    later = {"dispatched_at_ms": round(time.time() * 1000) + 1, "attempt": 2}
    await stage.send(task, journal=True, run_id=first.run_id, **later)
    body, wanted = await _body_of(stage, first, 2), ["charged", kept[0].value]
    told = body.get("error") or body.get("output")
    assert body.get("output") == wanted, f"attempt 2 gave {told!r}, not {wanted!r}"


async def waits(stage: Stage) -> None:
    """A handler that waits ends its attempt with what it waits for, and the next one continues with what
    has arrived."""
    task = {"do": "waits", "signal": "go"}
    first = await stage.send(task, journal=True, suspends=True)
    body = (await stage.result(first)).body
    told = (body.get("error") or {}).get("code")
    assert told == "retryable", f"its error is {told!r}, not `retryable`"
    found = body.get("waits") or []
    assert [one.get("signal") for one in found] == ["go"], f"its `waits` are {found!r}, not `go`"
    made = await _made(stage, first)
    place = {"scope": found[0].get("scope", ""), "ordinal": found[0].get("ordinal")}
    ended = [place | {"signal": "go", "signal_id": "s1", "payload": {"n": 7}, "by": "conformance"}]
    later = {"dispatched_at_ms": round(time.time() * 1000) + 1, "attempt": 2}
    second = await stage.send(
        task,
        journal=True,
        suspends=True,
        run_id=first.run_id,
        resumption={"ended": ended},
        **later,
    )
    await stage.until(lambda: len(stage.results(first)) == 2, "a result of attempt 2")
    body = stage.results(second)[1].body
    wanted = [made, {"n": 7}]
    assert body.get("output") == wanted, f"attempt 2 gave {body.get('output')!r}, not {wanted!r}"
    kept = [entry for _, one in await stage.journal(first) for entry in one.entries]
    assert [one.kind for one in kept] == ["step", "signal"], "the signal is not in the journal"


async def waits_only_where_asked(stage: Stage) -> None:
    """A step that must not be suspended ends with an error if its handler waits."""
    step = await stage.send({"do": "waits", "signal": "go"}, journal=True)
    body = (await stage.result(step)).body
    assert not body.get("waits"), "it waits, although its step is not one that `suspends`"
    assert body.get("error"), "it has no error"


async def calls(stage: Stage) -> None:
    """A handler that calls a node ends its attempt, names the call until it has ended, and continues
    with its output."""
    task = {"do": "calls", "node": "look", "input": {"q": [1, "x"]}}
    first = await stage.send(task, journal=True, suspends=True, calls=("look",))
    call = await _called(stage, first, 1)
    assert call["call"].get("input") == task["input"], "the call does not have the handler's input"
    digest = call["call"].get("digest")
    assert isinstance(digest, str), f"its `digest` is {digest!r}, not text"
    assert digest, "its `digest` is empty"
    made = await _made(stage, first)
    call["call"] = {"name": "look", "digest": digest, "number": 1}
    second = await _resumed(stage, first, task, 2, {"waits": [call]})
    again = await _called(stage, second, 2)
    assert _told(again) == call, f"it names the call {again!r}, but its resumption has {call!r}"
    third = await _resumed(stage, first, task, 3, {"ended": [call | {"output": {"n": 7}}]})
    await stage.until(lambda: len(stage.results(first)) == 3, "a result of attempt 3")
    body, wanted = stage.results(third)[2].body, [made, {"n": 7}]
    assert body.get("output") == wanted, f"attempt 3 gave {body.get('output')!r}, not {wanted!r}"
    kept = [entry for _, one in await stage.journal(first) for entry in one.entries]
    assert [one.kind for one in kept] == ["step", "call"], "the call is not in the journal"


async def calls_failed(stage: Stage) -> None:
    """A failed call fails its handler, and is not stored in the journal as a success."""
    task = {"do": "calls", "node": "look", "input": None}
    first = await stage.send(task, journal=True, suspends=True, calls=("look",))
    call = await _called(stage, first, 1)
    error = {"code": "away", "error_class": "unavailable", "message": "nobody is there"}
    await _resumed(stage, first, task, 2, {"ended": [call | {"error": error}]})
    await stage.until(lambda: len(stage.results(first)) == 2, "a result of attempt 2")
    body = stage.results(first)[1].body
    told = (body.get("error") or {}).get("code")
    assert told == "away", f"its error is {told!r}, not that of the call"
    kept = [entry for _, one in await stage.journal(first) for entry in one.entries]
    assert [one.kind for one in kept] == ["step"], "the call that failed is in the journal"


async def calls_many(stage: Stage) -> None:
    """Calls whose inputs do not fit into one result are named by several, and none is left out."""
    task = {"do": "call-many", "node": "look", "count": MANY_CALLS, "chars": CALL_CHARS}
    first = await stage.send(task, journal=True, suspends=True, calls=("look",))
    ended: dict[int, dict[str, Any]] = {}
    for attempt in range(1, MANY_CALLS + 2):
        body = await _body_of(stage, first, attempt)
        if not body.get("waits"):
            break
        for wait in _of_new_calls(body["waits"]):
            number = len(ended) + 1
            call = {"name": "look", "digest": wait["call"]["digest"], "number": number}
            place = {"scope": wait.get("scope", ""), "ordinal": wait["ordinal"]}
            ended[wait["ordinal"]] = place | {"call": call, "output": {"n": number}}
        await _resumed(stage, first, task, attempt + 1, {"ended": list(ended.values())})
    outputs = body.get("output") or []
    wanted = [ended[ordinal]["output"] for ordinal in sorted(ended)]
    assert outputs == wanted, f"it gave {body.get('error') or outputs!r}, not {wanted!r}"
    assert len(ended) == MANY_CALLS, f"it made {len(ended)} calls, not {MANY_CALLS}"


async def calls_only_where_named(stage: Stage) -> None:
    """A step that may call no nodes ends with an error if its handler calls one."""
    task = {"do": "calls", "node": "look", "input": None}
    step = await stage.send(task, journal=True, suspends=True)
    body = (await stage.result(step)).body
    assert not body.get("waits"), "it calls a node, although its step has no `calls`"
    assert body.get("error"), "it has no error"


def _of_new_calls(waits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the waits of a result, whose calls are all new, and their inputs within the bound."""
    inputs = [(one.get("call") or {}).get("input") for one in waits]
    assert all(inputs), f"a wait of {len(waits)} is not a call with its input"
    size_bytes = sum(len(to_json(one)) for one in inputs)
    what = f"the inputs of {len(waits)} calls in one result have {size_bytes:,} bytes"
    assert size_bytes <= MAX_WAITS_BYTES, f"{what}, more than {MAX_WAITS_BYTES:,}"
    return waits


async def _called(stage: Stage, step: StepRequested, number: int) -> dict[str, Any]:
    """Return the only call that the result of attempt `number` waits for."""
    found = (await _body_of(stage, step, number)).get("waits") or []
    names = [(one.get("call") or {}).get("name") for one in found]
    assert names == ["look"], f"its `waits` are {found!r}, not the call of `look`"
    return dict(found[0])


async def _body_of(stage: Stage, step: StepRequested, number: int) -> dict[str, Any]:
    """Return the result of attempt `number`."""
    await stage.until(lambda: len(stage.results(step)) == number, f"a result of attempt {number}")
    return stage.results(step)[number - 1].body


def _told(wait: dict[str, Any]) -> dict[str, Any]:
    """Return a wait without its null fields."""
    return {
        name: _told(value) if isinstance(value, dict) else value
        for name, value in wait.items()
        if value is not None
    }


async def _resumed(
    stage: Stage, first: StepRequested, task: Any, attempt: int, resumption: dict[str, Any]
) -> StepRequested:
    """Send the next attempt, with what has arrived."""
    later_ms = round(time.time() * 1000) + attempt
    return await stage.send(
        task,
        journal=True,
        suspends=True,
        calls=("look",),
        run_id=first.run_id,
        attempt=attempt,
        dispatched_at_ms=later_ms,
        resumption=resumption,
    )


async def _made(stage: Stage, step: StepRequested) -> Any:
    """Return the first value in a step's journal."""
    entries = [entry for _, one in await stage.journal(step) for entry in one.entries]
    assert entries, f"nothing is in the journal ({journals.name_of(step.run_id, step.step)})"
    return entries[0].value


JOURNAL_CHECKS = {
    "journal": goes_on,
    "journal-taken": yields_to_the_next,
    "journal-beside": fails_beside,
}
CALL_CHECKS = {
    "calls": calls,
    "calls-failed": calls_failed,
    "calls-many": calls_many,
    "calls-where-named": calls_only_where_named,
}
WAIT_CHECKS = {"waits": waits, "waits-where-asked": waits_only_where_asked}
