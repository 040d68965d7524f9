"""Somebody signs in to the console in a real browser, at a real identity provider and with a key."""

from collections.abc import AsyncIterator

import pytest

from hocket.kit.identity.configured import sign_in_of, token_bearers_of
from hocket.kit.process.settings import Settings
from support.access.provider_process import (
    CLIENT,
    MOCK,
    SECRET,
    ProviderProcess,
    running_provider,
)
from support.administration.browser import (
    MARKS,
    NARROW,
    WIDE_PARTS,
    opened_page,
    serious,
    shot,
)
from support.rest_rig import Rest, running_rest

pytestmark = MARKS
GROUPS = {"builders": "developer@acme"}


@pytest.fixture
async def provider() -> AsyncIterator[ProviderProcess]:
    async with running_provider(MOCK) as provider:  # the other one has no page to sign in at
        yield provider


@pytest.fixture
async def rest(nats_url: str, database_url: str, provider: ProviderProcess) -> AsyncIterator[Rest]:
    settings = Settings(
        oidc_issuer=provider.url,
        oidc_client_id=CLIENT,
        oidc_client_secret=SECRET,
        oidc_roles=GROUPS,
    )
    tokens = token_bearers_of(settings)
    sign_in = sign_in_of(settings, tokens)
    async with running_rest(nats_url, database_url, tokens=tokens, sign_in=sign_in) as rest:
        yield rest


async def test_somebody_signs_in_at_the_provider_and_out_everywhere(
    rest: Rest, provider: ProviderProcess
) -> None:
    await provider.set_groups("ann", ["builders"])
    async with opened_page(rest, signed_in=False, provider=provider.url) as page:
        await page.goto(f"{rest.url}/console/pipelines")
        await page.locator('a[href*="/sign-in/provider"]').click()
        await page.wait_for_url(f"{provider.url}/**")
        await page.locator("input[name=sub]").fill("ann")
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"{rest.url}/console/pipelines*")
        who = await page.locator(".who").inner_text()
        cookies = {one["name"]: one for one in await page.context.cookies(rest.url)}
        assert "ann" in who
        assert "acme" in who
        (session,) = (one for name, one in cookies.items() if name.startswith("hocket_session"))
        assert session["httpOnly"]
        assert session["sameSite"] == "Strict"
        assert await page.get_by_role("link", name="Playground").is_visible()
        await page.locator("#account summary").click()
        await page.get_by_role("button", name="Sign out everywhere").click()
        await page.wait_for_url("**/console/sign-in*")
        await page.goto(f"{rest.url}/console/runs")
        assert "/console/sign-in?back=" in page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_of_sign_in_is_fit_to_be_shown(rest: Rest, scheme: str) -> None:
    async with opened_page(rest, signed_in=False, color_scheme=scheme, bypass_csp=True) as page:
        await page.goto(f"{rest.url}/console/runs")
        await shot(page, f"sign-in-{scheme}")
        assert await serious(page) == []
        await page.set_viewport_size(NARROW)
        await shot(page, f"sign-in-narrow-{scheme}")
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= NARROW["width"], await page.evaluate(WIDE_PARTS)
        await page.locator("input[name=key]").fill(rest.key)
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/console/runs")


async def test_a_wrong_key_is_told_in_the_form_and_stays_there(rest: Rest) -> None:
    async with opened_page(rest, signed_in=False, expected="401") as page:
        await page.goto(f"{rest.url}/console/runs")
        await page.locator("input[name=key]").fill("hk_wrong")
        await page.keyboard.press("Enter")
        said = await page.locator(".signin .error").inner_text()
        assert await page.locator(".signin .error code").first.inner_text() == "hocket keys create"
        await page.locator("input[name=key]").fill(rest.key)
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/console/runs")

    assert said.startswith("The key is refused")
