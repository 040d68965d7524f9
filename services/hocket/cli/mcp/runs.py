"""The runs behind tool calls: started, awaited, and returned as results."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from mcp_types import CallToolResult, TextContent
from pydantic_core import to_json

from hocket.cli.mcp.kept_api import KeptApi
from hocket.cli.remote.api import path
from hocket.cli.terminal.errors import may_appear, may_pass
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.errors import HocketError, InvalidInput

FIRST_WAIT_MS = 2_000.0
"""How long the submission itself waits for the run's end, before the run is polled."""
LOOK_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between polls of a run; the last one is repeated."""
LATE_S = 10.0
"""How much longer than its call a poll may take; clients give up on a call after a minute."""
ACCEPTED = "accepted"
"""The status of a task whose run the API does not know."""
KEY = "hocket/idempotency-key"
DEADLINE = "hocket/deadline-ms"
BUDGET = "hocket/budget-usd"
"""A field in the `_meta` of a call."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The current state of a run: ended, or open with the approvals it waits for."""

    run_id: str
    pipeline: str
    status: str
    output: Any = None
    error: dict[str, Any] | None = None
    has_ended: bool = False
    has_begun: bool = True
    """False while its task is accepted, and the API does not know the run."""
    approvals: list[dict[str, Any]] = field(default_factory=list)
    unread: str = ""
    """Why its state could not be read again, if it could not."""
    withheld: bool = False
    """Whether its output is not shown to this caller."""


async def begin(
    api: KeptApi, pipeline: str, given: dict[str, Any], meta: dict[str, Any], wait_ms: float
) -> Seen:
    """Start a run, and wait a while for its end. The same key gives the same run; without a key, earlier
    runs are not looked up, which would cost two queries."""
    body: dict[str, Any] = {
        "pipeline": pipeline,
        "input": given,
        "wait_ms": min(wait_ms, FIRST_WAIT_MS),
    }
    if meta.get(KEY) is not None:
        body["idempotency_key"] = _key(meta[KEY])
    for name, place in (("deadline_ms", DEADLINE), ("budget_usd", BUDGET)):
        if meta.get(place) is not None:
            body[name] = meta[place]
    return _seen(await api.post("/v1/runs", body))


async def find(api: KeptApi, run_id: str, until_ms: float) -> Seen:
    """Return the current state of a run, as soon as it can be read; raise the reason if it cannot until
    `until_ms`. A run that is unknown may not have begun: on a busy platform, its task waits for minutes.
    As servers keep no state, this holds for each id that a run can have, whoever started it."""
    looks = 0
    while True:
        try:
            return await _look_until(api, run_id, until_ms)
        except HocketError as error:
            if monotonic_ms() >= until_ms or not (may_pass(error) or may_appear(error, run_id)):
                raise
        await _pause(looks, until_ms)
        looks += 1


async def wait(
    api: KeptApi, seen: Seen, until_ms: float, answered: Collection[str] = frozenset()
) -> Seen:
    """Wait until a run has ended, needs an approval, or it is `until_ms`; return its latest state that
    could be read. Approvals of the steps `answered` are ignored: an answer is stored before the run has
    processed it."""
    seen, looks = _without(seen, answered), 0
    while True:
        try:
            seen = _without(await _look_until(api, seen.run_id, until_ms), answered)
        except HocketError as error:  # the run goes on, and only its id leads to its result
            is_awaited = not seen.has_begun and may_appear(error, seen.run_id)
            seen = replace(seen, unread="" if is_awaited else str(error))
            if not (is_awaited or may_pass(error)):
                return seen
        if seen.has_ended or seen.approvals or monotonic_ms() >= until_ms:
            return seen
        await _pause(looks, until_ms)
        looks += 1


async def look(api: KeptApi, run_id: str) -> Seen:
    """Return the current state of a run."""
    seen = _seen(await api.get(path("runs", run_id)))
    if seen.has_ended:
        return seen
    waiting = (await api.get("/v1/approvals", run=run_id))["approvals"]
    return Seen(seen.run_id, seen.pipeline, seen.status, approvals=waiting)


async def _look_until(api: KeptApi, run_id: str, until_ms: float) -> Seen:
    left_s = max(0.0, until_ms - monotonic_ms()) / 1000
    try:
        async with asyncio.timeout(left_s + LATE_S):
            return await look(api, run_id)
    except TimeoutError as error:
        raise api.unreachable("its answer takes too long") from error


async def _pause(looks: int, until_ms: float) -> None:
    left_s = max(0.0, until_ms - monotonic_ms()) / 1000
    await asyncio.sleep(min(LOOK_S[min(looks, len(LOOK_S) - 1)], left_s))


def _without(seen: Seen, answered: Collection[str]) -> Seen:
    return replace(seen, approvals=[one for one in seen.approvals if one["step"] not in answered])


async def cancel(api: KeptApi, run_id: str, reason: str) -> None:
    """Cancel a run."""
    await api.post(path("runs", run_id, "cancel"), {"reason": reason})


async def answer(api: KeptApi, run_id: str, step: str, *, approved: bool, note: str) -> None:
    """Approve or refuse an approval that a run waits for."""
    payload = {"approved": approved, "note": note}
    await api.post(path("runs", run_id, "signals"), {"name": step, "payload": payload})


def result_of(seen: Seen) -> CallToolResult:
    """Return a run as the result of a tool."""
    told: dict[str, Any] = {"run_id": seen.run_id, "status": seen.status}
    if seen.has_ended and seen.error is None and seen.withheld:
        told["withheld"] = True
        text = f"Run {seen.run_id} {seen.status}. Its output is withheld: {_NEEDED}."
    elif seen.has_ended and seen.error is None:
        told["output"] = seen.output
        is_text = isinstance(seen.output, str)
        text = seen.output if is_text else to_json(seen.output).decode()
    elif seen.has_ended:
        told["error"] = seen.error
        text = str((seen.error or {}).get("message", "The run failed."))
    else:
        told["approvals"] = [
            {"step": one["step"], "prompt": one.get("prompt", "")} for one in seen.approvals
        ]
        text = _goes_on(seen)
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=told,
        is_error=seen.has_ended and seen.error is not None,
    )


def refused(error: HocketError, run_id: str = "") -> CallToolResult:
    """Return a platform error as the result of a tool, with the run that goes on all the same."""
    info = error.info()
    told: dict[str, Any] = {"error": info.model_dump(mode="json", exclude_defaults=True)}
    text = info.message
    if run_id:
        told = {"run_id": run_id, **told}
        text = f"{text} Call hocket_get_run with the run_id {run_id} for the state of the run."
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=told, is_error=True
    )


def not_there(error: HocketError, run_id: str, *, is_error: bool) -> CallToolResult:
    """Return as the result of a tool that a run is unknown, or has not begun."""
    text = (
        f"{error} If a tool returned this run_id in the last minutes, its task is accepted, and begins "
        "when the platform has room: call hocket_get_run again, and do not start it again. Otherwise "
        "the run_id is wrong."
    )
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content={"run_id": run_id, "status": "unknown"},
        is_error=is_error,
    )


def _goes_on(seen: Seen) -> str:
    if seen.approvals:
        asked = "; ".join(f"`{one['step']}`: {one.get('prompt', '')}" for one in seen.approvals)
        return (
            f"Run {seen.run_id} waits for a person's approval of {asked}. Ask them, then call "
            "hocket_answer_approval, and hocket_get_run for the result."
        )
    if seen.unread:
        return (
            f"Run {seen.run_id} was started, but its state cannot be read now ({seen.unread}). Call "
            "hocket_get_run with its run_id for the result."
        )
    if not seen.has_begun:
        return (
            f"Run {seen.run_id} is accepted, but has not begun yet, as the platform is busy. Call "
            "hocket_get_run with its run_id for the result, and do not start it again."
        )
    return (
        f"Run {seen.run_id} is still running. Call hocket_get_run with its run_id for the result."
    )


def _key(given: Any) -> str:
    """Return the idempotency key of a call as the API takes it, which refuses an empty one."""
    if not isinstance(given, str):
        raise InvalidInput(
            field=KEY, reason="it is not text", cure="Send a string, such as the id of an order."
        )
    return given


def _seen(run: dict[str, Any]) -> Seen:
    return Seen(
        run["run_id"],
        run["pipeline"],
        run["status"],
        run.get("output"),
        run.get("error"),
        has_ended=run.get("finished_at") is not None,
        has_begun=run["status"] != ACCEPTED,
        withheld=run.get("withheld", False),
    )


_NEEDED = "the caller's key lacks the permission content.read"
