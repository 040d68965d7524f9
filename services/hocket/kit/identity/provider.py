"""An identity provider: its endpoints (OpenID Connect Discovery 1.0) and its public keys.

States: nothing known yet; fresh; old (refreshed in the background, while requests use the known keys);
too old (KEEP_S without an answer: no key is valid until the provider answers). Before an unknown key is
refused, the provider is asked. Requests that wait for this share an answer, and there is at most one
request to the provider in ASK_GAP_S, however many unknown keys arrive. A key that the provider withdrew
is invalid from its next answer on.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import structlog
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, OKPKey, RSAKey

from hocket.kit.identity.errors import IdentityProviderAway
from hocket.kit.process import clock
from hocket.kit.process.setting_types import LOOPBACK
from hocket.schemas.checks.plain_json import parse_json, shown_text
from hocket.schemas.errors import InvalidInput

FRESH_S = 300.0
"""How long keys are used without asking again: a withdrawn key remains valid for this long, plus the
time of one answer."""
KEEP_S = 86_400.0
"""How long known keys remain valid while the provider does not answer."""
ASK_GAP_S = 5.0
ASK_TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 512 * 1024
MAX_PROVIDER_KEYS = 100
MAX_WAITING = 256
"""Requests that may wait for the provider at the same time; others are refused without its answer."""
DISCOVERY = "/.well-known/openid-configuration"
COMPONENT = "identity"

PublicKey = RSAKey | ECKey | OKPKey
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The endpoints of a provider, and the properties that it declares."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    end_session_endpoint: str = ""
    token_auth_methods: frozenset[str] = frozenset()
    names_itself: bool = False
    """Whether each of its answers names the issuer (RFC 9207)."""


@dataclass(frozen=True, slots=True)
class ProviderKeys:
    """The keys of one answer, by their ids; `nameless` are those without an id."""

    by_id: Mapping[str, PublicKey] = field(default_factory=dict, compare=False)
    nameless: tuple[PublicKey, ...] = field(default=(), compare=False)
    told: str = ""
    """The answer's text, by which two objects are compared."""

    def candidates(self, key_id: str | None, algorithm: str) -> list[PublicKey]:
        """Return the keys that may have signed: the one with the id, or without an id all that fit."""
        if key_id is not None:
            found = [self.by_id[key_id]] if key_id in self.by_id else []
        else:
            found = [*self.by_id.values(), *self.nameless]
        return [key for key in found if _fits(key, algorithm)]


class Provider:
    """The keys of one issuer, in the memory of this process. Asking it needs a running event loop."""

    def __init__(self, issuer: str, report: Callable[..., None] = lambda *_, **__: None) -> None:
        self.issuer = issuer
        self._report = report
        self._metadata: Metadata | None = None
        self._keys = ProviderKeys()
        self._heard_s = self._asked_s = float("-inf")
        self._reason = "it has not been asked yet"
        self._asking: asyncio.Task[None] | None = None
        self._waiting = 0

    @property
    def keys(self) -> ProviderKeys:
        """The keys of the last answer; a new object after each answer that changed them."""
        return self._keys

    @property
    def is_fresh(self) -> bool:
        """Whether the keys are recent enough not to ask again."""
        return _now_s() - self._heard_s <= FRESH_S

    async def keys_for(self, key_id: str | None, algorithm: str) -> list[PublicKey]:
        """Return the keys that may have signed a token, asking the provider if none is known. Raises
        IdentityProviderAway if the keys are too old."""
        age_s = _now_s() - self._heard_s
        if age_s > FRESH_S:
            asking = self._ask()
            if age_s > KEEP_S:
                await self._answered(asking)
                self._check_kept()
        found = self._keys.candidates(key_id, algorithm)
        if not found:
            await self._answered(self._ask())
            self._check_kept()
            found = self._keys.candidates(key_id, algorithm)
        return found

    async def metadata(self) -> Metadata:
        """Return the provider's endpoints; raise IdentityProviderAway."""
        if self._metadata is None or _now_s() - self._heard_s > FRESH_S:
            await self._answered(self._ask())
        if self._metadata is None:
            raise IdentityProviderAway(reason=self._reason)
        return self._metadata

    async def close(self) -> None:
        """Cancel a request to the provider that is in progress."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    # ---- asking -------------------------------------------------------------------------------

    def _check_kept(self) -> None:
        if _now_s() - self._heard_s > KEEP_S:
            raise IdentityProviderAway(reason=self._reason)

    def _ask(self) -> asyncio.Task[None] | None:
        """Start a request, or return the one in progress; None if the last was less than ASK_GAP_S
        ago."""
        if self._asking is None or self._asking.done():
            if _now_s() - self._asked_s < ASK_GAP_S:
                return None
            self._asked_s = _now_s()
            self._asking = asyncio.create_task(self._read(), name="identity-provider")
        return self._asking

    async def _answered(self, asking: asyncio.Task[None] | None) -> None:
        if asking is None or self._waiting >= MAX_WAITING:
            return
        self._waiting += 1
        try:
            await asyncio.wait({asking})
        finally:
            self._waiting -= 1

    async def _read(self) -> None:
        timeout = aiohttp.ClientTimeout(total=ASK_TIMEOUT_S)
        try:
            async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
                address = self.issuer.rstrip("/") + DISCOVERY
                metadata = _metadata(await _json_of(session, address), self.issuer)
                keys = _keys(await _json_of(session, metadata.jwks_uri))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, InvalidInput) as error:
            self._reason = str(error) or f"no answer within {ASK_TIMEOUT_S:g} s"
            self._fall_behind()
            return
        self._metadata, self._heard_s = metadata, _now_s()
        if keys != self._keys:
            self._keys = keys
        self._report(COMPONENT, True)

    def _fall_behind(self) -> None:
        log.warning("identity_provider_away", issuer=self.issuer, reason=self._reason)
        detail = f"{self.issuer} does not answer: {self._reason}"
        self._report(COMPONENT, True, detail, degraded=True)


async def _json_of(session: aiohttp.ClientSession, address: str) -> Mapping[str, Any]:
    """Return the JSON object at an address; raise ValueError or what aiohttp raises."""
    async with session.get(address, allow_redirects=False) as reply:
        if reply.status != 200:
            raise ValueError(f"{address} answered {reply.status}")
        return await json_body(reply, address)


async def json_body(reply: aiohttp.ClientResponse, address: str) -> Mapping[str, Any]:
    """Return the JSON object in an answer; raise ValueError, InvalidInput or what aiohttp raises."""
    body = await reply.content.read(MAX_ANSWER_BYTES + 1)
    while len(body) <= MAX_ANSWER_BYTES and (more := await reply.content.read(65_536)):
        body += more
    if len(body) > MAX_ANSWER_BYTES:
        raise ValueError(f"{address} answered with more than {MAX_ANSWER_BYTES} bytes")
    found = parse_json(body.decode())
    if not isinstance(found, dict):
        raise ValueError(f"{address} did not answer with a JSON object")
    return found


def _metadata(found: Mapping[str, Any], issuer: str) -> Metadata:
    if found.get("issuer") != issuer:
        told = shown_text(str(found.get("issuer")), 200)
        raise ValueError(f"it calls itself `{told}`, but HOCKET_OIDC_ISSUER is `{issuer}`")
    methods = found.get("token_endpoint_auth_methods_supported")
    return Metadata(
        issuer,
        _address(found, "jwks_uri", issuer, needed=True),
        _address(found, "authorization_endpoint", issuer),
        _address(found, "token_endpoint", issuer),
        _address(found, "end_session_endpoint", issuer),
        frozenset(str(one) for one in methods) if isinstance(methods, list) else frozenset(),
        found.get("authorization_response_iss_parameter_supported") is True,
    )


def _address(found: Mapping[str, Any], name: str, issuer: str, *, needed: bool = False) -> str:
    address = found.get(name)
    if address is None and not needed:
        return ""
    if not isinstance(address, str) or not is_safe_address(address):
        raise ValueError(f"its `{name}` is not an https address")
    if issuer.startswith("https:") and not address.startswith("https:"):
        raise ValueError(f"its `{name}` is not an https address")
    return address


def is_safe_address(address: str) -> bool:
    """Tell whether requests to an address cannot be read or changed in transit: it is https, or on this
    machine."""
    parts = urlsplit(address)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    )


def _keys(found: Mapping[str, Any]) -> ProviderKeys:
    """Return the public keys that may sign; others are ignored (RFC 7517, 5)."""
    listed = found.get("keys")
    if not isinstance(listed, list):
        raise ValueError("its `jwks_uri` has no `keys`")
    by_id: dict[str, PublicKey] = {}
    nameless: list[PublicKey] = []
    for entry in listed[:MAX_PROVIDER_KEYS]:
        key = _key(entry)
        key_id = entry.get("kid") if isinstance(entry, dict) else None
        if key is None:
            continue
        if isinstance(key_id, str):
            by_id[key_id] = key
        else:
            nameless.append(key)
    return ProviderKeys(by_id, tuple(nameless), json.dumps(listed, sort_keys=True))


def _key(entry: object) -> PublicKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    if entry.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    try:
        key = JWKRegistry.import_key(entry)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return key if isinstance(key, RSAKey | ECKey | OKPKey) else None


def _fits(key: PublicKey, algorithm: str) -> bool:
    """Tell whether a key may be used with an algorithm, which only the token's header names."""
    if key.get("alg") not in (None, algorithm):
        return False
    kinds = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
    return kinds.get(algorithm[:2]) == key.key_type


def _now_s() -> float:
    return clock.monotonic_ms() / 1000
