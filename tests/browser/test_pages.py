"""Every page of the console in a real browser: hostile content, accessibility, the keyboard, screens of
any width, and a proxy's path. A page that is added must be added to `console_pages.py`."""

from typing import Any

import pytest

from support.administration import live_rig
from support.administration.browser import (
    MARKS,
    NARROW,
    SHOTS,
    WIDE_PARTS,
    opened_page,
    serious,
    shot,
)
from support.administration.console_pages import EVERY_PAGE, NO_PAGES, PAGES, attacked
from support.administration.console_scene import ATTACKED, NOW, SHORT, WAITING, add_run
from support.administration.sub_path_proxy import running_proxy
from support.administration.webhook_rig import MESSAGE
from support.rest_rig import Rest
from support.runs.rows import insert_step
from support.values.hostile_markup import PAYLOADS

pytestmark = MARKS

DRAWN = """() => [...document.querySelectorAll('.drawing, #timeline, #histogram')]
    .every((place) => place.childElementCount) && !document.querySelector('#verdict > .dim')"""
"""Whether all that scripts draw is there."""
FOREIGN = (
    "iframe, object, embed, video, audio, math, base, template, main :is(img, style, link, meta)"
)
"""What no page has unless somebody else wrote it there."""
STRANGE = """[...document.querySelectorAll('*')].flatMap((one) => [...one.attributes]
    .filter((said) => /^on/i.test(said.name) || /^\\s*javascript:/i.test(said.value))
    .map((said) => one.outerHTML.slice(0, 100)))"""
"""Elements with what would run."""
OPERABLE = "a[href], button, summary, input, select, textarea, [tabindex], [role=button]"
REACHABLE = f"""() => [...document.querySelectorAll(`{OPERABLE}`)].filter((one) =>
    one.tabIndex >= 0 && !one.disabled && one.type !== 'hidden' && !one.closest('dialog:not([open])')
    && one.checkVisibility({{ visibilityProperty: true, opacityProperty: true }}))"""
MOST_PARTS = 9
"""Stops of the keyboard within one field: one for a time has its parts."""
LEFT_OUT = f"""() => ({REACHABLE})().filter((one) => !one.dataset.reached)
    .map((one) => one.outerHTML.slice(0, 120))"""
"""What somebody can operate whom the keyboard did not bring there."""
MARK = (
    "() => { const at = document.activeElement; if (!at || at === document.body || at.dataset.reached) "
    "return false; at.dataset.reached = 'yes'; return true; }"
)
"""Note where the keyboard is; false where it has been before, or is nowhere."""
ONLY_BY_MOUSE = f"""() => [...document.querySelectorAll('body *')].filter((one) =>
    one.checkVisibility() && getComputedStyle(one).cursor === 'pointer'
    && !one.closest(`{OPERABLE}, label`))
    .map((one) => one.outerHTML.slice(0, 120))"""
"""What looks as if it could be clicked, and nothing else can be done with."""
OUTSIDE = """(root) => ['href', 'src', 'action', 'data-src', 'data-root', 'data-api'].flatMap((name) =>
    [...document.querySelectorAll(`[${name}]:not(#tenants)`)].map((one) => one.getAttribute(name))
        .filter((value) => value.startsWith('/') && !value.startsWith(root)))"""
"""Addresses that lead out of the path of a proxy. (What `data-api` of a form and
`data-src` of the tenants say is below those of the page.)"""
BROKEN_WORDS = """[...document.querySelectorAll('.scroll td')].flatMap((cell) => {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), found = [];
    for (let text; (text = texts.nextNode());)
        for (const word of text.data.matchAll(/(?<!\\S)[a-z]{3,12}(?!\\S)/gi)) {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            if (new Set([...range.getClientRects()].map((one) => one.top)).size > 1)
                found.push(word[0]);
        }
    return found;
})"""
"""Words of tables that go on in the next line."""
DIALOGS = {
    f"/runs/{SHORT}": ("again",),
    f"/runs/{WAITING}": ("signal", "cancel"),
    f"/runs/{SHORT}/steps/draft": ("from-here",),
    "/pipelines/research": ("try",),
    "/models": ("drain", "warm"),
}


async def opened(page: Any, url: str) -> None:
    await page.goto(url)
    await page.wait_for_load_state("load")
    await page.wait_for_function(DRAWN)


async def test_every_page_that_there_is_is_opened(rest: Rest) -> None:
    found = {
        one.template.removeprefix("/console")
        for one in rest.app.state.operations
        if one.template.startswith("/console") and "GET" in one.methods
    }

    assert {one for one in found if not NO_PAGES.search(one)} == set(PAGES)


@pytest.mark.skipif(bool(SHOTS), reason="screenshots have ordinary texts in them")
async def test_hostile_content_is_text_on_every_page(rest: Rest) -> None:
    assert len(PAYLOADS) >= 40
    async with opened_page(rest) as page:
        for path in EVERY_PAGE:
            await opened(page, f"{rest.url}/console{attacked(path)}")
            assert await page.evaluate("window.ran") is None, path
            assert await page.locator(FOREIGN).count() == 0, path
            assert await page.evaluate(STRANGE) == [], path
        await page.goto(f"{rest.url}/console/runs/{ATTACKED}")
        await page.locator("#graph .box").nth(2).click()
        await page.wait_for_selector("#panel h2")
        assert "<script>" in await page.locator("#panel .error").inner_text()
        assert await page.evaluate("window.ran") is None


@pytest.mark.parametrize("width", [NARROW["width"], 768, 1024])
async def test_every_page_fits_a_screen_that_is_not_wide(rest: Rest, width: int) -> None:
    async with opened_page(rest, viewport={"width": width, "height": 800}) as page:
        for path in EVERY_PAGE:
            await opened(page, f"{rest.url}/console{path}")
            needed = await page.evaluate("document.documentElement.scrollWidth")
            assert needed <= width, (path, needed, await page.evaluate(WIDE_PARTS))


async def test_names_as_long_as_they_may_be_fit_a_narrow_screen(rest: Rest) -> None:
    name, run_id = "summarize_reports_" + "x" * 40, live_rig.run_id(950)
    nodes = {"ask": {"type": "approval", "prompt": "May it be sent?"}}
    assert (await rest.post("/v1/pipelines", {"pipeline": name, "nodes": nodes})).status == 201
    labels = {"customer": "y" * 60}
    await add_run(rest, run_id, pipeline=name, status="running", labels=labels, allowed_ms=600_000)
    await insert_step(rest.pool, run_id, "ask", NOW, type="approval", state="waiting")
    async with opened_page(rest, viewport=NARROW) as page:
        paths = ("/runs", f"/runs/{run_id}", "/approvals", "/pipelines", f"/pipelines/{name}")
        for path in paths:
            await opened(page, f"{rest.url}/console{path}")
            assert name in await page.locator("main").inner_text(), path
            needed = await page.evaluate("document.documentElement.scrollWidth")
            assert needed <= NARROW["width"], (path, await page.evaluate(WIDE_PARTS))


async def test_no_table_breaks_a_short_word_on_a_narrow_screen(rest: Rest) -> None:
    async with opened_page(rest, viewport={"width": 360, "height": 800}) as page:
        for path in ("/money", "/models", "/runs", "/pipelines", "/approvals"):
            await opened(page, f"{rest.url}/console{path}")
            assert await page.evaluate(BROKEN_WORDS) == [], path


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(rest: Rest, scheme: str) -> None:
    async with opened_page(rest, color_scheme=scheme, bypass_csp=True) as page:
        for path in EVERY_PAGE:
            await opened(page, f"{rest.url}/console{path}")
            if path != "/playground":  # its own test shows it with an answer
                await shot(page, f"{_name_of(path)}-{scheme}")
            assert await serious(page) == [], path


def _name_of(path: str) -> str:
    named = path.strip("/").replace(SHORT, "run").replace(MESSAGE, "message")
    return named.replace("?view=", "-").partition("?")[0].replace("/", "-")


async def test_the_keyboard_reaches_all_that_can_be_done(rest: Rest) -> None:
    async with opened_page(rest) as page:
        for path in EVERY_PAGE:
            await opened(page, f"{rest.url}/console{path}")
            nothing_new = 0  # at the end it is at no element, and then at the first one again
            while nothing_new < MOST_PARTS:
                await page.keyboard.press("Tab")
                nothing_new = 0 if await page.evaluate(MARK) else nothing_new + 1
            assert await page.evaluate(LEFT_OUT) == [], path
            assert await page.evaluate(ONLY_BY_MOUSE) == [], path


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_dialog_is_opened_and_closed_by_keyboard(rest: Rest, scheme: str) -> None:
    async with opened_page(rest, color_scheme=scheme, bypass_csp=True) as page:
        for path, names in DIALOGS.items():
            await opened(page, f"{rest.url}/console{path}")
            for name in names:
                button = page.locator(f"[data-open={name}]").first
                await button.focus()
                await page.keyboard.press("Enter")
                await page.locator(f"#dialog-{name}[open]").wait_for()
                assert await serious(page) == [], (path, name)
                await page.keyboard.press("Escape")
                await page.locator(f"#dialog-{name}").wait_for(state="hidden")
                assert await button.evaluate("one => one === document.activeElement"), name
        await page.keyboard.press("?")
        await page.locator("#help[open]").wait_for()
        assert await serious(page) == []


async def test_a_node_of_the_graph_is_opened_by_keyboard(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await opened(page, f"{rest.url}/console/runs/{SHORT}")
        await page.locator("#graph [role=button]").nth(2).focus()
        await page.keyboard.press("Enter")
        await page.locator("#panel h2.mono", has_text="draft").wait_for()
        words = await page.locator("#graph .sub").all_text_contents()
        await page.locator("#timeline").focus()
        await page.keyboard.press("ArrowUp")
        await page.keyboard.press("Enter")
        await page.locator("#panel h2.mono", has_text="read").wait_for()

    assert ["failed" in said for said in words] == [False, False, True, False]
    assert ["done" in said for said in words] == [True, True, False, False]


async def test_no_address_of_any_page_leaves_the_path_of_a_proxy(below: Rest) -> None:
    async with (
        running_proxy(below.url, "/hocket") as url,
        opened_page(below, url) as page,
    ):
        for path in EVERY_PAGE:
            await opened(page, f"{url}/console{path}")
            assert await page.evaluate(OUTSIDE, "/hocket/") == [], path
            cookies = {one["name"]: one["path"] for one in await page.context.cookies(url)}
            ((name, where),) = cookies.items()
            assert (name.startswith("hocket_session"), where) == (True, "/hocket")
