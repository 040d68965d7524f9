"""An identity provider for tests: the test decides what it says and signs, including mistakes."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

Key = RSAKey | ECKey | OKPKey
AUDIENCE = "hocket"
BROKEN = "broken"
"""Among the refusals: an answer that is no JSON."""
_RSA = [RSAKey.generate_key(2048, {"kid": f"rsa-{number}"}) for number in range(2)]
"""Generated once, because each takes a tenth of a second."""


class Issuer:
    """A provider under the test's control.

    `keys` are the keys that it publishes; `is_away` makes it answer 503; `asked` counts the requests
    for keys; `id_claims` is what the ID token says, whatever the code."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: list[Any] = [self.key.as_dict(private=False)]
        self.is_away = False
        self.asked = 0
        self.named = ""
        self.id_claims: dict[str, Any] = {}
        self.device_code: dict[str, Any] | None = None
        """The answer to a device that begins a sign-in; None if the provider has none for devices."""
        self.refusals: list[str] = []
        """What it answers the next requests for tokens with, instead of tokens."""
        self.refresh_token: str | None = None
        """The current refresh token; a renewal with another one is refused. None means that it gives
        none."""

    key = _RSA[0]
    other_key = _RSA[1]

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Return the claims of a valid token, changed as given; None removes a claim."""
        now = int(time.time())
        told = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "exp": now + 600, "iat": now,
                "groups": ["team"], **changed}  # fmt: skip
        return {name: value for name, value in told.items() if value is not None}

    def token(
        self, key: Key | None = None, header: dict[str, Any] | None = None, **changed: Any
    ) -> str:
        """Return a token, signed with its own or the given key."""
        key = key or self.key
        protected = {"alg": "RS256", "kid": key.kid, "typ": "JWT", **(header or {})}
        protected = {name: value for name, value in protected.items() if value is not None}
        registry = jws.JWSRegistry(algorithms=[protected["alg"]], strict_check_header=False)
        return jws.serialize_compact(
            protected, json.dumps(self.claims(**changed)), key, registry=registry
        )

    async def metadata(self, request: web.Request) -> web.Response:
        if self.is_away:
            return web.Response(status=503)
        told = {"issuer": self.named or self.url, "jwks_uri": f"{self.url}/keys"}
        for name in ("authorization", "token"):
            told[f"{name}_endpoint"] = f"{self.url}/{name}"
        if self.device_code is not None:
            told["device_authorization_endpoint"] = f"{self.url}/device"
        if self.refresh_token is not None:
            told["scopes_supported"] = ["openid", "offline_access"]
        return web.json_response(told)

    async def tell_token(self, request: web.Request) -> web.Response:
        if self.is_away:
            return web.Response(status=503)
        if self.refusals:
            refusal = self.refusals.pop(0)
            if refusal == BROKEN:
                return web.Response(text="{")
            return web.json_response({"error": refusal}, status=400)
        form = await request.post()
        if form.get("grant_type") == "refresh_token":
            if self.refresh_token is None or form.get("refresh_token") != self.refresh_token:
                return web.json_response({"error": "invalid_grant"}, status=400)
            self.refresh_token += "+"  # each can be used only once
        told = {"id_token": self.token(**self.id_claims)}
        if self.refresh_token is not None:
            told["refresh_token"] = self.refresh_token
        return web.json_response(told)

    async def tell_device_code(self, request: web.Request) -> web.Response:
        return web.json_response(self.device_code)

    async def tell_keys(self, request: web.Request) -> web.Response:
        self.asked += 1
        return web.json_response({"keys": self.keys})


@asynccontextmanager
async def running_issuer() -> AsyncIterator[Issuer]:
    """Serve a provider until the block ends."""
    issuer, app = Issuer(), web.Application()
    app.router.add_get("/.well-known/openid-configuration", issuer.metadata)
    app.router.add_get("/keys", issuer.tell_keys)
    app.router.add_post("/token", issuer.tell_token)
    app.router.add_post("/device", issuer.tell_device_code)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield issuer
    finally:
        await runner.cleanup()
