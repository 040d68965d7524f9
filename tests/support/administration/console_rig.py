"""The console's pages, and rows for them."""

from datetime import UTC, datetime
from typing import Any

import aiohttp

from support.administration.webhook_rig import MESSAGE
from support.rest_rig import Answer, Rest
from support.runs.rows import insert_run, insert_step

RUN = "r" + "0" * 24
CHILD = "r" + "1" * 24
NOW = datetime.now(UTC)
PAGE = {"Accept": "text/html"}
PIPELINE: dict[str, Any] = {
    "pipeline": "greet",
    "description": "Says hello.",
    "slo_ms": 5000,
    "nodes": {"hello": {"type": "python", "handler": "greet:hello"}},
}
DECISION = {
    "model": "smart",
    "reason": "the cheap one is too slow for the deadline",
    "candidates": [
        {"backend": "dear", "score": [0, 1.5]},
        {"backend": "cheap", "score": [1], "refused": "its breaker is open"},
    ],
}
PAGES = (
    "/console/runs",
    f"/console/runs/{RUN}",
    f"/console/runs/{RUN}?view=steps",
    f"/console/runs/{RUN}?view=calls",
    f"/console/runs/{RUN}?view=values",
    f"/console/runs/{RUN}?view=trace",
    f"/console/runs/{RUN}?view=journal",
    f"/console/runs/{RUN}?view=logs",
    f"/console/runs/{RUN}/calls/c1",
    f"/console/runs/{RUN}/steps/hello",
    "/console/pipelines",
    "/console/pipelines/greet",
    "/console/money",
    "/console/approvals",
    "/console/flow",
    "/console/bulk",
    "/console/schedules",
    "/console/schedules/nightly",
    "/console/webhooks",
    "/console/webhooks/ops",
    "/console/webhooks/ops?state=dead",
    f"/console/webhooks/ops/{MESSAGE}",
    "/console/editor",
    "/console/editor?name=greet",
    "/console/models",
    "/console/system",
    "/console/system?view=workers",
    "/console/system?view=dead-letters",
)


async def add_run(rest: Rest, run_id: str = RUN, text: str = "hi", **fields: Any) -> None:
    await insert_run(rest.pool, run_id, fields.pop("accepted_at", NOW), text, **fields)


async def add_step(rest: Rest, key: str, text: str = "hi", run_id: str = RUN) -> None:
    fields = {"node": "hello", "attempt": 2, "error": True, "worker": text}
    await insert_step(rest.pool, run_id, key, NOW, text, **fields)


async def cookie_of(rest: Rest, key: str) -> dict[str, str]:
    answer = await rest.post("/console/sign-in", {"key": key})
    assert answer.status == 200
    said = answer.headers["Set-Cookie"]
    assert "HttpOnly" in said
    assert "SameSite=strict" in said
    return {"Cookie": said.split(";")[0], **PAGE}


async def asked_bare(rest: Rest, method: str, path: str, **options: Any) -> Answer:
    """Send a request without the key that the session otherwise sends."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, rest.url + path, allow_redirects=False, **options) as reply,
    ):
        return Answer(reply.status, await reply.text(), dict(reply.headers))
