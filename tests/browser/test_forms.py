"""The forms of the console in a real browser: by keyboard, without scripts, on a phone, in the dark."""

from typing import Any

import pytest

from support.administration.browser import (
    MARKS,
    WIDE_PARTS,
    opened_page,
    serious,
)
from support.rest_rig import Rest

pytestmark = MARKS

PHONE = {"width": 390, "height": 844}
WIDE = {"width": 1280, "height": 860}
LONG = "reports_" + "x" * 55
"""A name as long as it may be."""
SIZES = [pytest.param(WIDE, id="wide"), pytest.param(PHONE, id="phone")]
REFUSED = "Failed to load resource"
"""What browsers say of an answer that is an error."""


async def check(page: Any, name: str, viewport: dict[str, int]) -> None:
    """Check that a page fits the screen, and that axe finds nothing serious."""
    needed = await page.evaluate("document.documentElement.scrollWidth")
    assert needed <= viewport["width"], (name, needed, await page.evaluate(WIDE_PARTS))
    assert await serious(page) == [], name


@pytest.mark.parametrize("viewport", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_each_form_is_filled_in_wrong_and_right(
    rest: Rest, scheme: str, viewport: dict[str, int]
) -> None:
    options = {"color_scheme": scheme, "viewport": viewport, "bypass_csp": True}
    async with opened_page(rest, expected=REFUSED, **options) as page:
        await page.goto(f"{rest.url}/console/new/schedule")
        await check(page, "new-schedule", viewport)
        await page.get_by_label("Name").fill("weekly")
        await page.get_by_label("Pipeline", exact=True).select_option("research")
        await page.get_by_label("Times, as").fill("every Monday")
        await page.get_by_label("Time zone").fill("Mars Base")
        await page.get_by_role("button", name="Create schedule").click()
        await page.get_by_role("alert").get_by_text("Time zone").wait_for()
        assert await page.evaluate("document.activeElement.id") == "cron"
        await check(page, "new-schedule-wrong", viewport)
        await page.get_by_label("Times, as").fill("30 6 * * 1")
        await page.get_by_label("Time zone").fill("Europe/Berlin")
        await page.get_by_role("button", name="Show the next times").click()
        await page.get_by_role("status").get_by_text("nothing is saved yet").wait_for()
        await check(page, "new-schedule-times", viewport)
        await page.get_by_role("button", name="Create schedule").click()
        await page.wait_for_url("**/schedules/weekly")

        await page.goto(f"{rest.url}/console/new/webhook")
        await check(page, "new-webhook", viewport)
        await page.get_by_label("Name").fill(LONG)
        await page.get_by_label("Address").fill("http://hooks.example.com/" + "y" * 120)
        await page.get_by_role("button", name="Create webhook").click()
        await page.get_by_role("alert").get_by_text("Address").wait_for()
        await check(page, "new-webhook-wrong", viewport)
        await page.get_by_label("Address").fill("https://hooks.example.com/" + "y" * 120)
        await page.get_by_role("button", name="Create webhook").click()
        await page.get_by_text("shown only this once").wait_for()
        await check(page, "new-webhook-made", viewport)

        await page.goto(f"{rest.url}/console/new/key")
        await check(page, "new-key", viewport)
        await page.get_by_label("Name").fill("k" * 100)
        await page.get_by_label("Role").select_option("developer")
        await page.get_by_label("Expires").fill("2020-01-01T00:00")
        await page.get_by_role("button", name="Create key").click()
        await page.get_by_role("alert").get_by_text("Expires").wait_for()
        await check(page, "new-key-wrong", viewport)
        await page.get_by_label("Expires").fill("2099-12-31T23:59")
        await page.get_by_text("More options").click()
        await check(page, "new-key-more", viewport)
        await page.get_by_role("button", name="Create key").click()
        await page.get_by_text("shown only this once").wait_for()
        assert page.url.endswith("/console/new/key")
        await check(page, "new-key-made", viewport)


async def test_forms_need_no_script(rest: Rest) -> None:
    ticket = (await rest.post("/console/tickets")).body["ticket"]
    options = {"java_script_enabled": False, "signed_in": False}
    async with opened_page(rest, expected=REFUSED, **options) as page:
        await page.goto(f"{rest.url}/console/sign-in?ticket={ticket}")
        await page.goto(f"{rest.url}/console/schedules")
        await page.get_by_role("link", name="New schedule").click()
        await page.get_by_label("Name").fill("nightly")
        await page.get_by_label("Pipeline", exact=True).select_option("triage")
        await page.get_by_label("Times, as").fill("0 2 * * *")
        await page.get_by_role("button", name="Create schedule").click()
        await page.get_by_text("There is a schedule of this name already.").first.wait_for()
        await page.get_by_label("Name").fill("weekly")
        await page.get_by_role("button", name="Create schedule").click()
        await page.wait_for_url("**/schedules/weekly")
        await page.get_by_role("link", name="Change").click()
        await page.get_by_label("Times, as").fill("0 3 * * 1")
        await page.get_by_role("button", name="Save").click()
        await page.wait_for_url("**/schedules/weekly")
        await page.goto(f"{rest.url}/console/system?view=keys")
        await page.get_by_role("link", name="New key").click()
        await page.get_by_label("Name").fill("ci")
        await page.get_by_label("Role").select_option("viewer")
        await page.get_by_role("button", name="Create key").click()
        key = await page.locator("#once").inner_text()
    schedule = (await rest.get("/v1/schedules/weekly")).body
    own = await rest.get("/v1/keys/own", headers={"Authorization": f"Bearer {key}"})

    assert (schedule["cron"], schedule["task"]["pipeline"]) == ("0 3 * * 1", "triage")
    assert (own.body["name"], own.body["role"]) == ("ci", "viewer")


async def test_a_key_is_created_once_if_its_button_is_pressed_twice(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/new/key")
        await page.get_by_label("Name").fill("twice")
        await page.get_by_label("Role").select_option("viewer")
        await page.get_by_role("button", name="Create key").dblclick()
        await page.get_by_text("shown only this once").wait_for()
    keys = (await rest.get("/v1/keys?limit=500")).body["keys"]

    assert [key["name"] for key in keys].count("twice") == 1


async def test_what_is_shown_once_is_copied(rest: Rest) -> None:
    async with opened_page(rest, permissions=["clipboard-read", "clipboard-write"]) as page:
        await page.goto(f"{rest.url}/console/new/webhook")
        await page.get_by_label("Name").fill("copied")
        await page.get_by_label("Address").fill("https://hooks.example.com/x")
        await page.get_by_role("button", name="Create webhook").click()
        await page.get_by_role("button", name="Copy the secret").click()
        await page.get_by_text("Copied.").wait_for()
        copied = await page.evaluate("navigator.clipboard.readText()")
        shown = await page.locator("#once").inner_text()

    assert copied == shown
    assert copied.startswith("whsec_")


async def test_the_number_of_approvals_has_a_name(rest: Rest) -> None:
    async with opened_page(rest) as page:
        await page.goto(f"{rest.url}/console/runs")
        link = page.get_by_role("link", name="Approvals 1 pending approval", exact=True)
        await link.wait_for()
        badge = await page.locator(".badge").bounding_box()

    assert badge["height"] < 24
