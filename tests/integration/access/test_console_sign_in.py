"""People sign in to the console at real identity providers: what their groups allow, what ends their
sessions, and that nobody signs in by an answer that is not that of their own sign-in."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest

from hocket.kit.identity.configured import sign_in_of, token_bearers_of
from hocket.kit.process.settings import Settings
from hocket.schemas.access.keys import hashed
from hocket.schemas.access.roles import Permission
from hocket.schemas.capabilities import Capabilities
from support.access.issuer import AUDIENCE, running_issuer
from support.access.provider_process import (
    CLIENT,
    IDPYOIDC,
    MOCK,
    PUBLIC_URL,
    SECRET,
    ProviderProcess,
    running_provider,
)
from support.administration.console_rig import NOW, RUN
from support.rest_rig import Rest, bearer, running_rest
from support.runs.rows import insert_run

GROUPS = {"builders": "developer@acme", "watchers": "viewer@rival", "platform": "admin@*"}
PAGE = {"Accept": "text/html"}
BOUND_S = 60
ELSEWHERE = (
    *("https://evil.example/", "//evil.example", "/\\evil.example"),
    *("javascript:alert(1)", "/\n/evil.example", "/\t/evil.example"),
)


@pytest.fixture(scope="module", params=[MOCK, IDPYOIDC])
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[ProviderProcess]:
    async with running_provider(request.param) as provider:
        yield provider


@pytest.fixture
async def rest(nats_url: str, database_url: str, provider: ProviderProcess) -> AsyncIterator[Rest]:
    settings = Settings(
        oidc_issuer=provider.url,
        oidc_client_id=CLIENT,
        oidc_client_secret=SECRET,
        oidc_roles=GROUPS,
        public_url=PUBLIC_URL,
    )
    tokens = token_bearers_of(settings)
    sign_in = sign_in_of(settings, tokens)
    async with running_rest(nats_url, database_url, tokens=tokens, sign_in=sign_in) as rest:
        yield rest


class Browser:
    """A browser that has no pages, but cookies."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.cookies: dict[str, str] = {}
        self.set_cookies: list[str] = []

    async def ask(self, method: str, path: str) -> tuple[int, str, str]:
        """Return the status, where it leads, and the text."""
        cookie = {"Cookie": "; ".join(f"{name}={text}" for name, text in self.cookies.items())}
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(
                method, self.rest.url + path, headers=PAGE | cookie, allow_redirects=False
            ) as reply,
        ):
            self.set_cookies = reply.headers.getall("Set-Cookie", [])
            for text in self.set_cookies:
                for name, morsel in SimpleCookie(text).items():
                    self.cookies[name] = morsel.value
                    if morsel["max-age"] == "0":
                        del self.cookies[name]
            return reply.status, reply.headers.get("Location", ""), await reply.text()

    async def begin(self, back: str = "") -> str:
        """Return the address at the provider to which the console sends."""
        status, address, text = await self.ask(
            "GET", "/console/sign-in/provider?" + urlencode({"back": back})
        )
        assert status == 303, text
        return address

    async def agreed(self, provider: ProviderProcess, person: str, back: str = "") -> str:
        """Return the path with which the provider sends back somebody who signed in."""
        return own_path(await provider.agree(await self.begin(back), person))

    async def sign_in(self, provider: ProviderProcess, person: str, back: str = "") -> str:
        """Sign in, and return the page that follows."""
        status, _, text = await self.ask("GET", await self.agreed(provider, person, back))
        assert status == 200, text
        return text


def own_path(address: str) -> str:
    assert address.startswith(PUBLIC_URL), address
    return address.removeprefix(PUBLIC_URL)


def refresh(text: str) -> str:
    found = re.search(r'http-equiv="refresh" content="0; url=([^"]*)"', text)
    assert found is not None, text
    return html.unescape(found[1])


async def test_groups_say_what_a_session_may(rest: Rest, provider: ProviderProcess) -> None:
    await provider.set_groups("ann", ["builders", "unheard of"])
    browser = Browser(rest)
    assert "Sign in with 127.0.0.1" in (await browser.ask("GET", "/console/sign-in"))[2]
    asked = parse_qs(urlsplit(await browser.begin()).query)
    assert asked["code_challenge_method"] == ["S256"]
    flow = SimpleCookie(browser.set_cookies[0])["hocket_sign_in"]
    assert (flow["samesite"], flow["httponly"], flow["path"]) == ("lax", True, "/console/sign-in")
    page = await browser.sign_in(provider, "ann", "/console/pipelines?q=a")
    assert refresh(page) == "/console/pipelines?q=a"
    session = SimpleCookie("; ".join(browser.set_cookies))["hocket_session"]
    assert session["samesite"] == "strict"
    assert session["httponly"]
    assert "hocket_sign_in" not in browser.cookies, "a sign-in is used once"
    status, _, text = await browser.ask("GET", "/console/editor")
    assert status == 200
    assert "ann" in text
    assert (await browser.ask("GET", "/console/system?view=keys"))[0] == 403
    assert (await browser.ask("GET", "/console/runs?tenant=rival"))[0] == 403
    own = await browser.ask("GET", "/v1/keys/own")
    assert '"role":"developer"' in own[2].replace(" ", "")
    assert '"tenant":"acme"' in own[2].replace(" ", "")
    token = await provider.token("ann")
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as client,
        client.get(f"{rest.url}/v1/keys/own") as reply,
    ):
        assert (await reply.json())["key_id"] in own[2], "budgets and rates go by one id"
        async with client.post(f"{rest.url}/console/tickets") as refused:
            assert (await refused.json())["code"] == "ticket_of_token", "it would open no session"
    rows = await rest.pool.fetch("SELECT role, scopes FROM hocket.api_key WHERE subject <> ''")
    assert (await rest.get("/v1/keys?all_tenants=true")).body["keys"][0]["groups"] == ["builders"]
    assert [(row["role"], row["scopes"]) for row in rows] == [("viewer", [])]


async def test_sign_ins_at_two_platforms_of_one_host_leave_each_other_alone(
    nats_url: str, database_url: str, provider: ProviderProcess
) -> None:
    await provider.set_groups("ann", ["builders"])
    settings = Settings(
        oidc_issuer=provider.url,
        oidc_client_id=CLIENT,
        oidc_client_secret=SECRET,
        oidc_roles=GROUPS,
        public_url=PUBLIC_URL,
    )
    tokens = token_bearers_of(settings)
    sign_in = sign_in_of(settings, tokens)
    first, second = (Capabilities([letter * 32]) for letter in (b"a", b"b"))
    serving = partial(running_rest, nats_url, database_url, tokens=tokens, sign_in=sign_in)
    async with serving(capabilities=first) as here, serving(capabilities=second) as there:
        browser = Browser(here)
        back_here = await browser.agreed(provider, "ann", "/console/costs")
        browser.rest = there
        back_there = await browser.agreed(provider, "ann")
        flows = {name for name in browser.cookies if name.startswith("hocket_sign_in")}
        assert len(flows) == 2
        for rest, path in ((here, back_here), (there, back_there)):
            browser.rest = rest
            status, _, text = await browser.ask("GET", path)
            assert status == 200, text
            assert (await browser.ask("GET", "/console/runs"))[0] == 200
        assert not flows & set(browser.cookies)


async def test_several_tenants_are_chosen_from(rest: Rest, provider: ProviderProcess) -> None:
    await provider.set_groups("sue", ["builders", "watchers"])
    browser = Browser(rest)
    page = await browser.sign_in(provider, "sue")
    assert refresh(page) == "/console/runs?tenant=acme"
    assert "/console/runs?tenant=rival" in page
    assert (await browser.ask("GET", "/console/editor?tenant=acme"))[0] == 200
    assert (await browser.ask("GET", "/console/editor?tenant=rival"))[0] == 403, "a viewer there"
    assert (await browser.ask("GET", "/console/runs?q=1"))[1] == "/console/runs?q=1&tenant=acme"
    _, address, _ = await browser.ask("GET", "/console/runs/x/calls/a%23b?tenant=")
    assert address == "/console/runs/x/calls/a%23b?tenant=acme"
    assert (await browser.ask("GET", "/console/runs?tenant=third"))[0] == 403
    await insert_run(rest.pool, RUN, NOW, tenant="acme")
    _, _, text = await browser.ask("GET", f"/console/runs/{RUN}?view=values&tenant=acme")
    assert "<h2>Output</h2>" in text
    assert f'href="/v1/runs/{RUN}"' not in text, "it would be refused, as it names no tenant"


async def test_a_lost_group_ends_every_session(rest: Rest, provider: ProviderProcess) -> None:
    await provider.set_groups("bob", ["builders"])
    first, second = Browser(rest), Browser(rest)
    await first.sign_in(provider, "bob")
    assert (await first.ask("GET", "/console/runs"))[0] == 200
    await provider.set_groups("bob", ["others"])
    status, _, text = await second.ask("GET", await second.agreed(provider, "bob"))
    assert status == 403
    assert "HOCKET_OIDC_ROLES" in text
    assert "hocket_session" not in second.cookies
    await rest.book.looked()
    assert (await first.ask("GET", "/console/runs"))[:2] == (
        303,
        "/console/sign-in?back=%2Fconsole%2Fruns",
    )


async def test_signed_out_everywhere_and_revoked(rest: Rest, provider: ProviderProcess) -> None:
    await provider.set_groups("cem", ["builders"])
    browsers = [Browser(rest), Browser(rest)]
    for browser in browsers:
        await browser.sign_in(provider, "cem")

    async def events() -> None:
        cookie = {"Cookie": f"hocket_session={browsers[1].cookies['hocket_session']}"}
        async with (
            aiohttp.ClientSession(headers=cookie) as session,
            session.get(f"{rest.url}/v1/runs/events") as reply,
        ):
            assert reply.status == 200
            opened.set()
            with suppress(aiohttp.ClientPayloadError):
                await reply.read()

    opened = asyncio.Event()
    async with asyncio.timeout(BOUND_S):
        stream = asyncio.create_task(events())
        await opened.wait()
        assert (await browsers[0].ask("POST", "/console/sign-out-everywhere"))[0] == 200
        await stream
    assert (await browsers[1].ask("GET", "/console/runs"))[0] == 303
    await browsers[1].sign_in(provider, "cem")
    assert (await browsers[1].ask("GET", "/console/runs"))[0] == 200
    rows = (await rest.get("/v1/keys?all_tenants=true")).body["keys"]
    row = next(one for one in rows if one["name"] == "cem")
    assert (await rest.ask("DELETE", f"/v1/keys/{row['key_id']}")).status == 200
    await rest.book.looked()
    assert (await browsers[1].ask("GET", "/console/runs"))[0] == 303
    refused = await browsers[1].ask("GET", await browsers[1].agreed(provider, "cem"))
    assert refused[0] == 403
    assert "revoked" in refused[2]


async def test_nobody_signs_in_as_a_person_with_a_secret_of_their_row(
    rest: Rest, provider: ProviderProcess
) -> None:
    """Who may only manage keys could otherwise give themselves the rights of whoever has signed in."""
    await provider.set_groups("zoe", ["platform"])
    zoe = Browser(rest)
    await zoe.sign_in(provider, "zoe")
    scopes = frozenset({Permission.KEYS_MANAGE, Permission.KEYS_READ})
    keys = bearer(await rest.make_key("admin", None, scopes=scopes))
    listed = await rest.get("/v1/keys?all_tenants=true", headers=keys)
    row = next(one for one in listed.body["keys"] if one["name"] == "zoe")
    rotated = await rest.post(f"/v1/keys/{row['key_id']}/rotate", headers=keys)
    assert (rotated.status, rotated.body.get("code")) == (409, "key_of_person")
    secret = "5" * 64
    await rest.pool.execute(SECRET_OF, hashed(secret), row["key_id"])
    await rest.book.looked()
    key = f"hk_{row['key_id']}_{secret}"
    assert (await rest.post("/console/sign-in", {"key": key})).status == 401
    assert (await rest.get("/v1/keys/own", headers=bearer(key))).status == 401


SECRET_OF = """
UPDATE hocket.api_key SET secret_sha256 = $1, change = nextval('hocket.api_key_change')
WHERE key_id = $2
"""


async def test_an_answer_of_another_sign_in_is_refused(
    rest: Rest, provider: ProviderProcess
) -> None:
    await provider.set_groups("eve", ["platform"])
    await provider.set_groups("ann", ["builders"])
    victim, attacker = Browser(rest), Browser(rest)
    foreign = await attacker.agreed(provider, "eve")
    own = await victim.agreed(provider, "ann")
    code = parse_qs(urlsplit(foreign).query)["code"][0]
    state = parse_qs(urlsplit(own).query)["state"][0]
    callback = "/console/sign-in/callback"
    hostile = {
        "another's state": foreign,
        "no state": f"{callback}?{urlencode({'code': code})}",
        "another's code, which PKCE binds": f"{callback}?{urlencode({'code': code} | {'state': state})}",
        "another issuer": f"{own}&{urlencode({'iss': 'https://evil.example'})}"
        if "iss=" not in own
        else re.sub(r"iss=[^&]*", "iss=https%3A%2F%2Fevil.example", own),
        "no code": f"{callback}?{urlencode({'state': state})}",
        "an error": f"{callback}?{urlencode({'state': state, 'error': 'access_denied'})}",
    }
    for name, path in hostile.items():
        status, _, text = await victim.ask("GET", path)
        assert status in (400, 401, 403), (name, status)
        assert "hocket_session" not in victim.cookies, name
        assert code not in text, name
    changed = victim.cookies["hocket_sign_in"]
    victim.cookies["hocket_sign_in"] = changed[:-4] + "0000"
    assert (await victim.ask("GET", own))[0] in (401, 403)
    victim.cookies["hocket_sign_in"] = changed
    assert (await victim.ask("GET", own))[0] == 200, "and the own answer counts"
    del victim.cookies["hocket_session"]
    assert (await victim.ask("GET", own))[0] in (401, 403), "once"
    victim.cookies["hocket_sign_in"] = changed
    assert (await victim.ask("GET", own))[0] in (401, 403), "also with the cookie: the code is used"
    assert "hocket_session" not in victim.cookies


async def test_a_sign_in_never_leads_elsewhere(rest: Rest, provider: ProviderProcess) -> None:
    await provider.set_groups("ann", ["builders"])
    for back in ELSEWHERE:
        page = await Browser(rest).sign_in(provider, "ann", back)
        assert refresh(page) == "/console/runs"
        assert "evil" not in page


async def test_what_an_id_token_must_say(nats_url: str, database_url: str) -> None:
    async with running_issuer() as issuer:
        settings = Settings(
            oidc_issuer=issuer.url, oidc_client_id=AUDIENCE, oidc_roles={"team": "viewer@acme"}
        )
        tokens = token_bearers_of(settings)
        sign_in = sign_in_of(settings, tokens)
        async with running_rest(nats_url, database_url, tokens=tokens, sign_in=sign_in) as rest:
            faults: dict[str, dict[str, object]] = {
                "another nonce": {"nonce": "0" * 32},
                "no nonce": {"nonce": None},
                "another client": {"aud": "other"},
                "made for another": {"azp": "other"},
                "another issuer": {"iss": "https://evil.example"},
                "old": {"exp": 1},
            }
            for name, fault in [*faults.items(), ("nothing", {})]:
                browser = Browser(rest)
                asked = parse_qs(urlsplit(await browser.begin()).query)
                issuer.id_claims = {"nonce": asked["nonce"][0]} | fault
                path = f"/console/sign-in/callback?state={asked['state'][0]}&code=c&session_state=1"
                status, _, text = await browser.ask("GET", path)
                assert (status == 200) is (name == "nothing"), (name, text)
                assert ("hocket_session" in browser.cookies) is (name == "nothing"), name
            signed_in = browser
            for state in ("0" * 32, "", "\N{SNOWMAN}"):  # a provider that takes every code
                browser = Browser(rest)
                asked = parse_qs(urlsplit(await browser.begin()).query)
                issuer.id_claims = {"nonce": asked["nonce"][0]}
                told = urlencode({"state": state, "code": "c"})
                status, _, text = await browser.ask("GET", f"/console/sign-in/callback?{told}")
                assert (status, "not started in this browser" in text) == (403, True), state
                assert "hocket_session" not in browser.cookies
            issuer.is_away = True
            other = Browser(rest)
            asked = parse_qs(urlsplit(await other.begin()).query)
            path = f"/console/sign-in/callback?state={asked['state'][0]}&code=c"
            status, _, text = await other.ask("GET", path)
            assert status == 503
            assert "does not answer" in text
            assert (await signed_in.ask("GET", "/console/runs"))[0] == 200, "sessions go on"
