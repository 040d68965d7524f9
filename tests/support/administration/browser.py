"""Pages of the console in a real browser: Debian's chromium, driven by Playwright."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.rest_rig import Rest

playwright = pytest.importorskip("playwright.async_api", reason="`make browser-test` installs it")
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
MARKS = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt install chromium)"),
    # the driver leaves its pipe for the garbage collector to close
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]
NARROW = {"width": 380, "height": 800}
WIDE = {"width": 1360, "height": 860}
WIDE_PARTS = """[...document.querySelectorAll('main *')]
    .filter((one) => !one.closest('.scroll') && one.getBoundingClientRect().right > innerWidth)
    .map((one) => one.outerHTML.slice(0, 80)).slice(0, 3)"""
SHOTS = os.environ.get("HOCKET_SCREENSHOTS")
"""The folder to which screenshots of the pages are written, if any."""


@asynccontextmanager
async def opened_page(rest: Rest, url: str = "", **options: Any) -> AsyncIterator[Any]:
    """Yield a page that is signed in, unless `signed_in` is false; errors on it fail the test. Requests
    made by the pages of a `provider` are ignored."""
    wrong: list[str] = []
    expected = options.pop("expected", None)
    signed_in, provider = options.pop("signed_in", True), options.pop("provider", None)

    def is_ours(asked_by: str) -> bool:
        return not (provider and asked_by.startswith(provider))

    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = await browser.new_context(viewport=options.pop("viewport", WIDE), **options)
        await context.add_init_script("window.alert = () => { window.ran = true; };")
        page = await context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "console",
            lambda line: (
                wrong.append(line.text)
                if line.type == "error"
                and is_ours(page.url)
                and not (expected and expected in line.text)
                else None
            ),
        )
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((url or rest.url, "data:"))
                or not is_ours(request.headers.get("referer", request.url))
                else wrong.append(f"request to {request.url}")
            ),
        )
        if signed_in:
            ticket = (await rest.post("/console/tickets")).body["ticket"]
            await page.goto(f"{url or rest.url}/console/sign-in?ticket={ticket}")
        try:
            yield page
        finally:
            await browser.close()
    assert not wrong, wrong


async def shot(page: Any, name: str) -> None:
    if SHOTS:
        await asyncio.to_thread(Path(SHOTS).mkdir, parents=True, exist_ok=True)
        await page.screenshot(path=f"{SHOTS}/{name}.png")


async def serious(page: Any) -> list[tuple[str, str]]:
    """Return axe's serious findings about a page."""
    axe = pytest.importorskip("axe_playwright_python.async_playwright")
    found = (await axe.Axe().run(page)).response["violations"]
    return [
        (one["id"], one["nodes"][0]["html"][:200])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@asynccontextmanager
async def main_thread_tasks(page: Any) -> AsyncIterator[list[float]]:
    """Yield a list that is filled at the end with the CPU time (ms) of each task that ran on the page's
    main thread. CPU time is used because it does not depend on what else the machine does."""
    browser, tasks_ms = page.context.browser, list[float]()
    await browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
    try:
        yield tasks_ms
    finally:
        events = json.loads(await browser.stop_tracing())["traceEvents"]
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks_ms += [
        event["tdur"] / 1_000
        for event in events
        if event["name"].endswith("RunTask")
        and (event["pid"], event["tid"]) in mains
        and "tdur" in event
    ]
