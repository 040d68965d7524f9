"""Tokens of real identity providers at REST and at the gateway's HTTP door: what their groups allow, in
which tenant, and until when."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from hocket.kit.identity.configured import token_bearers_of
from hocket.kit.identity.provider import ASK_GAP_S, FRESH_S, KEEP_S
from hocket.kit.identity.tokens import LEEWAY_S
from hocket.kit.process import clock
from hocket.kit.process.settings import Settings
from support.access.issuer import AUDIENCE, running_issuer
from support.access.provider_process import (
    CLIENT,
    IDPYOIDC,
    MOCK,
    ProviderProcess,
    running_provider,
)
from support.gateway.gateway_process import running_gateway
from support.gateway.mock_upstream import running_upstream
from support.rest_rig import Answer, Rest, bearer, running_rest

GROUPS = {"builders": "developer@acme", "watchers": "viewer@acme", "platform": "admin@*"}
SPEC = {"pipeline": "p", "nodes": {"a": {"type": "signal", "signal": "go"}}}


@pytest.fixture(
    scope="module",
    params=[(MOCK, "id_token"), (IDPYOIDC, "access_token"), (IDPYOIDC, "id_token")],
    ids=["oidc-provider-mock", "idpyoidc-access-token", "idpyoidc-id-token"],
)
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[ProviderProcess]:
    async with running_provider(*request.param) as provider:
        yield provider


@pytest.fixture
async def rest(nats_url: str, database_url: str, provider: ProviderProcess) -> AsyncIterator[Rest]:
    settings = Settings(oidc_issuer=provider.url, oidc_client_id=CLIENT, oidc_roles=GROUPS)
    tokens = token_bearers_of(settings)
    async with running_rest(nats_url, database_url, tokens=tokens) as rest:
        yield rest


async def ask(rest: Rest, method: str, path: str, token: str, body: object = None) -> Answer:
    async with (
        aiohttp.ClientSession(headers=bearer(token)) as session,
        session.request(method, rest.url + path, json=body) as reply,
    ):
        return Answer(reply.status, json.loads(await reply.text()), dict(reply.headers))


async def test_a_token_opens_rest_as_its_groups_say(rest: Rest, provider: ProviderProcess) -> None:
    for person, groups in (("ann", ["builders"]), ("bob", ["watchers"]), ("eve", ["others"])):
        await provider.set_groups(person, groups)
    ann, bob, eve = [await provider.token(one) for one in ("ann", "bob", "eve")]
    own = (await ask(rest, "GET", "/v1/keys/own", ann)).body
    assert (own["tenant"], own["role"], own["name"]) == ("acme", "developer", "ann")
    assert (await ask(rest, "POST", "/v1/pipelines", ann, SPEC)).status == 201
    denied = await ask(rest, "POST", "/v1/pipelines", bob, SPEC)
    assert (denied.status, denied.body["code"]) == (403, "permission_missing")
    assert (await ask(rest, "GET", "/v1/pipelines", bob)).status == 200
    stranger = await ask(rest, "GET", "/v1/pipelines", eve)
    assert (stranger.status, stranger.body["code"]) == (403, "no_role")
    assert "HOCKET_OIDC_ROLES" in stranger.body["cure"]
    audit = await rest.get("/v1/audit", headers={"X-Hocket-Tenant": "acme"})
    assert audit.body["entries"][-1]["actor"] == f"{own['key_id']} ann"


async def test_a_changed_token_is_nobody_s(rest: Rest, provider: ProviderProcess) -> None:
    await provider.set_groups("ann", ["builders"])
    token = await provider.token("ann")
    header, payload, signature = token.split(".")
    for text in (f"{header}.{payload}.", f"{header}.{payload}.{signature[::-1]}", "ey.e30.x"):
        answer = await ask(rest, "GET", "/v1/runs", text)
        assert (answer.status, answer.body["code"]) == (401, "token_refused"), text
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert payload not in json.dumps(answer.body)
    assert (await rest.get("/v1/runs")).status == 200, "keys count as before"


@dataclass
class Ahead:
    """By how much the clocks of this process are ahead."""

    wall_s: float = 0.0
    monotonic_s: float = 0.0


@pytest.fixture
def ahead() -> Iterator[Ahead]:
    ahead = Ahead()
    with clock.source(
        lambda: time.time() + ahead.wall_s, lambda: time.monotonic() + ahead.monotonic_s
    ):
        yield ahead


async def test_a_token_that_was_believed_ends(
    rest: Rest, provider: ProviderProcess, ahead: Ahead
) -> None:
    await provider.set_groups("ann", ["builders"])
    token = await provider.token("ann")
    assert (await ask(rest, "GET", "/v1/runs", token)).status == 200
    ahead.wall_s = _ends_s(token) - time.time() + LEEWAY_S + 1
    answer = await ask(rest, "GET", "/v1/runs", token)
    assert (answer.status, answer.body["code"]) == (401, "token_refused")
    assert "expired" in answer.body["detail"]


def _ends_s(token: str) -> float:
    payload = token.split(".")[1]
    return float(json.loads(base64.urlsafe_b64decode(payload + "=="))["exp"])


async def test_tokens_count_while_the_provider_is_away_and_those_of_new_keys_when_it_is_back(
    rest: Rest, provider: ProviderProcess, ahead: Ahead
) -> None:
    for person in ("ann", "bob"):
        await provider.set_groups(person, ["builders"])
    ann, bob = [await provider.token(one) for one in ("ann", "bob")]
    assert (await ask(rest, "GET", "/v1/runs", ann)).status == 200

    await provider.kill()
    ahead.monotonic_s += FRESH_S + 1
    for token in (ann, bob):  # one was read before, the other is read by keys that are known
        assert (await ask(rest, "GET", "/v1/runs", token)).status == 200
    ahead.monotonic_s += KEEP_S
    away = await ask(rest, "GET", "/v1/runs", ann)
    assert (away.status, away.body["code"]) == (503, "identity_provider_away")
    assert (await rest.get("/v1/runs")).status == 200, "keys of the platform count as before"

    await provider.start()
    await provider.set_groups("ann", ["builders"])
    new = await provider.token("ann")
    ahead.monotonic_s += ASK_GAP_S + 1
    own = await ask(rest, "GET", "/v1/keys/own", new)
    assert (own.status, own.body["role"]) == (200, "developer")
    for token in (ann, bob):
        former = await ask(rest, "GET", "/v1/runs", token)
        assert (former.status, former.body["code"]) == (401, "token_refused")


async def test_a_stream_ends_with_its_token(nats_url: str, database_url: str) -> None:
    async with running_issuer() as issuer:
        tokens = token_bearers_of(
            Settings(
                oidc_issuer=issuer.url, oidc_client_id=AUDIENCE, oidc_roles={"team": "viewer@acme"}
            )
        )
        async with (
            running_rest(nats_url, database_url, tokens=tokens) as rest,
            asyncio.timeout(60),
            aiohttp.ClientSession(headers=bearer(issuer.token(exp=time.time() - 28))) as session,
            session.get(f"{rest.url}/v1/runs/events") as reply,
        ):
            assert reply.status == 200
            with suppress(aiohttp.ClientPayloadError):  # it is cut off
                await reply.read()
            late = await session.get(f"{rest.url}/v1/runs")
            assert (await late.json())["code"] == "token_refused"


async def test_a_token_opens_the_http_door(
    nats_url: str, tmp_path: Path, provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_OIDC_ISSUER", provider.url)
    monkeypatch.setenv("HOCKET_OIDC_CLIENT_ID", CLIENT)
    monkeypatch.setenv("HOCKET_OIDC_ROLES", json.dumps(GROUPS))
    for person, groups in (("ann", ["builders"]), ("bob", ["watchers"]), ("eve", [])):
        await provider.set_groups(person, groups)
    statuses = {}
    async with running_upstream() as upstream:
        backend = {"base_url": upstream.base_url, "model": "m-1"}
        models = {"m": {"backends": [backend]}}
        async with running_gateway(nats_url, tmp_path, models, access={"open": False}) as gateway:
            for person in ("ann", "bob", "eve"):
                token = await provider.token(person)
                asked = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
                async with (
                    aiohttp.ClientSession(headers=bearer(token)) as session,
                    session.post(f"{gateway.url}/chat/completions", json=asked) as reply,
                ):
                    told = (await reply.json()).get("error") or {}
                    statuses[person] = (reply.status, told.get("code"))
    assert statuses == {
        "ann": (200, None),
        "bob": (403, "permission_missing"),
        "eve": (403, "no_role"),
    }
