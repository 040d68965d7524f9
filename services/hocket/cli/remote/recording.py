"""Records the answers of a run's models, from what the platform has stored of its calls."""

import re
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hocket.cli.remote.api import Api, every, path
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.ids import child_run_id
from hocket.schemas.rest import MAX_PAGE
from hocket.testing.recording import (
    FORMAT,
    MAX_CALLS,
    RecordedAnswer,
    RecordedCall,
    RecordedError,
    Recording,
)

BOOKED_S = 5.0
"""The maximum delay until a run's latest calls are stored and booked."""
INTERVAL_S = 0.2
RECENT_S = 60.0
"""For a run that ended more recently than this, the last calls are waited for; generous, as this
machine's clock may be wrong."""
SETTLED_S = 2.0
CONTENT_PAGE = 100
"""Stored calls asked for at once: a prompt and an answer of 64,000 characters each may take half
a megabyte, and `Api` reads no answer above 64 MiB."""
OWN_ID = re.compile(r"#[0-9a-f]{16}\Z")
"""What the ledger appends to a call id that another request has."""

Json = dict[str, Any]


class NothingKept(HocketError):
    """{missing} of {calls} model calls of run `{run}` have no stored answer. Have the section
    `content:` of the gateways' configuration keep the answers of its pipeline, and run it again
    (docs/how-to/content.md)."""

    code = "answers_not_kept"
    error_class = ErrorClass.INVALID


class CannotRecord(HocketError):
    """Run `{run}` cannot be recorded: {reason}."""

    code = "cannot_record"
    error_class = ErrorClass.INVALID


def recording_of(api: Api, run_id: str) -> Recording:
    """Return the answers of a run and its sub-runs; raise NothingKept or CannotRecord unless all of them
    are stored."""
    _wait_for_bookings(api.get(path("runs", run_id)))
    calls: list[tuple[str, RecordedCall]] = []
    for one in _runs(api, run_id):
        calls += _calls_of(api, one)
        if len(calls) > MAX_CALLS:
            raise _too_many(run_id)
    if not calls:
        raise CannotRecord(run=run_id, reason="none of its steps called a model")
    calls.sort(key=lambda call: call[0])
    return Recording(hocket_recording=FORMAT, run_id=run_id, calls=tuple(call for _, call in calls))


def _wait_for_bookings(run: Json) -> None:
    """Wait if the run has just ended: its last calls are stored and booked a moment later."""
    if run["finished_at"] is not None:
        ended = datetime.fromisoformat(run["finished_at"])
        if abs((datetime.now(UTC) - ended).total_seconds()) < RECENT_S:
            time.sleep(SETTLED_S)


def _runs(api: Api, run_id: str) -> Iterator[Json]:
    """Yield a run and its sub-runs."""
    run = api.get(path("runs", run_id))
    if run["finished_at"] is None:
        raise CannotRecord(run=run_id, reason="it is still running; wait for it to end")
    yield run
    for step in _steps(api, run_id):
        if step["type"] == "pipeline" and step["role"] == "subrun":
            for attempt in range(1, step["attempt"] + 1):
                yield from _runs(api, child_run_id(run_id, step["step"], attempt))


def _steps(api: Api, run_id: str) -> Iterator[Json]:
    return every(api, path("runs", run_id, "steps"), "steps", limit=MAX_PAGE)


def _calls_of(api: Api, run: Json) -> Iterator[tuple[str, RecordedCall]]:
    """Yield the calls of a run's steps, each with its time."""
    run_id = run["run_id"]
    kept, booked = _kept_and_booked(api, run_id)
    for content in kept.values():
        if not _is_recorded(content):
            continue
        attempts = booked.get(content["call_id"], ())
        last = attempts[-1] if attempts else None
        yield (
            content["started_at"],
            RecordedCall(
                pipeline=run["pipeline"],
                step=content["step"],
                model=content["model"],
                prompt=_prompt(content),
                answer=_answer(run_id, content),
                cost_usd=sum((Decimal(one["cost_usd"]) for one in attempts), Decimal(0)),
                input_tokens=last["input_tokens"] if last else 0,
                output_tokens=last["output_tokens"] if last else 0,
                takes_ms=round(sum(one["latency_ms"] for one in attempts), 3),
            ),
        )


def _is_recorded(content: Json) -> bool:
    """Return whether a step asked for words: clients of the HTTP door are no part of a run, and vectors
    are not recorded."""
    return content["step"] is not None and "embed" not in (content["prompt"] or ())


def _kept_and_booked(api: Api, run_id: str) -> tuple[dict[str, Json], dict[str, list[Json]]]:
    """Return the stored and the booked data of a run's calls, by call, once both are complete."""
    deadline = None
    while True:
        kept = {one["call_id"]: one for one in _kept(api, run_id)}
        attempts = list(every(api, "/v1/calls", "calls", run=run_id, limit=MAX_PAGE))
        if deadline is None:  # reading many calls takes longer than booking the last ones
            deadline = time.monotonic() + BOOKED_S
        booked: dict[str, list[Json]] = {}
        missing: set[str] = set()
        for attempt in attempts:
            found = _call_of(attempt["call_id"], kept)
            if found is None:
                missing.add(attempt["call_id"])
            else:
                booked.setdefault(found, []).append(attempt)
        if not missing and len(booked) == len(kept):
            return kept, booked
        if time.monotonic() > deadline:
            if missing:
                total = len(missing) + len(kept)
                raise NothingKept(run=run_id, missing=len(missing), calls=total)
            return kept, booked  # refused calls are not booked
        time.sleep(INTERVAL_S)


def _kept(api: Api, run_id: str) -> Iterator[Json]:
    """Yield the stored calls of a run; raise CannotRecord as soon as they are too many."""
    recorded = 0
    for content in every(api, "/v1/content", "content", run=run_id, limit=CONTENT_PAGE):
        recorded += _is_recorded(content)
        if recorded > MAX_CALLS:
            raise _too_many(run_id)
        yield content


def _too_many(run_id: str) -> CannotRecord:
    return CannotRecord(run=run_id, reason=f"it has more than {MAX_CALLS:,} model calls")


def _call_of(attempt_id: str, known: Iterable[str]) -> str | None:
    """Return the call to which an attempt belongs; an attempt's id is the call's id, with or without a
    suffix. The ledger appends the hash of a request whose id another one has: only that is cut off,
    because steps have a `#` in their names, too (`ask#1`)."""
    if attempt_id not in known:
        attempt_id = OWN_ID.sub("", attempt_id)
    while attempt_id:
        if attempt_id in known:
            return attempt_id
        attempt_id = attempt_id.rpartition(":")[0]
    return None


def _prompt(content: Json) -> Json | None:
    known = content["kept"] == "full" and isinstance(content["prompt"], dict)
    return content["prompt"] if known else None


def _answer(run_id: str, content: Json) -> RecordedAnswer:
    answer = content["answer"]
    if not isinstance(answer, dict):
        where = f"the answer that `{content['step']}` got from `{content['model']}`"
        raise CannotRecord(run=run_id, reason=f"{where} was too long to store and was truncated")
    if "error" in answer:
        error_class = answer.get("error_class", ErrorClass.UNAVAILABLE)
        error = RecordedError(code=answer["error"], error_class=ErrorClass(error_class))
        return RecordedAnswer(error=error)
    calls = answer.get("tool_calls") or ()
    for choice in answer.get("choices", ())[:1]:
        calls = calls or (choice.get("message") or {}).get("tool_calls") or ()
    return RecordedAnswer(
        text=answer.get("text", ""),
        data=answer.get("data"),
        tool_calls=calls,
        finish_reason=answer.get("finish_reason", ""),
    )
