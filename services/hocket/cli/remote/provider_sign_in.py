"""Signs a person in at an identity provider from a terminal: the authorization code flow with PKCE, and
a temporary loopback address to which the browser is redirected (RFC 8252, RFC 7636; OpenID Connect Core
1.0, 3.1)."""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from hocket.cli.remote.identity_provider import (
    MAX_REASON_CHARS,
    SCOPE,
    TIMEOUT_S,
    ProviderClient,
    ProviderSignInFailed,
    ProviderTokens,
    asked,
    metadata_of,
    tokens_of,
)

LOOPBACK = "127.0.0.1"
CALLBACK = "/callback"
SIGN_IN_S = 300.0
"""How long signing in at the provider may take."""
DONE = "<!doctype html><title>Hocket</title><p>{text} You can close this page.</p>"


def sign_in(client: ProviderClient, port: int, show: Callable[[str], None]) -> ProviderTokens:
    """Sign a person in; `show` opens the URL in a browser, or prints it. `port` 0 means any port. Raises
    ProviderSignInFailed."""
    metadata = metadata_of(client)
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    with _listening(port) as callback:
        back = f"http://{LOOPBACK}:{callback.server_port}{CALLBACK}"
        challenge = hashlib.sha256(verifier.encode()).digest()
        question = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": back,
            "scope": SCOPE,
            **metadata.offline,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        address = metadata.authorization_endpoint
        show(f"{address}{'&' if '?' in address else '?'}{urlencode(question)}")
        code = _code(callback.answer(state), client.issuer)
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": back,
        "client_id": client.client_id,
        "code_verifier": verifier,
    }
    return tokens_of(client, asked(metadata.token_endpoint, form), nonce=nonce)


def _listening(port: int) -> "_Callback":
    try:
        return _Callback((LOOPBACK, port), _Handler)
    except OSError as error:
        reason = (
            f"port {port} on this machine cannot be used ({error.strerror}); name another `--port`"
        )
        raise ProviderSignInFailed(reason=reason) from error


class _Callback(HTTPServer):
    """Waits on the loopback address for the browser's redirect; other requests get 404."""

    def __init__(self, *values: Any) -> None:
        self.told: Mapping[str, str] = {}
        super().__init__(*values)

    def answer(self, state: str) -> Mapping[str, str]:
        """Return the parameters of the browser's redirect; raise ProviderSignInFailed."""
        until_s = time.monotonic() + SIGN_IN_S
        while (left_s := until_s - time.monotonic()) > 0:
            self.timeout = left_s
            self.handle_request()
            if hmac.compare_digest(self.told.get("state", "").encode(), state.encode()):
                return self.told
            self.told = {}  # this sign-in was not begun here
        raise ProviderSignInFailed(reason=f"no one completed the sign-in within {SIGN_IN_S:.0f} s")


class _Handler(BaseHTTPRequestHandler):
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        is_callback = place.path == CALLBACK
        assert isinstance(self.server, _Callback)
        if is_callback:
            self.server.told = {name: told[0] for name, told in parse_qs(place.query).items()}
        failed = "error" in self.server.told
        text = "You are not signed in." if failed else "Return to the terminal."
        self.send_response(200 if is_callback else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Security-Policy", "default-src 'none'")
        self.end_headers()
        if is_callback:
            self.wfile.write(DONE.format(text=text).encode())

    def log_message(self, *values: Any) -> None:
        """Log nothing: the URL contains the code."""


def _code(told: Mapping[str, str], issuer: str) -> str:
    if told.get("iss", issuer) != issuer:
        raise ProviderSignInFailed(reason="the response is from another provider (`iss`)")
    if "code" not in told:
        reason = told.get("error", "no code was returned")[:MAX_REASON_CHARS]
        raise ProviderSignInFailed(reason=f"the identity provider says: {reason}")
    return told["code"]
