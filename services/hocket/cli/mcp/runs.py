"""The runs behind tool calls: started, awaited, and returned as results."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from mcp_types import CallToolResult, TextContent
from pydantic_core import to_json

from hocket.cli.mcp.kept_api import KeptApi
from hocket.cli.remote.api import path
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.errors import HocketError

FIRST_WAIT_MS = 2_000.0
"""How long the submission itself waits for the run's end, before the run is polled."""
LOOK_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between polls of a run; the last one is repeated."""
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
    if meta.get(KEY):
        body["idempotency_key"] = str(meta[KEY])
    for name, place in (("deadline_ms", DEADLINE), ("budget_usd", BUDGET)):
        if meta.get(place) is not None:
            body[name] = meta[place]
    return _seen(await api.post("/v1/runs", body))


async def wait(
    api: KeptApi, run_id: str, wait_ms: float, answered: Collection[str] = frozenset()
) -> Seen:
    """Wait until a run has ended, needs an approval, or `wait_ms` is over. Approvals of the steps
    `answered` are ignored: an answer is stored before the run has processed it."""
    until_ms, looks = monotonic_ms() + wait_ms, 0
    while True:
        seen = await look(api, run_id)
        open_ones = [one for one in seen.approvals if one["step"] not in answered]
        seen = replace(seen, approvals=open_ones)
        if seen.has_ended or seen.approvals or monotonic_ms() >= until_ms:
            return seen
        await asyncio.sleep(LOOK_S[min(looks, len(LOOK_S) - 1)])
        looks += 1


async def look(api: KeptApi, run_id: str) -> Seen:
    """Return the current state of a run."""
    seen = _seen(await api.get(path("runs", run_id)))
    if seen.has_ended:
        return seen
    waiting = (await api.get("/v1/approvals", run=run_id))["approvals"]
    return Seen(seen.run_id, seen.pipeline, seen.status, approvals=waiting)


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


def refused(error: HocketError) -> CallToolResult:
    """Return a platform error as the result of a tool."""
    info = error.info()
    return CallToolResult(
        content=[TextContent(type="text", text=info.message)],
        structured_content={"error": info.model_dump(mode="json", exclude_defaults=True)},
        is_error=True,
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
    return (
        f"Run {seen.run_id} is still running. Call hocket_get_run with its run_id for the result."
    )


def _seen(run: dict[str, Any]) -> Seen:
    return Seen(
        run["run_id"],
        run["pipeline"],
        run["status"],
        run.get("output"),
        run.get("error"),
        has_ended=run.get("finished_at") is not None,
        withheld=run.get("withheld", False),
    )


_NEEDED = "the caller's key lacks the permission content.read"
