"""The console in a real browser: Debian's chromium, driven by Playwright. `make browser-test` installs
the driver and runs these; without it or without chromium they are skipped.

The pages are served by the API over a real Postgres whose rows the tests write, so that a run of 200,000
steps takes a second to make.
"""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hocket.kit.nats.bus import Bus
from hocket.schemas.messages import ReplicaState, ReplicasTold
from support.administration import live_rig
from support.administration.browser import (
    MARKS,
    NARROW,
    SHOTS,
    WIDE_PARTS,
    main_thread_tasks,
    opened_page,
    serious,
    shot,
)
from support.administration.bulk_rig import working
from support.administration.sub_path_proxy import running_proxy
from support.administration.told_replicas import ToldGateways
from support.administration.webhook_rig import MESSAGE, add_webhook
from support.rest_rig import Rest, running_rest
from support.runs.rows import insert_call, insert_line, insert_run, insert_step
from support.values.hostile_markup import PAYLOADS

pytestmark = MARKS

RUN = "r" + "0" * 24
SHORT = "r" + "1" * 24
OTHER = "r" + "3" * 24
WAITING = "r" + "4" * 24
ATTACKED = "r" + "2" * 24
REASON = "The draft cites a source that is not there."
NOW = datetime.now(UTC)
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
EVERY_PAGE = (
    "/runs",
    f"/runs/{SHORT}",
    f"/runs/{SHORT}?view=steps",
    f"/runs/{SHORT}?view=values",
    f"/runs/{SHORT}?view=calls",
    f"/runs/{SHORT}?view=trace",
    f"/runs/{SHORT}?view=logs",
    f"/runs/{SHORT}?view=journal",
    f"/runs/{SHORT}/calls/c0",
    f"/compare?a={SHORT}&b={OTHER}",
    "/approvals",
    "/flow",
    "/bulk",
    "/schedules",
    "/schedules/nightly",
    "/schedules/mornings",
    "/webhooks",
    "/webhooks/ops",
    f"/webhooks/ops/{MESSAGE}",
    "/webhooks/pager",
    "/pipelines",
    "/pipelines/research",
    "/pipelines/research/diff?a=1&b=2",
    "/editor?name=research",
    "/money",
    "/models",
    "/playground",
    "/system",
    "/system?view=workers",
    "/system?view=dead-letters",
    "/system?view=keys",
    "/system?view=audit",
    "/tenants",
)
DRAWN = """[...document.querySelectorAll('.drawing, #timeline, #histogram')]
    .every((place) => place.childElementCount)"""
"""Whether all that scripts draw is there."""
PIPELINE: dict[str, Any] = {
    "pipeline": "research",
    "description": "Reads sources for each question and writes an answer.",
    "slo_ms": 5000,
    "input": {"type": "object", "properties": {"question": {"type": "string"}}},
    "nodes": {
        "plan": {"type": "python", "handler": "a:plan"},
        "read": {
            "type": "python",
            "handler": "a:read",
            "needs": ["plan"],
            "map": {"over": "input.sources"},
        },
        "draft": {"type": "python", "handler": "a:draft", "needs": ["read"]},
        "check": {"type": "python", "handler": "a:check", "needs": ["draft"]},
    },
}  # fmt: skip
PATH = [["plan", "plan", 1, "model", 900_000, 1], ["read", "read", 1, "queue", 500_000, 1],
        ["draft", "draft", 1, "execution", 1_200_000, 1]]  # fmt: skip
HOSTILE = "".join(PAYLOADS)
DECISION = {
    "model": "smart",
    "reason": "the cheaper backend would have missed the deadline by 900 ms",
    "candidates": [
        {"backend": "dear", "score": [0, 0.011]},
        {"backend": "cheap", "score": [1, 0.002], "refused": "its breaker is open"},
    ],
}
STEP_ROWS = """
INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, input, output, ready_at,
    dispatched_at, started_at, finished_at, deadline_at, slack_ms, worker)
SELECT $1, 'read[' || n || ']', 'read', 'python', 'leaf', 'succeeded', 1, '{}', '1',
    $2::timestamptz + n * interval '0.1 ms', $2::timestamptz + n * interval '0.1 ms',
    $2::timestamptz + n * interval '0.1 ms' + interval '40 ms',
    $2::timestamptz + n * interval '0.1 ms' + interval '90 ms', $2::timestamptz + interval '60 s', 5, 'w'
FROM generate_series(0, $3 - 1) n
"""


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
        for run_id, text in ((SHORT, REASON), (ATTACKED, HOSTILE)):
            await _insert_run(rest, run_id, text, status="failed", took_ms=2_600)
            for number, node in enumerate(("plan", "read", "draft")):
                await _insert_step(rest, run_id, node, text, number)
        await _insert_more(rest)
        schedule = {"description": HOSTILE[:200], "cron": "30 2 * * *", "time_zone": "Europe/Berlin",
            "task": {"pipeline": "research", "input": {"question": HOSTILE}}}  # fmt: skip
        assert (await rest.ask("PUT", "/v1/schedules/nightly", json=schedule)).status == 201
        assert (await rest.post("/v1/schedules/nightly/trigger")).status == 202
        morning = {"description": "Answers what came in overnight.", "cron": "0 6 * * 1-5",
            "time_zone": "Europe/Berlin", "task": {"pipeline": "research",
            "input": {"question": "What did customers ask overnight?"}}}  # fmt: skip
        assert (await rest.ask("PUT", "/v1/schedules/mornings", json=morning)).status == 201
        await _insert_lines(rest)
        await told_gateways(rest.bus)
        await add_webhook(rest, "ops", text=HOSTILE, run_id=ATTACKED)
        await add_webhook(rest, "pager", text="Wakes whoever is on call.", run_id=SHORT)
        yield rest


@pytest.fixture
async def below(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url, root_path="/hocket") as rest:
        assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
        await _insert_run(rest, SHORT, REASON, status="failed", took_ms=2_600)
        await _insert_step(rest, SHORT, "plan", REASON, 0)
        yield rest


async def _insert_more(rest: Rest) -> None:
    """A second version, a run of it to compare with, calls, and an approval that waits."""
    checked = PIPELINE["nodes"] | {"send": {"type": "approval", "needs": ["check"],
        "prompt": "May the answer go to the customer?"}}  # fmt: skip
    changed = {**PIPELINE, "slo_ms": 8_000, "nodes": checked}
    assert (await rest.post("/v1/pipelines", changed)).status == 201
    await _insert_run(rest, OTHER, "Another answer.", took_ms=6_200, labels={"customer": "acme"})
    for number, node in enumerate(("plan", "read", "draft", "check")):
        said = REASON if node == "plan" else "Another answer."
        ready = NOW + timedelta(milliseconds=850 * number)
        await insert_step(rest.pool, OTHER, node, ready, said, queue_ms=220, ran_ms=700)
    await _insert_run(rest, WAITING, "A letter.", status="running", version=2)
    await insert_step(
        rest.pool, WAITING, "send", NOW, "A letter.", type="approval", state="waiting"
    )
    for number, kind in enumerate(("call", "call", "retry", "speculation")):
        await insert_call(
            rest.pool,
            f"c{number}",
            NOW,
            kind=kind,
            pipeline="research",
            run_id=SHORT,
            node=("plan", "draft")[number % 2],
            decision=DECISION,
            labels={"customer": "acme"},
        )


async def _insert_lines(rest: Rest) -> None:
    said = [
        ("plan", "info", "sources_chosen", {"count": 3, "took_ms": 41.5}),
        ("read", "warning", "source_slow", {"url": "https://example.com/a", "waited_s": 2}),
        ("draft", "debug", "prompt_ready", {"tokens": 1_812}),
        ("draft", "error", REASON, {"code": "check_failed"}),
    ]
    for number, (step, level, text, fields) in enumerate(said):
        at = NOW + timedelta(milliseconds=400 + 640 * number)
        await insert_line(rest.pool, SHORT, step, at, text, level=level, fields=fields)
        await insert_line(
            rest.pool,
            ATTACKED,
            HOSTILE[:200],
            at,
            HOSTILE,
            number=number,
            fields={HOSTILE: HOSTILE},
        )


async def told_gateways(bus: Bus) -> ToldGateways:
    """Two gateways with three replicas, of which one is drained and one unwell at one of them."""
    good = ReplicaState(
        replica="writer-gpu/1", backend="writer-gpu", kind="openai", models=("writer",), limit=8,
        in_flight=3,
    )  # fmt: skip
    drained = {"replica": "writer-gpu/2", "in_flight": 0, "drained": True, "by": "key:ops",
        "reason": "new driver", "changed_at_ms": NOW.timestamp() * 1000}  # fmt: skip
    cold = {"replica": "judge", "backend": "judge", "kind": "triton", "models": ("judge",),
        "in_flight": 0, "level": "cold"}  # fmt: skip
    hostile = {"replica": HOSTILE[:200], "backend": HOSTILE[:200], "reason": HOSTILE,
        "changed_at_ms": 1.0, "models": (HOSTILE[:200],), "in_flight": 0}  # fmt: skip
    unwell = good.model_copy(update={"breaker": "open", "openings": 2, "rests_ms": 4_000.0})
    more = [good.model_copy(update=one) for one in (drained, cold)]
    attacked = [good.model_copy(update=hostile)] if not SHOTS else []
    live = ("gateway-a", "gateway-b")
    gateways = ToldGateways(
        bus,
        ReplicasTold(gateway=live[0], gateways=live, replicas=(good, *more, *attacked)),
        ReplicasTold(gateway=live[1], gateways=live, replicas=(unwell, *more, *attacked)),
    )
    await gateways.open()
    return gateways


async def _insert_run(rest: Rest, run_id: str, text: str = "fine", **fields: Any) -> None:
    fields |= {"pipeline": "research", "budget": 0.05, "path": PATH, "input": {"question": text}}
    await insert_run(rest.pool, run_id, NOW, text, **fields)


async def _insert_step(rest: Rest, run_id: str, node: str, text: str, number: int) -> None:
    state = "failed" if node == "draft" else "succeeded"
    ready = NOW + timedelta(milliseconds=850 * number)
    times = {"queue_ms": 220, "ran_ms": 620, "allowed_ms": 5_000 - 850 * number}
    await insert_step(rest.pool, run_id, node, ready, text, state=state, **times)


async def test_a_run_of_200000_steps_is_drawn_at_once_and_stays_smooth(rest: Rest) -> None:
    await _insert_run(rest, RUN, took_ms=21_000, allowed_ms=60_000)
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


async def test_hostile_content_is_text_on_everyopened_page(rest: Rest) -> None:
    async with opened_page(rest) as page:
        attacked = (path.replace(SHORT, ATTACKED) for path in EVERY_PAGE)
        for path in (*attacked, f"/runs/{ATTACKED}/steps/draft"):
            await page.goto(f"{rest.url}/console{path}")
            await page.wait_for_load_state("load")
            assert await page.evaluate("window.ran") is None, path
            assert await page.locator("iframe, object, #main img").count() == 0, path
        await page.goto(f"{rest.url}/console/runs/{ATTACKED}")
        await page.locator("#graph .box").nth(2).click()
        await page.wait_for_selector("#panel h2")
        assert "<script>" in await page.locator("#panel .error").inner_text()
        assert await page.evaluate("window.ran") is None


async def test_a_failed_step_is_found_and_run_again_with_other_input_by_keyboard(
    rest: Rest,
) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs?status=failed")
        await page.keyboard.press("j")
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


async def test_every_page_fits_a_narrow_screen(rest: Rest) -> None:
    async with opened_page(rest, viewport=NARROW) as page:
        for path in EVERY_PAGE:
            await page.goto(f"{rest.url}/console{path}")
            width = await page.evaluate("document.documentElement.scrollWidth")
            assert width <= NARROW["width"], (path, await page.evaluate(WIDE_PARTS))


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(rest: Rest, scheme: str) -> None:
    async with opened_page(rest, color_scheme=scheme, bypass_csp=True) as page:
        for path in EVERY_PAGE:
            await page.goto(f"{rest.url}/console{path}")
            await page.wait_for_load_state("load")
            await page.wait_for_function(DRAWN)
            if SHOTS:
                name = (
                    path.strip("/")
                    .replace(SHORT, "run")
                    .replace("/", "-")
                    .replace("?view=", "-")
                    .partition("?")[0]
                )
                name = name.replace("/", "-")
                await shot(page, f"{name}-{scheme}")
            assert await serious(page) == [], path


async def test_a_list_and_a_run_change_at_once_and_nothing_jumps(rest: Rest) -> None:
    going = live_rig.run_id(900)
    await _insert_run(rest, going, status="running", allowed_ms=600_000)
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
        await _insert_run(rest, fresh, status="running")
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


@pytest.mark.parametrize("strip", [True, False])
async def test_all_of_it_works_below_a_path_of_a_proxy(below: Rest, *, strip: bool) -> None:
    async with (
        running_proxy(below.url, "/hocket", strip=strip) as url,
        opened_page(below, url) as page,
    ):
        await page.wait_for_selector("#runs[data-live=open]")
        await page.locator("#runs tbody a").first.click()
        await page.wait_for_url(f"{url}/console/runs/{SHORT}")
        await page.locator(".drawing .box").first.click()
        await page.wait_for_selector("#panel h2")
        await page.get_by_role("link", name="Pipelines", exact=True).first.click()
        await page.wait_for_url(f"{url}/console/pipelines")
        await page.get_by_role("link", name="New pipeline…").click()
        await page.wait_for_selector("#verdict .note")
        await page.get_by_role("button", name="Sign out").click()
        await page.wait_for_url(f"{url}/console/sign-in")


# ---- five tasks, from the start page ---------------------------------------------------------


async def test_task_slow_runs_of_a_customer_and_the_step_to_blame(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.get_by_label("Label", exact=True).fill("customer=acme")
        await page.get_by_label("deadline missed").check()
        await page.get_by_role("button", name="Show", exact=True).click()
        await page.locator("#runs tbody a.mono").first.click()
        await page.wait_for_url(f"**/runs/{OTHER}")
        assert "draft 1.20 s" in await page.locator(".blame").inner_text()


async def test_all_runs_that_fit_are_retried_after_a_preview(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs?status=failed")
        await page.locator("#all summary").click()
        await page.get_by_role("button", name="Retry those that failed").click()
        await page.locator("#bulk-go:enabled").wait_for()
        counted = await page.locator("#bulk-count").inner_text()
        assert counted == "2 runs that ended without a whole result fit these filters."
        await page.get_by_label("Reason").fill("the index was old")
        await shot(page, "bulk-preview")
        await page.get_by_role("button", name="Retry 2").click()
        await page.wait_for_url("**/console/bulk")
        assert "the index was old" in await page.locator("#bulk").inner_text()
        async with working(rest):
            await page.locator("#bulk .status.done").wait_for()
        await shot(page, "bulk")
        assert "pipeline" in (said := await page.locator("#bulk tbody tr").first.inner_text())

    assert [cell for cell in said.split("\t") if cell.isdigit()] == ["2", "0", "2"]


async def test_task_an_approval_is_given_with_a_comment(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.get_by_role("link", name="Approvals", exact=True).click()
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
        await page.get_by_role("link", name="why there").first.click()
        await page.locator("main details summary").last.click()
        said = await page.locator("main details[open]").last.inner_text()

    assert "would have missed the deadline" in said
    assert "cheap its breaker is open" in said.replace("\n", " ")


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
