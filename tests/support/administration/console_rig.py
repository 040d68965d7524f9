"""The console's pages and forms, and rows for them. Forms are sent as by a browser without scripts."""

import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import aiohttp

from support.administration.webhook_rig import MESSAGE
from support.rest_rig import Answer, Rest
from support.runs.rows import insert_run, insert_step

RUN = "r" + "0" * 24
CHILD = "r" + "1" * 24
NOW = datetime.now(UTC)
PAGE = {"Accept": "text/html"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
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
    "/console/schedules/nightly/edit",
    "/console/new/schedule",
    "/console/new/webhook",
    "/console/new/key",
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


async def posted(
    rest: Rest, path: str, fields: Mapping[str, Any], headers: Mapping[str, str]
) -> Answer:
    """Post a form from the console's own page."""
    sent = {**FORM, "Origin": rest.url, **headers}
    body = urlencode(fields, doseq=True)
    return await asked_bare(rest, "POST", f"/console{path}", data=body.encode(), headers=sent)


def fault_of(page: str, field: str) -> str:
    """Return what a page says is wrong with a field; empty if nothing is."""
    found = re.search(rf'<p class="fault" id="{re.escape(field)}-fault">(.*?)</p>', page, re.S)
    return "" if found is None else plain(found[1])


def value_of(page: str, field: str) -> str:
    """Return the text in a field of a page's form."""
    found = re.search(rf'<input id="{re.escape(field)}"[^>]* value="([^"]*)"', page)
    if found is None:
        found = re.search(
            rf'<textarea id="{re.escape(field)}"[^>]*>\n?(.*?)</textarea>', page, re.S
        )
    if found is None:
        place = page.partition(f'<select id="{field}"')[2].partition("</select>")[0]
        found = re.search(r'<option(?: value="([^"]*)")? selected>([^<]*)', place)
        return (
            "" if found is None else html.unescape(found[1] if found[1] is not None else found[2])
        )
    return html.unescape(found[1])


def plain(markup: str) -> str:
    """Return the text of a piece of a page."""
    return html.unescape(re.sub(r"<[^>]+>", "", markup)).strip()
