"""What a token endpoint answers that is no answer costs its sign-in an error of the provider's."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hocket.kit.identity.authorization_code import AuthorizationCode, Flow, ProviderAnswer
from hocket.kit.identity.configured import sign_in_of, token_bearers_of
from hocket.kit.identity.errors import IdentityProviderAway, SignInRefused
from hocket.kit.process.settings import Settings

FLOW = Flow("state", "nonce", "verifier", "http://127.0.0.1/callback")


async def claims_where_the_answer_is(body: bytes, status: int) -> None:
    app = web.Application()

    async def discovery(request: web.Request) -> web.Response:
        issuer = f"http://{request.host}"
        ends = {"jwks_uri": "jwks", "authorization_endpoint": "auth", "token_endpoint": "token"}
        parts = {name: f"{issuer}/{place}" for name, place in ends.items()}
        return web.json_response({"issuer": issuer, **parts})

    async def jwks(_request: web.Request) -> web.Response:
        return web.json_response({"keys": []})

    async def token(_request: web.Request) -> web.Response:
        return web.Response(body=body, status=status, headers={"Location": "/jwks"})

    app.router.add_get("/.well-known/openid-configuration", discovery)
    app.router.add_get("/jwks", jwks)
    app.router.add_post("/token", token)
    async with TestServer(app) as server:
        issuer = str(server.make_url("")).rstrip("/")
        roles = {"team": "viewer@acme"}
        settings = Settings(oidc_issuer=issuer, oidc_client_id="hocket", oidc_roles=roles)
        tokens = token_bearers_of(settings)
        sign_in = sign_in_of(settings, tokens)
        assert isinstance(sign_in, AuthorizationCode)
        try:
            await sign_in.claims(FLOW, ProviderAnswer("state", "code", None, ""))
        finally:
            await sign_in.tokens.provider.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"<html>busy</html>", 200),
        (b"", 200),
        (b"[" * 100_000, 200),
        (b'{"id_token": NaN}', 200),
        (b"\xff", 200),
        (b"[]", 200),
        (b" " * 600_000, 200),
        (b"{}", 503),
    ],
)
async def test_an_answer_that_cannot_be_read_is_the_providers_fault(
    body: bytes, status: int
) -> None:
    with pytest.raises(IdentityProviderAway):
        await claims_where_the_answer_is(body, status)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{}", 200),
        (b'{"id_token": 7}', 200),
        (b"{}", 307),
        (b'{"error": "invalid_grant"}', 400),
    ],
)
async def test_an_answer_without_a_token_signs_nobody_in(body: bytes, status: int) -> None:
    with pytest.raises(SignInRefused):
        await claims_where_the_answer_is(body, status)
