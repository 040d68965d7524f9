"""An identity provider based on idpyoidc, which builds on cryptojwt: `python -m
support.access.idpyoidc_provider --port 9400`. It insists on PKCE, signs with ES256, and makes access
tokens that are JWTs; a person is whoever the sign-in form says.

Its messages go over aiohttp here; everything that a provider decides and signs is done by idpyoidc.
"""

import argparse
import json
import re
from typing import Any

from aiohttp import web
from cryptojwt.utils import b64e
from idpyoidc.server import Server
from idpyoidc.server.configure import OPConfiguration

from support.access.provider_process import CALLBACK, CLI_CLIENT, CLIENT, CONSOLE_CALLBACK, SECRET

KEYS = [{"type": "EC", "crv": "P-256", "use": ["sig"]}]
SCOPES = ["openid", "profile"]
ROOM = "idpyoidc.server"
LOOPBACK = re.compile(r"http://127\.0\.0\.1:\d+/callback")
"""Where native clients may be redirected (RFC 8252, 7.3)."""


def configuration(url: str) -> dict[str, Any]:
    """Return idpyoidc's configuration."""
    lasting = {"lifetime": 3600, "base_claims": {"groups": None, "preferred_username": None}}
    return {
        "issuer": url,
        "key_conf": {"key_defs": KEYS, "uri_path": "jwks"},
        "preference": {"id_token_signing_alg_values_supported": ["ES256"]},
        "endpoint": {
            "provider_info": {
                "path": ".well-known/openid-configuration",
                "class": f"{ROOM}.oidc.provider_config.ProviderConfiguration",
                "kwargs": {"client_authn_method": None},
            },
            "authorization": {
                "path": "authorization",
                "class": f"{ROOM}.oidc.authorization.Authorization",
                "kwargs": {"client_authn_method": None, "response_types_supported": ["code"]},
            },
            "token": {
                "path": "token",
                "class": f"{ROOM}.oidc.token.Token",
                "kwargs": {"client_authn_method": ["client_secret_basic", "public"]},
            },
        },
        "authentication": {
            "form": {
                "acr": f"{ROOM}.user_authn.authn_context.UNSPECIFIED",
                "class": f"{ROOM}.user_authn.user.NoAuthn",
                "kwargs": {"user": ""},
            }
        },
        "userinfo": {"class": f"{ROOM}.user_info.UserInfo", "kwargs": {"db": {}}},
        "token_handler_args": {
            "code": {"kwargs": {"lifetime": 600}},
            "token": {
                "class": f"{ROOM}.token.jwt_token.JWTToken",
                "kwargs": {**lasting, "aud": [CLIENT]},
            },
            "id_token": {"class": f"{ROOM}.token.id_token.IDToken", "kwargs": lasting},
        },
        "authz": {
            "class": f"{ROOM}.authz.AuthzHandling",
            "kwargs": {
                "grant_config": {
                    "usage_rules": {
                        "authorization_code": {
                            "supports_minting": ["access_token", "id_token"],
                            "max_usage": 1,
                        },
                        "access_token": {},
                    },
                    "expires_in": 43_200,
                }
            },
        },
        "add_ons": {
            "pkce": {
                "function": f"{ROOM}.oauth2.add_on.pkce.add_support",
                "kwargs": {"essential": True, "code_challenge_method": {"S256": True}},
            }
        },
    }


class Endpoints:
    """The endpoints of a provider."""

    def __init__(self, url: str) -> None:
        known = configuration(url)
        self.server = Server(OPConfiguration(known, base_path="."), cwd=".")
        self.server.context.cdb[CLIENT] = {
            "client_secret": SECRET,
            "redirect_uris": [(CALLBACK, {}), (CONSOLE_CALLBACK, {})],
            "token_endpoint_auth_method": "client_secret_basic",
            "response_types_supported": ["code"],
            "allowed_scopes": SCOPES,
            "id_token_signed_response_alg": "ES256",
        }
        self.server.context.cdb[CLI_CLIENT] = {
            "redirect_uris": [],
            "token_endpoint_auth_method": "public",
            "response_types_supported": ["code"],
            "allowed_scopes": SCOPES,
            "id_token_signed_response_alg": "ES256",
        }
        self.people: dict[str, Any] = self.server.context.userinfo.db

    async def metadata(self, request: web.Request) -> web.Response:
        endpoint = self.server.get_endpoint("provider_config")
        return web.json_response(endpoint.process_request()["response_args"])

    async def keys(self, request: web.Request) -> web.Response:
        return web.json_response(self.server.keyjar.export_jwks())

    async def authorize(self, request: web.Request) -> web.Response:
        form = await request.post()
        method = self.server.context.authn_broker.db["form"]["method"]
        method.user = b64e(json.dumps({"uid": form["sub"]}).encode()).decode()
        back = request.query.get("redirect_uri", "")
        if request.query.get("client_id") == CLI_CLIENT and LOOPBACK.fullmatch(back):
            self.server.context.cdb[CLI_CLIENT]["redirect_uris"] = [(back, {})]  # any port
        endpoint = self.server.get_endpoint("authorization")
        asked = endpoint.parse_request(dict(request.query))
        if "error" in asked:
            return web.Response(status=400, text=asked.to_json())
        told = endpoint.process_request(asked)
        place = endpoint.do_response(request=asked, **told)["response"]
        return web.Response(status=303, headers={"Location": place})

    async def token(self, request: web.Request) -> web.Response:
        endpoint = self.server.get_endpoint("token")
        http = {"headers": {"authorization": request.headers.get("Authorization", "")}}
        asked = endpoint.parse_request(dict(await request.post()), http_info=http)
        if "error" in asked:
            return web.Response(status=400, text=asked.to_json())
        told = endpoint.process_request(request=asked)
        if "error" in told:
            return web.Response(status=400, text=str(told))
        return web.json_response(
            json.loads(endpoint.do_response(request=asked, **told)["response"])
        )

    async def set_user(self, request: web.Request) -> web.Response:
        self.people[request.match_info["name"]] = await request.json()
        return web.Response(status=204)


def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    endpoints, app = Endpoints(f"http://127.0.0.1:{port}"), web.Application()
    app.router.add_get("/.well-known/openid-configuration", endpoints.metadata)
    app.router.add_get("/jwks", endpoints.keys)
    app.router.add_post("/authorization", endpoints.authorize)
    app.router.add_post("/token", endpoints.token)
    app.router.add_put("/users/{name}", endpoints.set_user)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main()
