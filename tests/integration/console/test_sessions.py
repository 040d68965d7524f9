"""Signing in to the console, what a session may do, and when it ends."""

import asyncio
import re
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from hocket.schemas.capabilities import Capabilities
from support.administration.console_rig import (
    PAGE,
    PAGES,
    PIPELINE,
    RUN,
    add_run,
    add_step,
    asked_bare,
    cookie_of,
)
from support.rest_rig import Rest, running_rest


async def test_a_stranger_is_asked_to_sign_in_and_comes_back_to_the_page(rest: Rest) -> None:
    page = await asked_bare(rest, "GET", "/console/runs?status=failed", headers=PAGE)
    data = await asked_bare(rest, "GET", f"/console/runs/{RUN}/timeline.json")
    form = await asked_bare(rest, "GET", page.headers["Location"], headers=PAGE)

    assert page.status == 303
    assert page.headers["Location"] == "/console/sign-in?back=%2Fconsole%2Fruns%3Fstatus%3Dfailed"
    assert (data.status, form.status) == (401, 200)
    assert 'value="/console/runs?status=failed"' in form.body


async def test_a_stranger_comes_back_to_a_call_whose_id_has_other_characters(rest: Rest) -> None:
    path = f"/console/runs/{RUN}/calls/a%23b%3Fc%25d"

    page = await asked_bare(rest, "GET", path, headers=PAGE)

    (back,) = parse_qs(urlsplit(page.headers["Location"]).query)["back"]
    assert back == path


@pytest.mark.parametrize(
    "back", ["//evil.example", "https://evil.example", "/\\evil", "/a\nb", "x"]
)
async def test_signing_in_leads_nowhere_else(rest: Rest, back: str) -> None:
    answer = await rest.post("/console/sign-in", {"key": rest.key, "back": back})

    assert (answer.status, answer.body) == (200, {"back": ""})


@pytest.mark.parametrize(
    ("public_url", "is_secure"), [(None, False), ("http://h", False), ("https://h", True)]
)
async def test_where_browsers_come_by_https_they_send_the_cookie_over_nothing_else(
    nats_url: str, database_url: str, public_url: str | None, *, is_secure: bool
) -> None:
    """A proxy with TLS passes requests on without it, and its address is not always known here."""
    async with running_rest(nats_url, database_url, public_url=public_url) as rest:
        answer = await rest.post("/console/sign-in", {"key": rest.key})
    assert ("Secure" in answer.headers["Set-Cookie"].split("; ")) is is_secure


async def test_signing_in_to_another_platform_on_this_host_ends_no_session(
    nats_url: str, database_url: str
) -> None:
    """Browsers send a cookie to all ports of its host."""
    ours, theirs = (Capabilities([letter * 32]) for letter in (b"o", b"t"))
    async with (
        running_rest(nats_url, database_url, capabilities=ours) as first,
        running_rest(nats_url, database_url, capabilities=theirs) as second,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
    ):

        async def asked(rest: Rest, method: str, path: str, body: object = None) -> int:
            async with browser.request(method, rest.url + path, json=body) as answer:
                return answer.status

        for rest in (first, second):
            assert await asked(rest, "POST", "/console/sign-in", {"key": rest.key}) == 200
        assert [await asked(rest, "GET", "/v1/runs") for rest in (first, second)] == [200, 200]
        assert await asked(second, "POST", "/console/sign-out") == 200
        assert [await asked(rest, "GET", "/v1/runs") for rest in (first, second)] == [200, 401]


async def test_a_session_is_its_key_and_ends_with_it(rest: Rest) -> None:
    await add_run(rest)
    key = await rest.make_key("viewer")
    mine = await cookie_of(rest, key)

    page = await asked_bare(rest, "GET", f"/console/runs/{RUN}", headers=mine)
    api = await asked_bare(rest, "GET", f"/v1/runs/{RUN}", headers=mine)
    applied = await asked_bare(rest, "POST", "/v1/pipelines", json=PIPELINE, headers=mine)
    await rest.ask("DELETE", f"/v1/keys/{key.split('_')[1]}")
    after = await asked_bare(rest, "GET", f"/v1/runs/{RUN}", headers=mine)
    for _ in range(50):
        if after.status == 401:
            break
        await asyncio.sleep(0.1)
        after = await asked_bare(rest, "GET", f"/v1/runs/{RUN}", headers=mine)

    assert (page.status, api.status, applied.status, after.status) == (200, 200, 403, 401)


async def test_a_role_is_offered_only_what_it_may_do(rest: Rest) -> None:
    await add_run(rest, text="a secret answer", status="failed")
    await add_step(rest, "hello", "a secret answer")
    viewer = await cookie_of(rest, await rest.make_key("viewer"))
    developer = await cookie_of(rest, await rest.make_key("developer"))

    async def all_pages(headers: dict[str, str]) -> str:
        paths = [path for path in PAGES if "editor" not in path]
        found = [await asked_bare(rest, "GET", path, headers=headers) for path in paths]
        refused = {path for path, answer in zip(paths, found, strict=True) if answer.status == 403}
        not_for = ("/webhooks", "/new/", "/edit") if headers is viewer else ("/new/key",)
        assert refused == {path for path in paths if any(part in path for part in not_for)}
        return "".join(answer.body for answer in found)

    seen_by_viewer, seen_by_developer = await all_pages(viewer), await all_pages(developer)

    assert 'data-act="retry"' in seen_by_developer
    assert "&#34;text&#34;: &#34;a secret answer&#34;" in seen_by_developer
    for offered in ('data-act="retry"', 'data-open="again"', 'data-open="try"', "&#34;text&#34;"):
        assert offered not in seen_by_viewer


async def test_no_cookie_is_made_up(rest: Rest) -> None:
    key_id = rest.key.split("_")[1]
    ours = (await cookie_of(rest, rest.key))["Cookie"].removeprefix("hocket_session=").strip('"')
    _, ends, tag = ours.split(".")
    other = await rest.make_key("viewer")
    ticket = (await rest.post("/console/tickets")).body["ticket"]
    forged = [
        f"{key_id}.{int(ends) + 1}.{tag}",
        f"{other.split('_')[1]}.{ends}.{tag}",
        f"{key_id}.{ends}.{'0' * 32}",
        f"{key_id}.{ends}.",
        f"{key_id}.{ends}.\u00e9",
        f"{key_id}.{'9' * 400}.{tag}",
        f"{key_id}.-1.{tag}",
        "..",
        "x",
        ticket,
    ]

    for cookie in forged:
        headers = {"Cookie": f"hocket_session={cookie}"}
        assert (await asked_bare(rest, "GET", "/v1/runs", headers=headers)).status == 401, cookie


async def test_another_sites_page_cannot_act_with_a_session(rest: Rest) -> None:
    mine = await cookie_of(rest, rest.key)

    for strange in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = await asked_bare(
            rest, "POST", "/v1/pipelines", json=PIPELINE, headers=mine | strange
        )
        assert answer.status == 403


async def test_a_ticket_signs_in_once_shown_by_the_command_line(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = (await rest.post("/console/tickets")).body["ticket"]
    entered = await asked_bare(rest, "GET", f"/console/sign-in?ticket={ticket}", headers=PAGE)
    cookie = entered.headers["Set-Cookie"].split(";")[0]
    inside = await asked_bare(rest, "GET", "/console/runs", headers={"Cookie": cookie, **PAGE})
    monkeypatch.setattr("hocket.admin.console.sessions.TICKET_S", -1)
    late = (await rest.post("/console/tickets")).body["ticket"]
    refused = await asked_bare(rest, "GET", f"/console/sign-in?ticket={late}")

    assert (entered.status, entered.headers["Location"]) == (303, "/console/runs")
    assert (inside.status, refused.status) == (200, 401)


async def test_a_ticket_leads_to_the_tenant_that_the_command_line_named(rest: Rest) -> None:
    ticket = (await rest.post("/console/tickets")).body["ticket"]
    address = f"/console/sign-in?ticket={ticket}&tenant=acme"

    entered = await asked_bare(rest, "GET", address, headers=PAGE)

    assert (entered.status, entered.headers["Location"]) == (303, "/console/runs?tenant=acme")


async def test_a_session_cannot_begin_the_next_one(rest: Rest) -> None:
    mine = await cookie_of(rest, rest.key)
    answer = await asked_bare(rest, "POST", "/console/tickets", headers=mine)
    assert (answer.status, "ticket" in answer.body) == (401, False)


async def test_another_page_cannot_sign_a_browser_in_with_a_key_of_its_own(rest: Rest) -> None:
    ticket = (await rest.post("/console/tickets")).body["ticket"]
    address = f"/console/sign-in?ticket={ticket}"
    followed = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}

    for site in ("cross-site", "same-site"):
        headers = {**PAGE, **followed, "Sec-Fetch-Site": site}
        answer = await asked_bare(rest, "GET", address, headers=headers)
        assert (answer.status, "Set-Cookie" in answer.headers) == (403, False), site
    opened = {**PAGE, **followed, "Sec-Fetch-Site": "none"}
    assert (await asked_bare(rest, "GET", address, headers=opened)).status == 303


async def test_a_key_of_all_tenants_chooses_one_and_every_link_keeps_it(rest: Rest) -> None:
    await add_run(rest, tenant="acme")
    await add_step(rest, "hello")

    pages = [
        await rest.get(f"{path}?tenant=acme", headers=PAGE)
        for path in (
            "/console/runs",
            f"/console/runs/{RUN}",
            "/console/money",
            "/console/pipelines",
        )
    ]
    names = await rest.get("/console/tenants", headers=PAGE)
    data = await rest.get(f"/console/runs/{RUN}/timeline.json?tenant=acme")
    foreign = await cookie_of(rest, await rest.make_key("viewer", "rival"))
    refused = await asked_bare(rest, "GET", "/console/runs?tenant=acme", headers=foreign)

    assert [page.status for page in pages] == [200] * 4
    for page in pages:
        links = re.findall(r'(?:href|data-src)="(/console/[^"]*)"', page.body)
        ours = [link for link in links if "/assets/" not in link]
        assert ours
        assert all("tenant=acme" in link for link in ours), page.body
    assert f"/console/runs/{RUN}?tenant=acme" in pages[0].body
    assert '?tenant=acme">acme</a>' in names.body
    assert (data.status, refused.status) == (200, 403)
    assert (await rest.get("/console/tenants", headers=foreign)).status == 200
