"""How a person signs in at the identity provider: the authorization code flow with PKCE.

Sources: RFC 6749, 4.1; RFC 7636; OpenID Connect Core 1.0, 3.1; RFC 9207 against mix-up attacks.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode

import aiohttp

from hocket.kit.identity.bearers import TokenBearers
from hocket.kit.identity.errors import IdentityProviderAway, SignInRefused
from hocket.kit.identity.provider import Metadata, json_body
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput

SCOPE = "openid profile email"
EXCHANGE_TIMEOUT_S = 10.0
"""How long the provider may take to exchange the code, while a person waits."""
MAX_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Flow:
    """The secrets of one sign-in, by which its answer is recognised. Of these, the browser sees only
    `state`, `nonce` and a hash of `verifier`."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str


@dataclass(frozen=True, slots=True)
class ProviderAnswer:
    """The parameters with which the provider redirected the browser back."""

    state: str
    code: str
    issuer: str | None
    error: str


class AuthorizationCode:
    """Signs people in at one provider. Without a `secret`, this platform is a public client there."""

    def __init__(
        self, tokens: TokenBearers, client_id: str, secret: str | None, public_url: str | None
    ) -> None:
        self.tokens = tokens
        self.public_url = public_url
        self._client_id = client_id
        self._secret = secret

    async def address(self, flow: Flow) -> str:
        """Return the URL to which a browser is sent to sign in. Raises IdentityProviderAway or
        SignInRefused."""
        metadata = await self._metadata()
        challenge = hashlib.sha256(flow.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": flow.redirect_uri,
            "scope": SCOPE,
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        address = metadata.authorization_endpoint
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}"

    async def claims(self, flow: Flow, answer: ProviderAnswer) -> Mapping[str, Any]:
        """Exchange the code in an answer for an ID token, and return the token's checked claims. Raises
        SignInRefused, TokenRefused or IdentityProviderAway."""
        if not hmac.compare_digest(answer.state.encode(), flow.state.encode()):
            raise SignInRefused(
                reason="it was not started in this browser, or another sign-in was started since"
            )
        metadata = await self._metadata()
        _check_issuer(answer, metadata)
        if answer.error or not answer.code:
            reason = shown_text(answer.error, MAX_SHOWN_CHARS) or "no code was received"
            raise SignInRefused(reason=f"the identity provider says: {reason}")
        token = (await self._exchange(metadata, flow, answer.code)).get("id_token")
        if not isinstance(token, str):
            raise SignInRefused(reason="the identity provider returned no ID token")
        claims = await self.tokens.checks.claims(token, (self._client_id,))
        _check_nonce(claims, flow)
        if claims.get("azp", self._client_id) != self._client_id:
            raise SignInRefused(reason="the ID token was made for another client (`azp`)")
        return claims

    async def _metadata(self) -> Metadata:
        metadata = await self.tokens.provider.metadata()
        if not metadata.authorization_endpoint or not metadata.token_endpoint:
            raise SignInRefused(reason="the identity provider has no sign-in for browsers")
        return metadata

    async def _exchange(self, metadata: Metadata, flow: Flow, code: str) -> Mapping[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": flow.redirect_uri,
            "code_verifier": flow.verifier,
        }
        headers = {"Accept": "application/json"}
        methods = metadata.token_auth_methods
        if self._secret is None:
            form["client_id"] = self._client_id
        elif methods and "client_secret_basic" not in methods:
            form |= {"client_id": self._client_id, "client_secret": self._secret}
        else:
            headers["Authorization"] = _basic(self._client_id, self._secret)
        timeout = aiohttp.ClientTimeout(total=EXCHANGE_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
                session.post(
                    metadata.token_endpoint, data=form, headers=headers, allow_redirects=False
                ) as reply,
            ):
                if reply.status >= 500:
                    raise IdentityProviderAway(reason=f"its token endpoint answered {reply.status}")
                if reply.status != 200:
                    raise SignInRefused(reason="the identity provider does not accept the code")
                return await json_body(reply, metadata.token_endpoint)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or f"no answer within {EXCHANGE_TIMEOUT_S:g} s"
            raise IdentityProviderAway(reason=reason) from error
        except (ValueError, InvalidInput) as error:
            raise IdentityProviderAway(reason=str(error)) from error


def _basic(client_id: str, secret: str) -> str:
    """Return the `Authorization` header of a client (RFC 6749, 2.3.1: both parts are form-encoded)."""
    told = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return "Basic " + base64.b64encode(told.encode()).decode()


def _check_issuer(answer: ProviderAnswer, metadata: Metadata) -> None:
    """Raise SignInRefused if the answer is not from the provider that was asked."""
    if answer.issuer is None and metadata.names_itself:
        raise SignInRefused(reason="the answer does not name the provider (`iss`)")
    if answer.issuer is not None and answer.issuer != metadata.issuer:
        raise SignInRefused(reason="the answer is from another provider (`iss`)")


def _check_nonce(claims: Mapping[str, Any], flow: Flow) -> None:
    """Raise SignInRefused if an ID token was not issued for this sign-in."""
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not hmac.compare_digest(
        nonce.encode("utf-8", "replace"), flow.nonce.encode()
    ):
        raise SignInRefused(reason="the ID token belongs to another sign-in (`nonce`)")
