"""Pages that are open for long: they stay up to date, or say that they are not, and hold no connection
while nobody sees them."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.administration import live_rig
from support.administration.browser import MARKS, opened_page
from support.administration.console_scene import WAITING, add_run
from support.rest_rig import Rest
from support.runs.rows import insert_run, insert_step

pytestmark = MARKS

GOING = live_rig.run_id(910)
LATE = 10_000_000
"""The place of a change in its log, after those that the scene has."""
CONNECTIONS = 6
"""Connections to one server that browsers open over HTTP/1.1."""
OFFERED = ("Cancel…", "Signal…", "Approve")
"""The buttons of the page of a run with a pending approval."""
SEEN = """is => {
    Object.defineProperty(document, 'hidden', { get: () => !is, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
}"""


NOTICED = """new MutationObserver(() => {
    const said = [...document.querySelectorAll('.note, #notice p')].map((one) => one.textContent);
    sessionStorage.setItem('noticed', (sessionStorage.getItem('noticed') ?? '') + said.join());
}).observe(document, { childList: true, subtree: true });"""
"""Notes all that a page has told, also before it was loaded again."""
MANY = 51
"""More than one page of the list holds."""


@pytest.fixture
async def going(rest: Rest) -> str:
    """A run that goes on, with a step that waits for a person."""
    now = datetime.now(UTC)
    await insert_run(
        rest.pool, GOING, now, pipeline="research", status="running", allowed_ms=600_000
    )
    await insert_step(rest.pool, GOING, "send", now, type="approval", state="waiting")
    return GOING


async def answer(rest: Rest, run_id: str, number: int, by: str) -> None:
    """Approve the step `send` of a run, as another person does."""
    given = json.dumps({"approved": True, "by": by, "note": ""})
    await rest.pool.execute(
        "UPDATE hocket.step SET state = 'succeeded', finished_at = now(), output = $2"
        " WHERE run_id = $1",
        run_id,
        given,
    )
    change = live_rig.change(number, LATE, steps=[("send", "succeeded", 1)])
    await live_rig.tell(rest.bus, change, pipeline="research")


async def end(rest: Rest, number: int) -> None:
    """End a run."""
    await rest.pool.execute(
        "UPDATE hocket.run SET status = 'succeeded', finished_at = now() WHERE run_id = $1",
        live_rig.run_id(number),
    )
    await live_rig.tell_end(rest.bus, number, pipeline="research")


async def test_pages_that_nobody_sees_leave_the_connections_to_those_that_are_seen(
    rest: Rest, going: str
) -> None:
    async with opened_page(rest) as page:
        for _ in range(CONNECTIONS + 2):
            other = await page.context.new_page()
            await other.goto(f"{rest.url}/console/runs/{going}", timeout=15_000)
            await other.locator("#panel").get_by_role("button", name="Approve").wait_for()
            await other.evaluate(SEEN, False)
        await page.goto(f"{rest.url}/console/runs/{going}")
        await page.locator("#panel").get_by_role("button", name="Approve").wait_for()


@pytest.mark.parametrize(
    ("path", "place"),
    [("runs", "tr[data-run={}] .status.succeeded"), ("runs/{}", "header .status.succeeded")],
)
async def test_what_ended_while_nobody_saw_the_page_is_shown_once_it_is_seen(
    rest: Rest, going: str, path: str, place: str
) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/{path.format(going)}")
        await page.evaluate(SEEN, False)
        await end(rest, 910)
        await page.evaluate(SEEN, True)
        await page.locator(place.format(going)).wait_for()


async def test_a_run_page_that_is_seen_again_asks_only_for_what_it_missed(
    rest: Rest, going: str
) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs/{going}")
        await page.locator("#panel").get_by_role("button", name="Approve").wait_for()
        await answer(rest, going, 910, "bob")
        await page.locator("#panel .status.succeeded").wait_for()
        await page.evaluate(SEEN, False)
        async with page.expect_request(re.compile("/console/live/runs")) as stream:
            await page.evaluate(SEEN, True)
        address = (await stream.value).url

    assert re.search(r"\?since=[0-9]+", address)


async def test_runs_that_came_while_nobody_saw_the_list_are_on_it(rest: Rest) -> None:
    fresh = live_rig.run_id(911)
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs")
        await page.wait_for_selector("#runs[data-live=open]")
        await page.evaluate(SEEN, False)
        await add_run(rest, fresh, status="running", at=datetime.now(UTC))
        await page.evaluate(SEEN, True)
        await page.wait_for_selector(f'#runs tbody tr:first-child[data-run="{fresh}"]')


async def shown(page: Any) -> list[str]:
    """Return the ids of the runs of a list."""
    return await page.evaluate(
        "[...document.querySelectorAll('#runs tbody tr')].map((one) => one.dataset.run)"
    )


async def test_older_runs_do_not_come_on_top_of_a_list_that_is_seen_again(rest: Rest) -> None:
    now = datetime.now(UTC)
    ids = [live_rig.run_id(920 + number) for number in range(MANY + 3)]  # the newest first
    for number, run_id in enumerate(ids):
        await add_run(rest, run_id, status="running", at=now - timedelta(seconds=number))
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs?status=running")
        await page.wait_for_selector("#runs[data-live=open]")
        before = await shown(page)
        await page.evaluate(SEEN, False)
        await end(rest, 921)
        await page.evaluate(SEEN, True)
        await page.locator(f'tr[data-run="{ids[1]}"] .status.succeeded').wait_for()
        after = await shown(page)

    assert before[:2] == ids[:2]
    assert after == before


@pytest.mark.parametrize("is_read", [False, True])
async def test_a_list_has_no_hole_if_more_came_than_a_page_holds(rest: Rest, is_read: bool) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs")
        await page.wait_for_selector("#runs[data-live=open]")
        before = await shown(page)
        if is_read:
            await page.locator("[data-pick]").first.check()
        await page.evaluate(SEEN, False)
        for number in range(MANY):
            fresh = live_rig.run_id(920 + number)
            await add_run(rest, fresh, status="running", at=datetime.now(UTC))
        await page.evaluate(SEEN, True)
        if is_read:
            await page.get_by_role("button", name="Show new runs").wait_for()
            assert await shown(page) == before
            await page.get_by_role("button", name="Show new runs").click()
        await page.wait_for_selector(f'tr[data-run="{live_rig.run_id(920 + MANY - 1)}"]')
        ids = await shown(page)
        await page.get_by_role("link", name="Older runs").click()
        await page.wait_for_selector(f'tr[data-run="{live_rig.run_id(920)}"]')

    assert ids == [live_rig.run_id(920 + number) for number in reversed(range(1, MANY))]


async def test_a_run_that_ended_while_the_list_was_read_again_has_ended(rest: Rest) -> None:
    going = live_rig.run_id(915)
    await add_run(rest, going, status="running", at=datetime.now(UTC))

    async def late(route: Any) -> None:
        made = await route.fetch()
        await end(rest, 915)
        await page.locator(f'tr[data-run="{going}"] .status.succeeded').wait_for()
        await route.fulfill(response=made)

    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs")
        await page.wait_for_selector("#runs[data-live=open]")
        await page.evaluate(SEEN, False)
        await page.route(re.compile(r"/console/runs$"), late)
        async with page.expect_response(re.compile(r"/console/runs$")):
            await page.evaluate(SEEN, True)
        await page.wait_for_timeout(500)
        assert await page.locator(f'tr[data-run="{going}"] .status.succeeded').count() == 1


async def test_a_page_whose_session_ended_says_so_stops_and_leads_back(
    rest: Rest, going: str
) -> None:
    async with opened_page(rest, expected="Failed to load") as page:
        address = f"{rest.url}/console/runs/{going}"
        await page.clock.install()
        await page.goto(address)
        await page.locator("#panel").get_by_role("button", name="Approve").wait_for()
        await page.context.clear_cookies()
        await page.evaluate(SEEN, False)
        await page.evaluate(SEEN, True)  # its stream begins again
        bar = page.locator("#away")
        await bar.get_by_text("You are signed out.").wait_for()
        await page.clock.fast_forward(1_000)
        took = await page.locator("#took").inner_text()
        offered = [
            await page.get_by_role("button", name=name).first.is_enabled() for name in OFFERED
        ]
        await page.clock.fast_forward(60_000)
        later = await page.locator("#took").inner_text()
        async with page.context.expect_page() as opened:
            await bar.get_by_role("link", name="Sign in").click()
        other = await opened.value
        await other.locator("[name=key]").fill(rest.key)
        await other.keyboard.press("Enter")
        await other.wait_for_url(address)

    assert later == took
    assert offered == [False] * len(OFFERED)


async def test_a_page_goes_on_with_what_was_typed_once_somebody_signed_in_again(
    rest: Rest, going: str
) -> None:
    async with opened_page(rest, expected="Failed to load") as page:
        await page.goto(f"{rest.url}/console/runs/{going}")
        panel, bar = page.locator("#panel"), page.locator("#away")
        await panel.get_by_label("Comment").fill("looks fine")
        cookies = await page.context.cookies()
        await page.context.clear_cookies()
        await page.evaluate(SEEN, False)
        await page.evaluate(SEEN, True)
        await bar.get_by_text("You are signed out.").wait_for()
        await page.evaluate("dispatchEvent(new Event('focus'))")
        await page.wait_for_timeout(300)
        assert await bar.is_visible(), "it is out still"
        await page.context.add_cookies(cookies)
        await page.evaluate("dispatchEvent(new Event('focus'))")
        await bar.wait_for(state="hidden")
        offered = [
            await page.get_by_role("button", name=name).first.is_enabled() for name in OFFERED
        ]
        assert await panel.get_by_label("Comment").input_value() == "looks fine"
        await answer(rest, going, 910, "bob")
        await panel.get_by_text("Approved by bob.").wait_for()

    assert offered == [True] * len(OFFERED)


@pytest.mark.parametrize("path", ["runs/{}", "approvals"])
async def test_the_last_update_was_when_the_page_was_seen_last(
    rest: Rest, going: str, path: str
) -> None:
    async with opened_page(rest, expected="Failed to load") as page:
        await page.clock.install()
        await page.goto(f"{rest.url}/console/{path.format(going)}")
        await page.get_by_role("button", name="Approve").first.wait_for()
        seen = datetime.fromtimestamp(await page.evaluate("Date.now()") / 1000, UTC)
        await page.evaluate(SEEN, False)
        await page.clock.fast_forward(3_600_000)
        await page.route(re.compile("/console/"), lambda route: route.abort())
        await page.evaluate(SEEN, True)
        bar = page.locator("#away")
        await bar.get_by_text("Last update").wait_for()
        told = await bar.inner_text()

    near = [(seen + timedelta(seconds=by)).strftime("%H:%M:%S") for by in range(-3, 4)]
    assert any(one in told for one in near), (told, seen)


async def test_a_server_that_does_not_know_where_a_page_was_tells_it_all(
    rest: Rest, going: str
) -> None:
    async def refuse(route: Any) -> None:
        await route.fulfill(status=422, body="{}")

    async with opened_page(rest, expected="422") as page:
        await page.goto(f"{rest.url}/console/runs/{going}")
        await page.locator("#panel").get_by_role("button", name="Approve").wait_for()
        await answer(rest, going, 910, "bob")
        await page.locator("#panel .status.succeeded").wait_for()
        await page.evaluate(SEEN, False)
        await page.route(re.compile(r"/console/live/runs/.*since="), refuse)
        await end(rest, 910)
        await page.evaluate(SEEN, True)
        await page.locator("header .status.succeeded").wait_for()


async def test_a_page_without_connection_says_so_until_there_is_one(rest: Rest, going: str) -> None:
    async with opened_page(rest, expected="Failed to load") as page:
        stream = re.compile("/console/live/runs")
        await page.route(stream, lambda route: route.abort())
        await page.goto(f"{rest.url}/console/runs/{going}")
        bar = page.locator("#away")
        await bar.get_by_text(
            re.compile(r"^No connection\. Last update \d\d:\d\d:\d\d UTC\.$")
        ).wait_for()
        await page.unroute(stream)
        await bar.wait_for(state="hidden")


async def test_a_request_that_is_not_answered_ends_with_a_message(rest: Rest, going: str) -> None:
    async with opened_page(rest) as page:
        await page.add_init_script(
            "AbortSignal.timeout = ((real) => () => real(300))(AbortSignal.timeout)"
        )
        await page.route("**/cancel", lambda _: None)
        await page.goto(f"{rest.url}/console/runs/{going}")
        await page.get_by_role("button", name="Cancel…").click()
        await page.get_by_role("button", name="Cancel the run").click()
        await page.locator("#dialog-cancel").get_by_text("did not answer within").wait_for()


async def test_an_approval_that_is_answered_elsewhere_is_so_beside_the_timeline(
    rest: Rest, going: str
) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs/{going}")
        panel = page.locator("#panel")
        await panel.get_by_role("button", name="Approve").wait_for()
        await answer(rest, going, 910, "bob")
        await panel.locator(".status.succeeded").wait_for()
        assert await panel.get_by_role("button", name="Approve").count() == 0


async def test_a_comment_that_was_typed_meanwhile_is_kept_and_cannot_be_sent(
    rest: Rest, going: str
) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs/{going}")
        panel = page.locator("#panel")
        await panel.get_by_label("Comment").fill("looks fine")
        await answer(rest, going, 910, "bob")
        await panel.get_by_text("Approved by bob. Your answer was not sent.").wait_for()
        assert await panel.get_by_label("Comment").input_value() == "looks fine"
        assert await panel.get_by_role("button", name="Approve").is_disabled()
        await end(rest, 910)
        await page.locator("header .status.succeeded").wait_for()
        await page.wait_for_timeout(500)
        assert await panel.get_by_text("Your answer was not sent.").count() == 1
        assert await panel.get_by_label("Comment").input_value() == "looks fine"


async def test_who_types_a_comment_goes_on_typing_when_the_step_changes(
    rest: Rest, going: str
) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs/{going}")
        panel = page.locator("#panel")
        await panel.get_by_label("Comment").click()
        await page.keyboard.type("looks")
        await answer(rest, going, 910, "bob")
        await panel.get_by_text("Approved by bob. Your answer was not sent.").wait_for()
        await page.keyboard.type(" good, great")
        assert await panel.get_by_label("Comment").input_value() == "looks good, great"
        assert await panel.locator(".status").first.inner_text() == "succeeded"


async def test_the_focus_stays_in_the_panel_whose_step_changes(rest: Rest, going: str) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs/{going}")
        await page.locator("#panel pre").first.focus()
        await answer(rest, going, 910, "bob")
        await page.locator("#panel .status.succeeded").wait_for()
        assert await page.evaluate("document.activeElement.id") == "panel"


@pytest.mark.parametrize("typed", ["", "fine by me"])
async def test_an_own_approval_is_never_said_not_to_be_sent(
    rest: Rest, going: str, typed: str
) -> None:
    async def take(route: Any) -> None:
        await answer(rest, going, 910, "test")  # its change is heard before its answer
        await asyncio.sleep(0.5)
        await route.fulfill(status=200, body="{}", content_type="application/json")

    async with opened_page(rest) as page:
        await page.add_init_script(NOTICED)
        await page.route("**/signals", take)
        await page.goto(f"{rest.url}/console/runs/{going}")
        await page.locator("#panel").get_by_label("Comment").fill(typed)
        async with page.expect_navigation():
            await page.locator("#panel").get_by_role("button", name="Approve").click()
        noticed = await page.evaluate("sessionStorage.getItem('noticed')")

    assert "Sent." in noticed
    assert "not sent" not in noticed


async def test_an_own_approval_whose_answer_is_late_is_not_one_from_elsewhere(
    rest: Rest, going: str
) -> None:
    async def take(route: Any) -> None:
        await answer(rest, going, 910, "test")
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await asyncio.sleep(0.5)
        await route.fulfill(status=200, body="{}", content_type="application/json")

    async with opened_page(rest) as page:
        await page.add_init_script(NOTICED)
        await page.route("**/signals", take)
        await page.goto(f"{rest.url}/console/approvals")
        card = page.locator(f'[data-approval="{going}/send"]')
        async with page.expect_navigation():
            await card.get_by_role("button", name="Approve").click()
        noticed = await page.evaluate("sessionStorage.getItem('noticed')")

    assert "Sent." in noticed
    assert "not sent" not in noticed


async def test_pending_approvals_go_and_come_as_they_do_elsewhere(rest: Rest, going: str) -> None:
    async with opened_page(rest) as page:
        await page.clock.install()
        await page.goto(f"{rest.url}/console/approvals")
        card = page.locator(f'[data-approval="{going}/send"]')
        other = page.locator(f'[data-approval="{WAITING}/send"]')
        await other.get_by_label("Comment").fill("wait")
        await rest.pool.execute(
            "UPDATE hocket.step SET state = 'succeeded', finished_at = now(),"
            """ output = '{"approved": true, "by": "bob"}' WHERE type = 'approval'"""
        )
        new, now = live_rig.run_id(912), datetime.now(UTC)
        await insert_run(rest.pool, new, now, pipeline="research", status="running")
        await insert_step(rest.pool, new, "send", now, type="approval", state="waiting")
        await page.clock.fast_forward(6_000)
        await page.locator(f'[data-approval="{new}/send"]').wait_for()
        await card.wait_for(state="detached")
        await other.get_by_text("Approved by bob. Your answer was not sent.").wait_for()
        assert await other.get_by_label("Comment").input_value() == "wait"
        assert (await page.locator("h1").inner_text()).endswith("1 waits for a decision")


@pytest.mark.parametrize(("count", "asked"), [(1, {2, 3, 4}), (MANY, {1})])
async def test_a_page_of_many_approvals_is_read_again_less_often(
    rest: Rest, count: int, asked: set[int]
) -> None:
    now = datetime.now(UTC)
    for number in range(count):
        new = live_rig.run_id(920 + number)
        await insert_run(rest.pool, new, now, pipeline="research", status="running")
        await insert_step(rest.pool, new, "send", now, type="approval", state="waiting")
    async with opened_page(rest) as page:
        await page.clock.install()
        await page.goto(f"{rest.url}/console/approvals")
        seen: list[str] = []
        page.on("request", lambda request: seen.append(request.url.rpartition("/")[2]))
        for _ in range(8):
            await page.clock.run_for(2_000)
            await page.wait_for_timeout(200)  # for the answer

    assert seen.count("approvals") in asked


async def test_who_answers_an_approval_too_late_is_told_by_whom_it_was(
    rest: Rest, going: str
) -> None:
    async with opened_page(rest, expected="409") as page:
        await page.goto(f"{rest.url}/console/approvals")
        card = page.locator(f'[data-approval="{going}/send"]')
        await rest.pool.execute(
            "UPDATE hocket.step SET state = 'succeeded', finished_at = now(),"
            """ output = '{"approved": true, "by": "bob"}' WHERE type = 'approval'"""
        )
        await card.get_by_role("button", name="Approve").click()
        await card.get_by_text("Approved by bob. Your answer was not sent.").wait_for()


async def test_how_long_a_run_has_taken_goes_on_in_the_list(rest: Rest) -> None:
    going = live_rig.run_id(913)
    began = datetime.now(UTC) - timedelta(seconds=50)
    await insert_run(
        rest.pool, going, began, pipeline="research", status="running", allowed_ms=90_000
    )
    async with opened_page(rest) as page:
        await page.clock.install()
        await page.goto(f"{rest.url}/console/runs")
        row = page.locator(f'tr[data-run="{going}"]')
        await page.wait_for_selector("#runs[data-live=open]")
        await page.clock.fast_forward(60_000)
        late = await row.inner_text()

    assert re.search("1 min [45]", late)


async def test_how_long_a_run_has_taken_is_by_the_clock_of_the_server(rest: Rest) -> None:
    going = live_rig.run_id(913)
    began = datetime.now(UTC) - timedelta(seconds=65)
    await insert_run(rest.pool, going, began, pipeline="research", status="running")
    async with opened_page(rest) as page:
        await page.clock.install(time=datetime.now(UTC) + timedelta(minutes=10))
        await page.goto(f"{rest.url}/console/runs")
        await page.wait_for_selector("#runs[data-live=open]")
        await page.clock.fast_forward(2_000)
        row = await page.locator(f'tr[data-run="{going}"]').inner_text()

    assert re.search(r"\b1 min [01]", row)


@pytest.mark.parametrize(("query", "told"), [("", 0), ("?contains=zebra", 1)])
async def test_a_list_that_does_not_change_by_itself_says_so(
    rest: Rest, query: str, told: int
) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs{query}")
        text = await page.locator("main").inner_text()

    assert text.count("This list does not change by itself.") == told


async def test_a_list_without_runs_offers_the_first_that_fits(rest: Rest) -> None:
    fresh = live_rig.run_id(914)
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs?labels=customer=none")
        await page.wait_for_selector("#none[data-live=open]")
        await add_run(rest, fresh, status="running", labels={"customer": "none"})
        change: Any = live_rig.change(914, 1, is_new=True, labels={"customer": "none"})
        await live_rig.tell(rest.bus, change, pipeline="research")
        await page.get_by_role("button", name="Show new runs").click()
        await page.wait_for_selector(f'tr[data-run="{fresh}"]')
