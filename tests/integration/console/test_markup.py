"""What every page has in common: nothing stored is markup, no inline scripts, assets that stay."""

import asyncio
import json
import os
from html.parser import HTMLParser

from support.administration.console_rig import (
    DECISION,
    NOW,
    PAGE,
    PAGES,
    RUN,
    add_run,
    add_step,
)
from support.rest_rig import Rest
from support.runs.rows import insert_call, insert_line
from support.values.hostile_markup import PAYLOADS


async def test_nothing_stored_is_ever_markup(rest: Rest) -> None:
    text = "".join(PAYLOADS)
    await add_run(rest, text=text)
    await add_step(rest, "hello", text)
    name = text.replace("\x1b", "").replace("\x07", "")[:200]
    losers = [{"backend": name, "refused": text[:100]}]
    decision = {**DECISION, "reason": text, "candidates": losers}
    await insert_call(rest.pool, text, NOW, run_id=RUN, model=text, backend=text, decision=decision)

    for path in PAGES:
        shown = await rest.get(path, headers=PAGE)
        assert shown.status == 200, path
        for tag in (
            "<script>alert",
            "<img",
            "<iframe",
            "<svg onload",
            "javascript:alert(1)'>x</a>",
            "<object",
            "<base",
            "<style",
        ):
            assert tag not in shown.body, path
        assert " 49{" not in shown.body, "templates evaluate nothing stored"


PLAIN = "plain text"
MAX_NAME_CHARS = 256
TOGETHER = 1 if os.environ.get("HOCKET_TEST_LONG") else 8
"""Payloads in one text; `make browser-test` has each by itself."""
TEXTS = """
UPDATE hocket.run SET input = jsonb_build_object('text', $1::text), output = to_jsonb($1::text),
    error = jsonb_build_object('code', 'check_failed', 'message', $1::text, 'error_class', 'permanent');
UPDATE hocket.step SET worker = $1, input = to_jsonb($1::text), output = to_jsonb($1::text),
    error = jsonb_build_object('code', 'check_failed', 'message', $1::text, 'error_class', 'permanent');
UPDATE hocket.usage SET model = $1, backend = $1, decision = $2::jsonb;
UPDATE hocket.log_line SET text = $1, fields = jsonb_build_object('said', $1::text);
UPDATE hocket.schedule SET description = $1;
UPDATE hocket.webhook SET description = $1;
UPDATE hocket.webhook_delivery SET last_error = $1, body = jsonb_build_object('output', $1::text)::text;
"""
NAME = "UPDATE hocket.api_key SET name = $1 WHERE role = 'viewer'"
"""A name is short: it is one payload."""
KEYS = "/console/system?view=keys"


class Structure(HTMLParser):
    """What a page is made of, whatever stands in it: its elements and the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, ...]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.found.append((f"/{tag}",))


async def test_no_text_of_any_kind_changes_what_a_page_is_made_of(rest: Rest) -> None:
    """40 payloads, each in every text of every view: one by one where there is time for it."""
    await add_run(rest, status="failed")
    await add_step(rest, "hello")
    await insert_call(rest.pool, "c1", NOW, run_id=RUN, decision=DECISION)
    await insert_line(rest.pool, RUN, "hello", NOW, "said", fields={"said": "x"})
    await rest.make_key("viewer")
    pages = (*PAGES, "/console/system?view=audit")

    async def structures(text: str) -> dict[str, list[tuple[str, ...]]]:
        name = "".join(one for one in text if one >= " " and one != "\x7f")[:MAX_NAME_CHARS]
        losers = [{"backend": name, "refused": text}]
        decision = json.dumps({**DECISION, "reason": text, "candidates": losers})
        for statement in filter(str.strip, TEXTS.split(";")):
            values = [name, decision] if "$2" in statement else [text]
            await rest.pool.execute(statement, *values)
        return {path: Structure(await _shown(rest, path)).found for path in pages}

    assert len(PAYLOADS) == 40
    plain = await structures(PLAIN)
    for first in range(0, len(PAYLOADS), TOGETHER):
        payloads = PAYLOADS[first : first + TOGETHER]
        for path, found in (await structures(" ".join(payloads))).items():
            assert found == plain[path], (path, payloads)
    keys = Structure(await _shown(rest, KEYS)).found
    for payload in PAYLOADS:
        await rest.pool.execute(NAME, payload)
        assert Structure(await _shown(rest, KEYS)).found == keys, payload


async def _shown(rest: Rest, path: str) -> str:
    answer = await rest.get(path, headers=PAGE)
    assert answer.status == 200, path
    return str(answer.body)


async def test_every_page_forbids_inline_scripts_and_framing(rest: Rest) -> None:
    await add_run(rest)
    await add_step(rest, "hello")

    for path in PAGES:
        shown = await rest.get(path, headers=PAGE)
        policy = shown.headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert " style=" not in shown.body, path
        assert " onclick=" not in shown.body, path
        assert "http://" not in shown.body.replace("http://www.w3.org/", ""), (
            "nothing from elsewhere"
        )


async def test_what_is_not_there_says_so_on_a_page(rest: Rest) -> None:
    await add_run(rest, tenant="acme")

    for path in (
        f"/console/runs/{RUN}",
        "/console/pipelines/none",
        f"/console/runs/{RUN}/graph.json",
    ):
        assert (await rest.get(path, headers=PAGE)).status == 404, path


async def test_scripts_and_styles_are_kept_for_ever_under_their_content(rest: Rest) -> None:
    page = (await rest.get("/console/runs", headers=PAGE)).body
    found = {part.split('"')[0] for part in page.split("/console/assets/")[1:]}
    answers = await asyncio.gather(*(rest.get(f"/console/assets/{name}") for name in found))

    assert {answer.status for answer in answers} == {200}
    assert all("immutable" in answer.headers["Cache-Control"] for answer in answers)
    assert (await rest.get("/console/assets/000000000000/console.js")).status == 404
