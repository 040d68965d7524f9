"""The playground in a real browser, over a real gateway and ledger whose model says hostile things."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.administration.browser import (
    MARKS,
    NARROW,
    WIDE_PARTS,
    opened_page,
    serious,
    shot,
)
from support.gateway.gateway_process import running_gateway
from support.gateway.mock_upstream import Upstream, delta, running_upstream
from support.ledger_rig import running_ledger
from support.rest_rig import Rest, running_rest
from support.values.hostile_markup import PAYLOADS

pytestmark = MARKS
HOSTILE = "".join(PAYLOADS)
QUESTION = "When is high water at Brest tomorrow, and may a boat of 2 m draught pass the bar?"
ANSWER = ("High water at Brest is at 06:42 and 19:05. ", "With 7.1 m over chart datum ",
          "a boat of 2 m draught passes the bar from 04:30 on.")  # fmt: skip
USAGE = {"prompt_tokens": 1_840, "completion_tokens": 61,
         "prompt_tokens_details": {"cached_tokens": 1_024}}  # fmt: skip


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with running_upstream() as running:
        yield running


@pytest.fixture
async def rest(
    nats_url: str, database_url: str, upstream: Upstream, tmp_path: Path
) -> AsyncIterator[Rest]:
    def backend(name: str, cost: str, **more: object) -> dict[str, object]:
        prices = {
            "input_usd_per_mtok": cost,
            "cached_usd_per_mtok": "0.3",
            "output_usd_per_mtok": "15",
        }
        return {"name": name, "base_url": upstream.base_url, "model": "m", "prices": prices} | more

    models = {
        "writer": {"choose": "price", "min_quality": 0.6, "backends": [
            backend("sonnet-eu", "3", quality=0.9), backend("opus", "15", quality=0.95),
            backend("small", "0.2", quality=0.4)]},
        "<img src=x onerror=alert(1)>": {"backends": [backend("hostile", "1")]},
    }  # fmt: skip
    async with (
        running_rest(nats_url, database_url) as rest,
        running_gateway(nats_url, tmp_path, models),
        running_ledger(rest.bus, rest.pool),
    ):
        yield rest


def says(upstream: Upstream, *texts: str) -> None:
    usage = {
        "id": "s",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [],
        "usage": USAGE,
    }
    upstream.answer = upstream.streams(*(delta(content=one) for one in texts), delta("stop"), usage)


async def test_task_why_a_call_went_there_and_what_it_cost_by_keyboard(
    rest: Rest, upstream: Upstream
) -> None:
    says(upstream, *ANSWER)
    async with opened_page(rest) as page:
        await page.keyboard.press("g")
        await page.keyboard.press("l")
        await page.wait_for_url("**/console/playground")
        await page.get_by_label("Model").select_option("writer")
        assert page.url.endswith("?model=writer")
        await page.get_by_label("Prompt").fill(QUESTION)
        await page.keyboard.press("Control+Enter")
        await page.locator("#decision .attempt").wait_for()
        assert await page.locator("#answer").inner_text() == "".join(ANSWER)
        price = await page.locator("#reply").inner_text()
        why = await page.locator("#decision").inner_text()

    assert "sonnet-eu" in why
    assert "opus" in why
    assert "small" in why
    assert "1,024" in price
    assert "booked\t1,901" in price


async def test_what_models_and_their_names_say_is_text(rest: Rest, upstream: Upstream) -> None:
    says(upstream, *PAYLOADS)
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/playground")
        for name in ("writer", "<img src=x onerror=alert(1)>"):
            await page.get_by_label("Model").select_option(name)
            await page.get_by_label("Prompt").fill(HOSTILE)
            await page.get_by_role("button", name="Call").click()
            await page.locator("#decision .attempt").wait_for()
            assert await page.locator("#answer").text_content() == HOSTILE
        upstream.answer = upstream.fails(400)
        await page.get_by_role("button", name="Call").click()
        await page.locator("#reply .error").wait_for()
        assert await page.evaluate("window.ran") is None
        assert await page.locator("#main :is(iframe, object, img, script)").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_fit_to_be_shown(rest: Rest, upstream: Upstream, scheme: str) -> None:
    says(upstream, *ANSWER)
    async with opened_page(rest, color_scheme=scheme, bypass_csp=True) as page:
        await page.goto(f"{rest.url}/console/playground?model=writer")
        assert await serious(page) == []
        await page.get_by_label("Prompt").fill(QUESTION)
        await page.get_by_role("button", name="Call").click()
        await page.locator("#decision .attempt").wait_for()
        await shot(page, f"playground-{scheme}")
        assert await serious(page) == []
        await page.set_viewport_size(NARROW)
        await shot(page, f"playground-narrow-{scheme}")
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= NARROW["width"], await page.evaluate(WIDE_PARTS)
