"""What every page has in common: nothing stored is markup, no inline scripts, assets that stay."""

import asyncio

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
from support.runs.rows import insert_call
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
