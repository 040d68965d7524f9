"""The console in a real browser: Debian's chromium, driven by Playwright. `make browser-test` installs
the driver and runs these; without it or without chromium they are skipped.

The pages are served by the API over a real Postgres whose rows the tests write, so that a run of 200,000
steps takes a second to make.
"""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from support.administration import live_rig
from support.administration.browser import MARKS, main_thread_tasks, opened_page, shot
from support.administration.bulk_rig import working
from support.administration.console_scene import (
    NOW,
    OTHER,
    SHORT,
    WAITING,
    YESTERDAY,
    add_run,
)
from support.administration.sub_path_proxy import running_proxy
from support.rest_rig import Rest
from support.runs.rows import insert_line, insert_run, insert_step

pytestmark = MARKS

RUN = "r" + "0" * 24
STEPS = 200_000
FILL_S = 300.0
"""How long their rows may take to be written: each is placed by a trigger."""
MAX_FIRST_PAINT_MS = 1_000
"""After the answer begins."""
MAX_PAGE_BYTES = 200_000
MAX_TASK_MS = 100
MIN_TASKS = 20
FIRST_PAINT_MS = """performance.getEntriesByName('first-contentful-paint')[0].startTime
    - performance.getEntriesByType('navigation')[0].responseStart"""
STEP_ROWS = """
INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, input, output, ready_at,
    dispatched_at, started_at, finished_at, deadline_at, slack_ms, worker)
SELECT $1, 'read[' || n || ']', 'read', 'python', 'leaf', 'succeeded', 1, '{}', '1',
    $2::timestamptz + n * interval '0.1 ms', $2::timestamptz + n * interval '0.1 ms',
    $2::timestamptz + n * interval '0.1 ms' + interval '40 ms',
    $2::timestamptz + n * interval '0.1 ms' + interval '90 ms', $2::timestamptz + interval '60 s', 5, 'w'
FROM generate_series(0, $3 - 1) n
"""


async def test_a_run_of_200000_steps_is_drawn_at_once_and_stays_smooth(rest: Rest) -> None:
    await add_run(rest, RUN, took_ms=21_000, allowed_ms=60_000)
    await rest.pool.execute(STEP_ROWS, RUN, NOW, STEPS, timeout=FILL_S)
    async with opened_page(rest) as page:
        sizes: list[int] = []
        page.on(
            "response", lambda answer: sizes.append(int(answer.headers.get("content-length", 0)))
        )
        await page.goto(f"{rest.url}/console/runs/{RUN}")
        await page.wait_for_selector("#timeline canvas")
        await page.wait_for_selector("#zoomed:not(:empty)")
        painted_ms = await page.evaluate(FIRST_PAINT_MS)
        canvas = page.locator("#timeline canvas")
        async with main_thread_tasks(page) as tasks_ms:
            # opens the node: its first steps are loaded
            await canvas.click(position={"x": 60, "y": 38})
            await page.wait_for_selector("#timeline[data-loaded]")
            for _ in range(20):
                await page.mouse.wheel(0, 400)
            await _drag(page, canvas)
            await page.keyboard.down("Control")
            for delta in (-120, -120, -120, 120):
                await page.mouse.wheel(0, delta)
            await page.keyboard.up("Control")
            await page.locator("#zoom-in").click()
            await page.locator("#zoom-all").click()
            await page.locator("#search").press_sequentially("read[11")
            await _drag(page, canvas)

    assert painted_ms <= MAX_FIRST_PAINT_MS
    assert sum(sizes) <= MAX_PAGE_BYTES, "the page, its scripts, and 2,000 steps"
    assert len(tasks_ms) > MIN_TASKS, "the trace saw the page work"
    assert max(tasks_ms) <= MAX_TASK_MS


async def _drag(page: Any, canvas: Any) -> None:
    """Pan across the canvas, held, in both directions."""
    box = await canvas.bounding_box()
    left, top = box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.7
    await page.mouse.move(left, top)
    await page.mouse.down()
    await page.mouse.move(left - 200, top - 120, steps=20)
    await page.mouse.move(left, top - 20, steps=20)
    await page.mouse.up()


async def test_a_failed_step_is_found_and_run_again_with_other_input_by_keyboard(
    rest: Rest,
) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs?status=failed")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/runs/{SHORT}")
        await page.goto(f"{rest.url}/console/runs/{SHORT}/steps/draft")
        await page.get_by_role("button", name="Run again from here").focus()
        await page.keyboard.press("Enter")
        await page.locator("#dialog-from-here textarea").fill('{"text": "other"}')
        async with page.expect_request(f"**/v1/runs/{SHORT}/rerun") as asked:
            await page.keyboard.press("Tab")
            await page.keyboard.press("Tab")
            await page.keyboard.press("Enter")
        sent = await asked.value

    assert json.loads(sent.post_data) == {"from_step": "draft", "step_input": {"text": "other"}}


async def test_a_list_and_a_run_change_at_once_and_nothing_jumps(rest: Rest) -> None:
    going = live_rig.run_id(900)
    await add_run(rest, going, status="running", allowed_ms=600_000)
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs")
        await page.wait_for_selector("#runs[data-live=open]")
        row = page.locator(f'tr[data-run="{going}"]')
        assert "running" in await row.inner_text()
        await page.keyboard.press("j")  # somebody reads: rows change, and none is pushed away
        await rest.pool.execute(
            "UPDATE hocket.run SET status = 'succeeded', finished_at = $2 WHERE run_id = $1",
            going,
            NOW,
        )
        await live_rig.tell_end(rest.bus, 900, pipeline="research")
        await page.wait_for_selector(f'tr[data-run="{going}"] .status.succeeded')
        fresh = live_rig.run_id(901)
        first = await page.locator("#runs tbody tr").first.get_attribute("data-run")
        await add_run(rest, fresh, status="running")
        await live_rig.tell(rest.bus, live_rig.change(901, 1, is_new=True), pipeline="research")
        await page.wait_for_selector("#fresh:not([hidden])")
        assert await page.locator("#runs tbody tr").first.get_attribute("data-run") == first
        await page.locator("#fresh button").click()
        await page.wait_for_selector(f'tr[data-run="{fresh}"]')


async def test_what_a_step_has_left_burns_down_and_its_end_is_shown(rest: Rest) -> None:
    going, now = live_rig.run_id(902), datetime.now(UTC)
    await insert_run(
        rest.pool, going, now, pipeline="research", status="running", allowed_ms=600_000
    )
    await insert_step(rest.pool, going, "plan", now, state="dispatched", allowed_ms=90_000)
    await rest.pool.execute(
        "UPDATE hocket.step SET started_at = NULL, finished_at = NULL WHERE run_id = $1", going
    )
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs/{going}?view=steps")
        left, bar = page.locator("[data-left]"), page.locator(".burn .kind-execution")
        seen, width = await left.inner_text(), float(await bar.get_attribute("width") or 0)
        assert seen.startswith("1 min")
        await page.wait_for_function(
            "seen => document.querySelector('[data-left]').textContent !== seen", arg=seen
        )
        await page.wait_for_function(
            "w => Number(document.querySelector('.burn .kind-execution').getAttribute('width')) > w",
            arg=width,
        )
        await rest.pool.execute(
            "UPDATE hocket.step SET state = 'succeeded', finished_at = now() WHERE run_id = $1",
            going,
        )
        await live_rig.tell(
            rest.bus, live_rig.change(902, 2, steps=[("plan", "succeeded", 1)]), pipeline="research"
        )
        await page.wait_for_selector('tr[data-step="plan"]:not([data-until]) .status.succeeded')


async def test_filters_are_saved_under_a_name_and_a_range_is_dragged_on_the_chart(
    rest: Rest,
) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs?status=failed&labels=team=none")
        await page.locator("#views summary").click()
        await page.get_by_role("button", name="Save these filters").click()
        await page.locator("#dialog-view [name=name]").fill("what failed")
        await page.keyboard.press("Enter")
        await page.goto(f"{rest.url}/console/runs")
        await page.locator("#views summary").click()
        await page.get_by_role("link", name="what failed").click()
        await page.wait_for_url("**status=failed**labels=team**")
        await page.goto(f"{rest.url}/console/runs")
        await page.wait_for_selector("#histogram .u-over")
        box = await page.locator("#histogram .u-over").bounding_box()
        await page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
        await page.mouse.down()
        await page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20, steps=5)
        await page.mouse.up()
        await page.wait_for_url("**since=**until=**")
        shown = await page.locator("#runs tbody time").all_inner_texts()

    assert shown
    assert max(shown) < f"{NOW - timedelta(hours=11):%Y-%m-%d %H:%M:%S}"


async def test_a_menu_closes_by_escape_and_by_a_click_beside_it(rest: Rest) -> None:
    async with opened_page(rest) as page:
        for name in ("all", "views", "tenants", "account"):
            menu, summary = page.locator(f"#{name}"), page.locator(f"#{name} summary")
            await summary.focus()
            await page.keyboard.press("Enter")
            await page.locator(f"#{name}[open]").wait_for()
            await page.keyboard.press("Escape")
            await page.locator(f"#{name}:not([open])").wait_for()
            assert await summary.evaluate("one => one === document.activeElement"), name
            await summary.click()
            await page.locator("#accepted").click()
            assert not await menu.evaluate("one => one.open"), name


async def test_the_sql_below_the_chart_of_runs_opens_by_a_click(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.wait_for_selector("#histogram .u-over")
        await page.locator(".chart .sql summary").click()
        said = await page.locator(".chart .sql pre").inner_text()

    assert "FROM hocket.run" in said


async def test_a_time_says_what_it_is_where_the_reader_is(rest: Rest) -> None:
    async with opened_page(rest, timezone_id="Asia/Tokyo") as page:
        shown = page.locator(f'tr[data-run="{YESTERDAY}"] time')
        await page.goto(f"{rest.url}/console/runs?period=7d")
        await shown.hover()
        said = await shown.get_attribute("title")

    there = (NOW - timedelta(hours=26)).astimezone(ZoneInfo("Asia/Tokyo"))
    assert f"{there:%H:%M:%S}" in said
    assert said.endswith("1 d 02 h ago")


@pytest.mark.parametrize("strip", [True, False])
async def test_all_of_it_works_below_a_path_of_a_proxy(below: Rest, *, strip: bool) -> None:
    async with (
        running_proxy(below.url, "/hocket", strip=strip) as url,
        opened_page(below, url) as page,
    ):
        await page.wait_for_selector("#runs[data-live=open]")
        await page.goto(f"{url}/console/runs?status=failed")
        await page.locator(f'tr[data-run="{SHORT}"] a.mono').click()
        await page.wait_for_url(f"{url}/console/runs/{SHORT}")
        await page.locator(".drawing .box").first.click()
        await page.wait_for_selector("#panel h2")
        await page.get_by_role("link", name="Pipelines", exact=True).first.click()
        await page.wait_for_url(f"{url}/console/pipelines")
        await page.get_by_role("link", name="New pipeline…").click()
        await page.wait_for_selector("#verdict .note")
        await page.locator("#account summary").click()
        await page.get_by_role("button", name="Sign out").click()
        await page.wait_for_url(f"{url}/console/sign-in")


# ---- five tasks, each from the start page, as somebody new would do them -----------------------


async def test_task_yesterdays_slow_runs_of_a_customer_and_the_step_to_blame(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.locator("select[name=period]").select_option("7d")
        await page.get_by_label("Label", exact=True).fill("customer=acme")
        await page.get_by_label("deadline missed").check()
        await page.get_by_role("button", name="Show", exact=True).click()
        await page.wait_for_url("**missed=true**")
        found = page.locator("#runs tbody tr")
        runs = [await found.nth(i).get_attribute("data-run") for i in range(await found.count())]
        await found.last.locator("a.mono").click()
        await page.wait_for_url(f"**/runs/{YESTERDAY}")
        blamed = await page.locator(".blame").inner_text()
        await page.locator(".blame a").first.click()
        await page.locator("h2.mono", has_text="draft").wait_for()

    assert runs == [OTHER, YESTERDAY]
    assert "Most of it: draft 3.55 s" in blamed


async def test_task_a_failed_step_is_run_again_with_another_input(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.locator("select[name=status]").select_option("failed")
        await page.get_by_role("button", name="Show", exact=True).click()
        await page.wait_for_url("**status=failed**")
        await page.locator(f'tr[data-run="{SHORT}"] a.mono').click()
        await page.get_by_role("button", name="Run again from here").click()
        await page.locator("#dialog-from-here textarea").fill('{"text": "other"}')
        async with page.expect_request(f"**/v1/runs/{SHORT}/rerun") as asked:
            await page.get_by_role("button", name="Run", exact=True).click()
        sent = await asked.value

    assert json.loads(sent.post_data) == {"from_step": "draft", "step_input": {"text": "other"}}


LONG_NUMBER = 2**53 + 1
"""It differs from what the browser's own numbers make of it."""


async def test_what_is_typed_as_json_is_sent_with_all_of_its_digits(rest: Rest) -> None:
    pipeline = {
        "pipeline": "orders",
        "nodes": {"a": {"type": "approval"}},
        "input": {
            "type": "object",
            "properties": {
                "customer": {"type": "integer"},
                "order": {"type": "integer", "default": LONG_NUMBER},
                "text": {"type": "string"},
            },
        },
    }
    assert (await rest.post("/v1/pipelines", pipeline)).status == 201
    async with opened_page(rest, expected="422") as page:
        refusal = {"status": 422, "json": {"detail": "It stays on its page."}}
        await page.route("**/v1/runs**", lambda route: route.fulfill(**refusal))
        await page.goto(f"{rest.url}/console/runs/{SHORT}/steps/draft")
        await page.get_by_role("button", name="Run again from here").click()
        await page.locator("#dialog-from-here textarea").fill(f'{{"customer": {LONG_NUMBER}}}')
        async with page.expect_request(f"**/v1/runs/{SHORT}/rerun") as asked:
            await page.get_by_role("button", name="Run", exact=True).click()
        again = (await asked.value).post_data

        await page.goto(f"{rest.url}/console/pipelines/orders")
        await page.get_by_role("button", name="Try it").click()
        assert await page.get_by_role("spinbutton", name="order").input_value() == str(LONG_NUMBER)
        await page.get_by_role("spinbutton", name="customer").fill(str(LONG_NUMBER))
        await page.get_by_role("textbox", name="text", exact=True).fill("hi")
        async with page.expect_request("**/v1/runs") as asked:
            await page.get_by_role("button", name="Run", exact=True).click()
        tried = (await asked.value).post_data

    assert json.loads(again)["step_input"] == {"customer": LONG_NUMBER}
    given = {"customer": LONG_NUMBER, "order": LONG_NUMBER, "text": "hi"}
    assert json.loads(tried) == {"pipeline": "orders", "version": 1, "input": given}


DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


async def test_the_timeline_of_a_run_that_goes_on_keeps_its_zoom_and_stops_at_its_end(
    rest: Rest,
) -> None:
    going, now = live_rig.run_id(903), datetime.now(UTC)
    await insert_run(rest.pool, going, now, pipeline="research", status="running")
    await insert_step(rest.pool, going, "plan", now, state="dispatched")
    async with opened_page(rest) as page:

        async def after(ms: int) -> str:
            await page.clock.fast_forward(ms)
            await page.evaluate(DRAWN)
            return str(await page.locator("#zoomed").inner_text())

        await page.clock.install()
        await page.goto(f"{rest.url}/console/runs/{going}")
        await page.wait_for_selector("#zoomed:not(:empty)")
        whole = await after(20_000)
        await page.locator("#zoom-in").click()
        await page.evaluate(DRAWN)
        zoomed = await page.locator("#zoomed").inner_text()
        kept = await after(60_000)
        await page.locator("#zoom-all").click()
        await rest.pool.execute(
            "UPDATE hocket.run SET status = 'succeeded', finished_at = $2 WHERE run_id = $1",
            going,
            now + timedelta(seconds=100),
        )
        await live_rig.tell_end(rest.bus, 903, pipeline="research")
        await page.locator("header .status.succeeded").wait_for()
        ended = [await after(ms) for ms in (1_000, 600_000)]

    assert zoomed != whole
    assert kept == zoomed
    assert ended == ["0 to 1 min 42 s"] * 2  # of 100 s, and a little space


@pytest.mark.parametrize(
    ("path", "place"),
    [("runs", "tr[data-run={}] .status.succeeded"), ("runs/{}", "header .status.succeeded")],
)
async def test_updates_that_were_refused_are_asked_for_again(
    rest: Rest, path: str, place: str
) -> None:
    """A proxy answers for the server while it restarts, after which browsers do not ask again."""
    going, refused = live_rig.run_id(905), asyncio.Event()
    await add_run(rest, going, status="running", allowed_ms=600_000)

    async def refuse_once(route: Any) -> None:
        if refused.is_set():
            await route.continue_()
        else:
            await route.fulfill(status=502, body="restarting")
            refused.set()

    async with opened_page(rest, expected="502") as page:
        await page.route(re.compile("/console/live/runs"), refuse_once)
        await page.goto(f"{rest.url}/console/{path.format(going)}")
        async with asyncio.timeout(30):
            await refused.wait()
        await rest.pool.execute(
            "UPDATE hocket.run SET status = 'succeeded', finished_at = $2 WHERE run_id = $1",
            going,
            datetime.now(UTC),
        )
        await page.locator(place.format(going)).wait_for()


async def test_a_run_that_takes_days_says_so_while_it_goes_on(rest: Rest) -> None:
    going = live_rig.run_id(904)
    began = datetime.now(UTC) - timedelta(hours=26)
    await insert_run(rest.pool, going, began, pipeline="research", status="running")
    async with opened_page(rest) as page:
        await page.clock.install()
        await page.goto(f"{rest.url}/console/runs/{going}")
        await page.clock.fast_forward(1_000)
        took = await page.locator("#took").inner_text()

    assert took == "1 d 02 h"


async def test_a_period_takes_the_place_of_a_range_that_was_dragged(rest: Rest) -> None:
    async with opened_page(rest) as page:
        dragged = "since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z"
        await page.goto(f"{rest.url}/console/runs?{dragged}")
        await page.locator("#accepted", has_text="runs").wait_for()
        await page.get_by_role("button", name="Show", exact=True).click()
        await page.wait_for_url("**period=24h&since=2026**")
        await page.locator("#accepted", has_text="runs").wait_for()
        await page.locator("select[name=period]").select_option("7d")
        await page.get_by_role("button", name="Show", exact=True).click()
        await page.wait_for_url("**period=7d**")
        address = page.url

    assert "since" not in address
    assert "until" not in address


async def test_filters_that_were_chosen_but_not_shown_are_gone_after_coming_back(
    rest: Rest,
) -> None:
    async with opened_page(rest) as page:
        dragged = "since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z"
        await page.goto(f"{rest.url}/console/runs?status=failed&{dragged}")
        await page.locator("select[name=status]").select_option("running")
        await page.locator("select[name=period]").select_option("7d")
        await page.locator("[name=labels]").fill("customer=acme")
        await page.get_by_role("link", name="Pipelines", exact=True).click()
        await page.wait_for_url("**/pipelines")
        await page.go_back()
        await page.wait_for_function("document.readyState === 'complete'")
        seen = [await page.locator(f"[name={name}]").input_value() for name in ("status", "labels")]
        # from the cache of the browser, scripts go on where they were
        await page.locator("select[name=status]").select_option("running")
        await page.locator("select[name=period]").select_option("7d")
        await page.evaluate(
            "dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))"
        )
        kept = await page.locator("select[name=status]").input_value()
        is_range = await page.locator("[name=since]").is_enabled()

    assert seen == ["failed", ""]
    assert kept == "failed"
    assert is_range


async def test_all_runs_that_fit_are_retried_after_a_preview(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs?status=failed")
        await page.locator("#all summary").click()
        await page.get_by_role("button", name="Retry failed ones").click()
        await page.locator("#bulk-go:enabled").wait_for()
        counted = await page.locator("#bulk-count").inner_text()
        assert counted == "2 runs that ended without a whole result fit these filters."
        await page.get_by_label("Reason").fill("the index was old")
        await shot(page, "bulk-preview")
        await page.get_by_role("button", name="Retry 2").click()
        await page.wait_for_url("**/console/bulk")
        assert "the index was old" in await page.locator("#bulk").inner_text()
        async with working(rest):
            await page.locator("#bulk tbody tr").first.locator(".status.done").wait_for()
        await shot(page, "bulk")
        assert "pipeline" in (said := await page.locator("#bulk tbody tr").first.inner_text())

    assert [cell for cell in said.split("\t") if cell.isdigit()] == ["2", "0", "2"]


async def test_task_an_approval_is_given_with_a_comment(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.get_by_role("link", name=re.compile("^Approvals")).click()
        await page.get_by_label("Comment").fill("read and fine")
        async with page.expect_request(f"**/v1/runs/{WAITING}/signals") as asked:
            await page.get_by_role("button", name="Approve").click()
        sent = json.loads((await asked.value).post_data)

    assert sent["name"] == "send"
    assert sent["payload"] == {"approved": True, "note": "read and fine", "by": "test"}


async def test_task_which_money_is_wasted_and_why(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.get_by_role("link", name="Money", exact=True).click()
        said = await page.locator("main").inner_text()

    assert "research / plan: retry" in said
    assert "research / draft: speculation" in said


async def test_task_why_a_call_went_to_the_dear_backend(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.get_by_role("link", name="Models", exact=True).click()
        await page.get_by_role("link", name="decisions").first.click()
        await page.locator("main details summary").last.click()
        said = await page.locator("main details[open]").last.inner_text()

    assert "would have missed the deadline" in said
    assert "haiku-us its breaker is open" in said.replace("\n", " ")


async def test_the_editor_marks_the_line_that_is_wrong(rest: Rest) -> None:
    async with opened_page(rest, expected="422") as page:
        await page.goto(f"{rest.url}/console/editor?name=research")
        await page.wait_for_selector("#verdict .note")
        text = await page.locator("#spec").input_value()
        await page.locator("#spec").fill(text.replace("slo_ms: 8000", "slo_ms: soon"))
        await page.wait_for_selector("#verdict .error")
        line = int(await page.locator("#lines .faulty").inner_text())

    assert text.splitlines()[line - 1].startswith("slo_ms")


async def test_a_replica_is_drained_with_a_reason_and_resumed(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/models")
        row = page.locator("tr", has=page.get_by_text("writer-gpu/1", exact=True))
        await row.get_by_role("button", name="Drain…").click()
        await page.locator("#dialog-drain [name=reason]").fill("disk is full")
        async with page.expect_request("**/v1/backends/writer-gpu/drain") as asked:
            await page.locator("#dialog-drain button.danger").click()
        sent = json.loads((await asked.value).post_data)
        await row.get_by_text("disk is full").wait_for()
        await row.get_by_role("button", name="Resume").click()
        await row.get_by_role("button", name="Drain…").wait_for()

    assert sent == {"replica": "writer-gpu/1", "reason": "disk is full"}


async def test_lines_of_a_run_that_goes_on_come_by_themselves_and_are_chosen_by_level(
    rest: Rest,
) -> None:
    going, now = live_rig.run_id(903), datetime.now(UTC)
    await insert_run(
        rest.pool, going, now, pipeline="research", status="running", allowed_ms=600_000
    )
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs/{going}?view=logs")
        assert "has logged anything" in await page.locator("#logs").inner_text()
        await insert_line(rest.pool, going, "plan", now, "began", fields={"sources": 3})
        await page.get_by_text("began").wait_for()
        await page.goto(f"{rest.url}/console/runs/{SHORT}?view=logs")
        await page.get_by_label("Level").select_option("warning")
        await page.get_by_role("button", name="Show", exact=True).click()
        await page.wait_for_url("**level=warning**")
        levels = await page.locator("#logs .level").all_inner_texts()

    assert levels == ["warning", "error"]
