"""What a terminal asks an identity provider for a person: its endpoints, and tokens (OpenID Connect
Discovery 1.0; OpenID Connect Core 1.0, 3.1.3).

The platform is sent the ID token. It is received directly from the provider over TLS, so its signature
need not be checked here; the platform checks it on each request.
"""

import base64
import binascii
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from hocket.schemas.errors import ErrorClass, HocketError

SCOPE = "openid profile email"
OFFLINE = "offline_access"
"""The scope that requests a refresh token, if the provider supports it; the user has to consent (OpenID
Connect Core 1.0, 11)."""
DISCOVERY = "/.well-known/openid-configuration"
TIMEOUT_S = 15.0
MAX_ANSWER_BYTES = 512 * 1024
MAX_REASON_CHARS = 200
LAST_S = 253_402_300_799
"""The last second of the year 9999."""
MARGIN_S = 60.0
"""How long before its expiry a token is renewed."""


class ProviderSignInFailed(HocketError):
    """You are not signed in: {reason}. Sign in again with `hocket login --sso`."""

    code = "sign_in_failed"
    error_class = ErrorClass.INVALID


class ProviderRefused(ProviderSignInFailed):
    """You are not signed in: {reason}. Sign in again with `hocket login --sso`."""

    @property
    def error(self) -> str:
        """The error code that the provider gave (RFC 6749, 5.2); empty if it gave none."""
        return str(self.fields["error"])


class ProviderSilent(ProviderSignInFailed):
    """You are not signed in: {reason}. Sign in again with `hocket login --sso`."""


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


@dataclass(frozen=True, slots=True)
class Metadata:
    """A provider's endpoints (that for devices only if it has one), and the scope to request for a
    renewable token."""

    authorization_endpoint: str
    token_endpoint: str
    device_endpoint: str | None
    offline: Mapping[str, str]


def renewed(client: ProviderClient, refresh_token: str) -> ProviderTokens:
    """Return renewed tokens; raise ProviderSignInFailed."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": refresh_token,
        "client_id": client.client_id,
    }
    found = tokens_of(client, asked(metadata_of(client).token_endpoint, form), nonce=None)
    if found.refresh_token is not None:
        return found
    return ProviderTokens(found.id_token, found.expires_at_s, refresh_token)


def metadata_of(client: ProviderClient) -> Metadata:
    """Return a provider's metadata; raise ProviderSignInFailed."""
    found = _json(Request(safe(client.issuer).rstrip("/") + DISCOVERY))
    if found.get("issuer") != client.issuer:
        raise ProviderSignInFailed(reason=f"{client.issuer} identifies itself by a different name")
    authorization, token = [
        safe(str(found.get(name, "")), client.issuer)
        for name in ("authorization_endpoint", "token_endpoint")
    ]
    device = found.get("device_authorization_endpoint")
    scopes = found.get("scopes_supported")
    can_renew = isinstance(scopes, list) and OFFLINE in scopes
    offline = {"scope": f"{SCOPE} {OFFLINE}", "prompt": "consent"} if can_renew else {}
    return Metadata(
        authorization,
        token,
        None if device is None else safe(str(device), client.issuer),
        offline,
    )


def safe(address: str, issuer: str = "") -> str:
    """Return the URL if it is protected in transit (https or loopback), and can be shown in a terminal
    as it is; raise ProviderSignInFailed."""
    from hocket.kit.identity.provider import is_safe_address

    if not address.isprintable() or " " in address:
        raise ProviderSignInFailed(reason="the identity provider's address is not printable")
    if not is_safe_address(address) or (
        issuer.startswith("https:") and not address.startswith("https:")
    ):
        raise ProviderSignInFailed(reason="the identity provider has no https URL")
    return address


def asked(address: str, form: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the answer to a form; raise ProviderRefused, or ProviderSilent if there is no answer."""
    headers = {"Accept": "application/json"}
    return _json(Request(address, urlencode(form).encode(), headers))


def tokens_of(
    client: ProviderClient, answer: Mapping[str, Any], *, nonce: str | None
) -> ProviderTokens:
    """Return the tokens in an answer, if they are for this client; raise ProviderSignInFailed."""
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
    ends_s = float(min(ends_s, LAST_S))
    return ProviderTokens(token, ends_s, refresh if isinstance(refresh, str) else None)


def _claims(token: str) -> Mapping[str, Any]:
    try:
        payload = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, binascii.Error, RecursionError) as error:
        raise ProviderSignInFailed(reason="the ID token is not a JWT") from error
    if not isinstance(found, dict):
        raise ProviderSignInFailed(reason="the ID token is not a JWT")
    return found


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_values: Any) -> None:
        return None


def _json(request: Request) -> Mapping[str, Any]:
    """Return the JSON object of an answer; raise ProviderSignInFailed."""
    try:
        with build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S) as reply:
            found = json.loads(reply.read(MAX_ANSWER_BYTES))
    except HTTPError as error:
        code = _error_of(error)
        said = f"says: {code}" if code else f"responded with {error.code}"
        raise ProviderRefused(reason=f"the identity provider {said}", error=code) from error
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        reason = f"the identity provider could not be reached: {error}"
        raise ProviderSilent(reason=reason) from error
    if not isinstance(found, dict):
        raise ProviderSignInFailed(reason="the identity provider did not return a JSON object")
    return found


def _error_of(answer: HTTPError) -> str:
    """Return the error code of a refusal; empty if it has none."""
    try:
        found = json.loads(answer.read(MAX_ANSWER_BYTES))
    except (OSError, HTTPException, ValueError, RecursionError):
        return ""
    error = found.get("error") if isinstance(found, dict) else None
    return error[:MAX_REASON_CHARS] if isinstance(error, str) and error.isprintable() else ""
