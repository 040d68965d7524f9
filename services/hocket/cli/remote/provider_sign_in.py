"""Signs a person in at an identity provider from a terminal: the authorization code flow with PKCE, and
a temporary loopback address to which the browser is redirected (RFC 8252, RFC 7636; OpenID Connect Core
1.0, 3.1).

The platform is sent the ID token. It is received directly from the provider over TLS, so its signature
need not be checked here; the platform checks it on each request.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from hocket.schemas.errors import ErrorClass, HocketError

LOOPBACK = "127.0.0.1"
CALLBACK = "/callback"
SCOPE = "openid profile email"
OFFLINE = "offline_access"
"""The scope that requests a refresh token, if the provider supports it; the user has to consent (OpenID
Connect Core 1.0, 11)."""
DISCOVERY = "/.well-known/openid-configuration"
SIGN_IN_S = 300.0
"""How long signing in at the provider may take."""
TIMEOUT_S = 15.0
MAX_ANSWER_BYTES = 512 * 1024
MARGIN_S = 60.0
"""How long before its expiry a token is renewed."""
DONE = "<!doctype html><title>Hocket</title><p>{text} You can close this page.</p>"


class ProviderSignInFailed(HocketError):
    """You are not signed in: {reason}. Sign in again with `hocket login --sso`."""

    code = "sign_in_failed"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class ProviderClient:
    """The command line's registration at a provider."""

    issuer: str
    client_id: str


@dataclass(frozen=True, slots=True)
class ProviderTokens:
    """The tokens of a provider: the one sent to platforms, its expiry, and the refresh token."""

    id_token: str
    expires_at_s: float
    refresh_token: str | None

    @property
    def is_over(self) -> bool:
        """Whether it is about to expire."""
        return time.time() > self.expires_at_s - MARGIN_S


def sign_in(client: ProviderClient, port: int, show: Callable[[str], None]) -> ProviderTokens:
    """Sign a person in; `show` opens the URL in a browser, or prints it. `port` 0 means any port. Raises
    ProviderSignInFailed."""
    metadata = _metadata(client)
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    with _Callback((LOOPBACK, port), _Handler) as callback:
        back = f"http://{LOOPBACK}:{callback.server_port}{CALLBACK}"
        challenge = hashlib.sha256(verifier.encode()).digest()
        asked = {
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
        show(f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}")
        code = _code(callback.answer(state), client.issuer)
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": back,
        "client_id": client.client_id,
        "code_verifier": verifier,
    }
    return _tokens(client, _asked(metadata.token_endpoint, form), nonce=nonce)


def renewed(client: ProviderClient, refresh_token: str) -> ProviderTokens:
    """Return renewed tokens; raise ProviderSignInFailed."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": refresh_token,
        "client_id": client.client_id,
    }
    found = _tokens(client, _asked(_metadata(client).token_endpoint, form), nonce=None)
    if found.refresh_token is not None:
        return found
    return ProviderTokens(found.id_token, found.expires_at_s, refresh_token)


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


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_values: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class _Metadata:
    """A provider's endpoints, and the scope to request for a renewable token."""

    authorization_endpoint: str
    token_endpoint: str
    offline: Mapping[str, str]


def _metadata(client: ProviderClient) -> _Metadata:
    """Return a provider's metadata; raise ProviderSignInFailed."""
    found = _json(Request(_safe(client.issuer).rstrip("/") + DISCOVERY))
    if found.get("issuer") != client.issuer:
        raise ProviderSignInFailed(reason=f"{client.issuer} identifies itself by a different name")
    authorization, token = [
        _safe(str(found.get(name, "")), client.issuer)
        for name in ("authorization_endpoint", "token_endpoint")
    ]
    scopes = found.get("scopes_supported")
    can_renew = isinstance(scopes, list) and OFFLINE in scopes
    offline = {"scope": f"{SCOPE} {OFFLINE}", "prompt": "consent"} if can_renew else {}
    return _Metadata(authorization, token, offline)


def _safe(address: str, issuer: str = "") -> str:
    """Return the URL if it is protected in transit (https or loopback); raise ProviderSignInFailed."""
    from hocket.kit.identity.provider import is_safe_address

    if not is_safe_address(address) or (
        issuer.startswith("https:") and not address.startswith("https:")
    ):
        raise ProviderSignInFailed(reason="the identity provider has no https URL")
    return address


def _code(told: Mapping[str, str], issuer: str) -> str:
    if told.get("iss", issuer) != issuer:
        raise ProviderSignInFailed(reason="the response is from another provider (`iss`)")
    if "code" not in told:
        reason = told.get("error", "no code was returned")[:200]
        raise ProviderSignInFailed(reason=f"the identity provider says: {reason}")
    return told["code"]


def _asked(address: str, form: Mapping[str, str]) -> Mapping[str, Any]:
    headers = {"Accept": "application/json"}
    return _json(Request(address, urlencode(form).encode(), headers))


def _json(request: Request) -> Mapping[str, Any]:
    """Return the JSON object of an answer; raise ProviderSignInFailed."""
    try:
        with build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S) as reply:
            found = json.loads(reply.read(MAX_ANSWER_BYTES))
    except HTTPError as error:
        raise ProviderSignInFailed(
            reason=f"the identity provider responded with {error.code}"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        reason = f"the identity provider could not be reached: {error}"
        raise ProviderSignInFailed(reason=reason) from error
    if not isinstance(found, dict):
        raise ProviderSignInFailed(reason="the identity provider did not return a JSON object")
    return found


def _tokens(
    client: ProviderClient, answer: Mapping[str, Any], *, nonce: str | None
) -> ProviderTokens:
    token, refresh = answer.get("id_token"), answer.get("refresh_token")
    if not isinstance(token, str):
        raise ProviderSignInFailed(reason="the identity provider did not return an ID token")
    claims = _claims(token)
    audience = claims.get("aud")
    if client.client_id not in (audience if isinstance(audience, list) else [audience]):
        raise ProviderSignInFailed(reason="the ID token was issued for another client (`aud`)")
    if claims.get("iss") != client.issuer:
        raise ProviderSignInFailed(reason="the ID token was issued by another provider (`iss`)")
    if nonce is not None and claims.get("nonce") != nonce:
        raise ProviderSignInFailed(reason="the ID token belongs to another sign-in (`nonce`)")
    ends_s = claims.get("exp")
    if isinstance(ends_s, bool) or not isinstance(ends_s, int | float):
        raise ProviderSignInFailed(reason="the ID token does not say when it expires (`exp`)")
    return ProviderTokens(token, float(ends_s), refresh if isinstance(refresh, str) else None)


def _claims(token: str) -> Mapping[str, Any]:
    try:
        payload = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, binascii.Error, RecursionError) as error:
        raise ProviderSignInFailed(reason="the ID token is not a JWT") from error
    if not isinstance(found, dict):
        raise ProviderSignInFailed(reason="the ID token is not a JWT")
    return found
