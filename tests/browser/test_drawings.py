"""What the graph and the timeline of a run draw, and where they begin."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.administration import live_rig
from support.administration.browser import MARKS, opened_page
from support.rest_rig import Rest
from support.runs.rows import insert_run, insert_step

pytestmark = MARKS

NODES = 120
MOST_HEIGHT = 100
"""Of a row of nodes; those of one are 42 high."""
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
COLUMNS = """name => {
    const shown = document.createElement('i');
    shown.style.color = getComputedStyle(document.documentElement).getPropertyValue(name);
    document.body.append(shown);
    const [r, g, b] = getComputedStyle(shown).color.match(/\\d+/g).map(Number);
    const canvas = document.querySelector('#timeline canvas'), wide = canvas.width;
    const { data } = canvas.getContext('2d').getImageData(0, 26, wide, 22);
    const found = new Set();
    for (let at = 0; at < data.length; at += 4)
        if (data[at] === r && data[at + 1] === g && data[at + 2] === b) found.add(at / 4 % wide);
    return found.size;
}"""
"""How many columns of the timeline's first row have a colour."""
IN_SIGHT = """name => {
    const box = document.querySelector(`[data-node="${name}"]`).getBoundingClientRect();
    const view = document.querySelector('.graph').getBoundingClientRect();
    return box.left >= view.left && box.right <= view.right
        && box.top >= view.top && box.bottom <= view.bottom;
}"""


def large() -> dict[str, Any]:
    """A pipeline whose graph is larger than its place on a page."""
    nodes = {
        f"n{at}": {
            "type": "python",
            "handler": "a:b",
            "needs": sorted({f"n{need}" for need in (at - 7, at // 2) if 0 <= need < at}),
        }
        for at in range(NODES)
    }
    return {"pipeline": "large", "slo_ms": 60_000, "nodes": nodes}


@pytest.mark.parametrize(
    ("states", "seen"),
    [
        ({"n0": "succeeded", "n90": "failed", "n60": "dispatched"}, "n90"),
        ({"n0": "succeeded", "n60": "dispatched"}, "n60"),
        ({"n0": "succeeded"}, "n0"),
    ],
)
async def test_a_large_graph_begins_at_what_failed_else_at_what_runs(
    rest: Rest, states: dict[str, str], seen: str
) -> None:
    assert (await rest.post("/v1/pipelines", large())).status == 201
    run_id, now = live_rig.run_id(920), datetime.now(UTC)
    await insert_run(rest.pool, run_id, now, pipeline="large", status="running")
    for node, state in states.items():
        await insert_step(rest.pool, run_id, node, now, state=state)
    await rest.pool.execute(
        "UPDATE hocket.step SET finished_at = NULL WHERE run_id = $1 AND state = 'dispatched'",
        run_id,
    )
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs/{run_id}")
        await page.wait_for_selector("#graph svg")
        await page.wait_for_function(IN_SIGHT, arg=seen)
        others = [node for node in ("n0", "n60", "n90") if node != seen]
        assert not all([await page.evaluate(IN_SIGHT, node) for node in others])
        await page.get_by_role("button", name="Fit").click()
        assert all([await page.evaluate(IN_SIGHT, node) for node in ("n0", "n60", "n90")])
        await page.get_by_role("button", name="Fit").click()
        assert await page.evaluate(IN_SIGHT, seen)


async def test_a_long_row_of_nodes_that_is_seen_whole_leaves_no_empty_place(rest: Rest) -> None:
    nodes = {
        f"n{at}": {"type": "python", "handler": "a:b", "needs": [f"n{at - 1}"] if at else []}
        for at in range(NODES // 6)
    }
    spec = {"pipeline": "long", "slo_ms": 60_000, "nodes": nodes}
    assert (await rest.post("/v1/pipelines", spec)).status == 201
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/pipelines/long")
        await page.get_by_role("button", name="Fit").click()
        assert all([await page.evaluate(IN_SIGHT, node) for node in ("n0", f"n{NODES // 6 - 1}")])
        assert (await page.locator(".drawing svg").bounding_box())["height"] < MOST_HEIGHT


async def test_a_graph_that_fits_offers_no_other_size(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/pipelines/research")
        await page.wait_for_selector("#graph svg")
        assert await page.get_by_role("button", name="Fit").count() == 0


async def waiting_run(rest: Rest, number: int) -> str:
    """Add a run that has waited for a person for longer than it may take."""
    run_id, began = live_rig.run_id(number), datetime.now(UTC) - timedelta(seconds=60)
    await insert_run(
        rest.pool, run_id, began, pipeline="research", status="running", allowed_ms=20_000
    )
    await insert_step(
        rest.pool, run_id, "send", began, type="approval", state="waiting", allowed_ms=20_000
    )
    await rest.pool.execute("UPDATE hocket.step SET role = 'wait', started_at = NULL")
    return run_id


async def drawn(page: Any, rest: Rest, run_id: str, colour: str) -> int:
    """Return how many columns of its first step's row have a colour."""
    await page.goto(f"{rest.url}/console/runs/{run_id}")
    await page.wait_for_selector("#zoomed:not(:empty)")
    await page.locator("#panel .step > h2").wait_for()
    await page.evaluate(DRAWN)
    return int(await page.evaluate(COLUMNS, colour))


async def test_steps_that_became_ready_at_once_are_in_the_order_of_their_numbers(
    rest: Rest,
) -> None:
    run_id, now = live_rig.run_id(923), datetime.now(UTC)
    await insert_run(rest.pool, run_id, now, pipeline="research")
    for number in range(12):
        await insert_step(rest.pool, run_id, f"m[{number}]", now, node="m")
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs/{run_id}")
        await page.wait_for_selector("#zoomed:not(:empty)")
        await page.locator("#timeline").focus()
        for number in range(12):
            await page.keyboard.press("ArrowDown")
            if number in (2, 11):
                await page.keyboard.press("Enter")
                await page.locator("#panel .step > h2", has_text=f"m[{number}]").wait_for()


async def test_a_deadline_that_is_paused_is_not_drawn(rest: Rest) -> None:
    run_id = await waiting_run(rest, 921)
    async with opened_page(rest) as page:
        running = await drawn(page, rest, run_id, "--deadline")
        await rest.pool.execute(
            "UPDATE hocket.run SET facts = jsonb_build_object('paused_at_ms', $2::float8)"
            " WHERE run_id = $1",
            run_id,
            (datetime.now(UTC) - timedelta(seconds=60)).timestamp() * 1_000,
        )
        paused = await drawn(page, rest, run_id, "--deadline")
        said = await page.locator("#panel dd").nth(3).inner_text()

    assert running > 0
    assert paused == 0
    assert said == "paused"


async def test_a_wait_that_was_refused_is_drawn_as_a_wait_until_its_end(rest: Rest) -> None:
    run_id = await waiting_run(rest, 922)
    await rest.pool.execute(
        "UPDATE hocket.step SET state = 'failed', finished_at = now() WHERE run_id = $1", run_id
    )
    await rest.pool.execute(
        "UPDATE hocket.run SET status = 'failed', finished_at = now(),"
        " deadline_at = now() + interval '60 s' WHERE run_id = $1",
        run_id,
    )
    async with opened_page(rest) as page:
        waited = await drawn(page, rest, run_id, "--waiting")
        failed = await page.evaluate(COLUMNS, "--bad")

    assert waited > 100
    assert 0 < failed < 20, "the name of the step is of that colour, too, but smoothed"
