"""Checks that a JWT was issued by the identity provider, is for us, and is valid now.

Its algorithm must be in a list of asymmetric ones; `none` and those with a shared secret cannot be
listed, and a key is used only with algorithms of its kind, so that no public key can serve as a shared
secret. Sources: RFC 7519, RFC 8725.
"""

import sys
from collections.abc import Collection, Mapping
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError

from hocket.kit.identity.errors import TokenRefused
from hocket.kit.identity.provider import Provider, PublicKey
from hocket.kit.process import clock
from hocket.schemas.access.group_roles import SIGNING_ALGORITHMS
from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import InvalidInput

MAX_TOKEN_CHARS = 16_384
LEEWAY_S = 30.0
"""How much clocks may differ."""
MAX_SUBJECT_CHARS = 255
TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""Accepted values of `typ`, if a token has it: an ID token, or an access token (RFC 9068)."""
MAX_TRIED_KEYS = 4
"""Keys that are tried if a token does not name its key."""


class _Registry(jws.JWSRegistry):
    """A registry with room for many groups, which ignores unknown headers (RFC 7515, 4)."""

    max_header_length = MAX_TOKEN_CHARS
    max_payload_length = MAX_TOKEN_CHARS
    max_signature_length = MAX_TOKEN_CHARS


_REGISTRIES = {
    name: _Registry(algorithms=[name], strict_check_header=False) for name in SIGNING_ALGORITHMS
}


def is_token(text: str) -> bool:
    """Tell whether text has the form of a JWT, which a key of this platform never has."""
    return text.startswith("ey") and text.count(".") == 2 and text.isascii()


class TokenChecks:
    """Checks tokens of one provider. `audiences` are the accepted audiences of a token; all `algorithms`
    must be in SIGNING_ALGORITHMS."""

    def __init__(
        self, provider: Provider, audiences: Collection[str], algorithms: Collection[str]
    ) -> None:
        assert set(algorithms) <= set(SIGNING_ALGORITHMS), "the setting was checked"
        self._provider = provider
        self._audiences = frozenset(audiences)
        self._algorithms = frozenset(algorithms)

    async def claims(self, text: str, audiences: Collection[str] = ()) -> Mapping[str, Any]:
        """Return the claims of a token if it is valid; raise TokenRefused or IdentityProviderAway.
        `audiences` replace those of the constructor."""
        if len(text) > MAX_TOKEN_CHARS:
            raise TokenRefused(reason=f"it is longer than {MAX_TOKEN_CHARS} characters")
        header = _header(text)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise TokenRefused(reason="its algorithm is not one of HOCKET_OIDC_ALGORITHMS")
        if str(header.get("typ", "jwt")).lower() not in TYPES:
            raise TokenRefused(reason="it is neither an ID token nor an access token")
        if key_id is not None and not isinstance(key_id, str):
            raise TokenRefused(reason="its header is not that of a JWT")
        keys = await self._provider.keys_for(key_id, algorithm)
        if not keys:
            raise TokenRefused(reason="the identity provider has no such key, or no longer has it")
        claims = _signed(text, keys[:MAX_TRIED_KEYS], algorithm)
        self._check(claims, frozenset(audiences) or self._audiences)
        return claims

    def _check(self, claims: Mapping[str, Any], audiences: frozenset[str]) -> None:
        now_s = clock.now_ms() / 1000
        if claims.get("iss") != self._provider.issuer:
            raise TokenRefused(reason="it was issued by someone else")
        if not _audiences(claims) & audiences:
            raise TokenRefused(reason="it is not for this platform (`aud`)")
        if _moment(claims, "exp") <= now_s - LEEWAY_S:
            raise TokenRefused(reason="it has expired")
        for name in ("nbf", "iat"):
            if name in claims and _moment(claims, name) > now_s + LEEWAY_S:
                raise TokenRefused(reason=f"it is not valid yet (`{name}`)")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARS:
            raise TokenRefused(reason="it does not say whose it is (`sub`)")
        if "events" in claims:
            raise TokenRefused(reason="it is neither an ID token nor an access token")


def _header(text: str) -> Mapping[str, Any]:
    try:
        header: Any = jws.extract_compact(
            text.encode(), registry=_REGISTRIES[SIGNING_ALGORITHMS[0]]
        ).headers()
    except (JoseError, ValueError, TypeError, RecursionError):
        raise TokenRefused(reason="it is not a JWT") from None
    if not isinstance(header, dict):  # the library also accepts a text or list that contains "alg"
        raise TokenRefused(reason="its header is not that of a JWT")
    return header


def _signed(text: str, keys: list[PublicKey], algorithm: str) -> Mapping[str, Any]:
    for key in keys:
        try:
            payload = jws.deserialize_compact(text, key, registry=_REGISTRIES[algorithm]).payload
            found = parse_json(payload.decode())
        except (JoseError, ValueError, TypeError, RecursionError, InvalidInput):
            continue
        if isinstance(found, dict):
            return found
    raise TokenRefused(reason="its signature is not that of the identity provider")


def _audiences(claims: Mapping[str, Any]) -> frozenset[str]:
    found = claims.get("aud")
    listed = found if isinstance(found, list) else [found]
    return frozenset(one for one in listed if isinstance(one, str))


def _moment(claims: Mapping[str, Any], name: str) -> float:
    found = claims.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TokenRefused(reason=f"`{name}` is missing or is not a time")
    if not abs(found) <= sys.float_info.max:  # NaN, infinite, or an integer that no float can hold
        raise TokenRefused(reason=f"`{name}` is missing or is not a time")
    return float(found)
