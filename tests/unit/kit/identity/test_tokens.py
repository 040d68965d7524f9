"""Tokens of an identity provider: which are believed, for how long, and what their groups allow."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from joserfc.jwk import ECKey, OKPKey, RSAKey

from hocket.kit.identity import provider as provider_module
from hocket.kit.identity.bearers import TokenBearers
from hocket.kit.identity.configured import token_bearers_of
from hocket.kit.identity.errors import IdentityProviderAway, TokenRefused
from hocket.kit.identity.provider import FRESH_S, KEEP_S
from hocket.kit.process import clock
from hocket.kit.process.settings import Settings, read
from hocket.schemas.access.group_roles import NoRole, TenantNotNamed
from hocket.schemas.access.keys import TenantForbidden
from hocket.schemas.access.roles import ROLES, Permission
from hocket.schemas.errors import InvalidInput
from support.access.issuer import AUDIENCE, Issuer, running_issuer

ROLES_OF_GROUPS = {
    "team": "developer@acme",
    "watchers": "viewer@acme",
    "ops": "operator@acme",
    "rivals": "viewer@rival",
    "platform": "admin@*",
    "readers": "viewer@*",
}


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with running_issuer() as issuer:
        yield issuer


def bearers_of(issuer: Issuer, **settings: Any) -> TokenBearers:
    given = {"oidc_client_id": AUDIENCE, "oidc_roles": ROLES_OF_GROUPS, **settings}
    found = token_bearers_of(Settings(oidc_issuer=issuer.url, **given))
    assert found is not None
    return found


@pytest.fixture
async def bearers(issuer: Issuer) -> AsyncIterator[TokenBearers]:
    found = bearers_of(issuer)
    yield found
    await found.provider.close()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Move the monotonic clock of this process on."""
    real, ahead_ms = clock.monotonic_ms, 0.0
    monkeypatch.setattr(clock, "monotonic_ms", lambda: real() + ahead_ms)

    def move(seconds: float) -> None:
        nonlocal ahead_ms
        ahead_ms += seconds * 1000

    return move


async def test_a_token_says_who_comes_and_what_he_may(
    issuer: Issuer, bearers: TokenBearers
) -> None:
    found = await bearers.bearer(issuer.token(email="ann@example.com"), None)
    assert (found.tenant, found.role, found.name) == ("acme", "developer", "ann@example.com")
    assert found.permissions == ROLES["developer"]
    assert found.key_id.startswith("oidc-")
    again = await bearers.bearer(issuer.token(jti="another", email="ann@new.example"), None)
    assert again.key_id == found.key_id, "budgets and rates hang on it"
    assert (await bearers.bearer(issuer.token(sub="bob"), None)).key_id != found.key_id


def unsigned(issuer: Issuer) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, issuer.claims())
    return ".".join(_part(json.dumps(one).encode()) for one in parts) + "."


def signed_with_the_public_key(issuer: Issuer) -> str:
    """Use what everybody knows, the public key, as the secret of HS256."""
    parts = ({"alg": "HS256", "typ": "JWT", "kid": issuer.key.kid}, issuer.claims())
    signing = ".".join(_part(json.dumps(one).encode()) for one in parts)
    tag = hmac.new(issuer.key.as_pem(private=False), signing.encode(), hashlib.sha256).digest()
    return f"{signing}.{_part(tag)}"


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def with_header(header: object) -> Callable[[Issuer], str]:
    """A token with any JSON as its header, and a signature that does not matter."""
    return lambda issuer: f"{_part(json.dumps(header).encode())}.{issuer.token().split('.', 1)[1]}"


def changed(token: str, **claims: Any) -> str:
    header, payload, signature = token.split(".")
    told = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return f"{header}.{_part(json.dumps({**told, **claims}).encode())}.{signature}"


HOSTILE: dict[str, Callable[[Issuer], str]] = {
    "no signature": unsigned,
    "the public key as secret": signed_with_the_public_key,
    "another key under its id": lambda one: one.token(one.other_key, {"kid": one.key.kid}),
    "another key with its own id": lambda one: one.token(one.other_key),
    "a key in the header": lambda one: one.token(
        one.other_key, {"kid": None, "jwk": one.other_key.as_dict(private=False)}
    ),
    "changed claims": lambda one: changed(one.token(), groups=["platform"]),
    "another issuer": lambda one: one.token(iss="https://evil.example"),
    "another audience": lambda one: one.token(aud="another"),
    "no audience": lambda one: one.token(aud=None),
    "an audience that is no text": lambda one: one.token(aud=[{"a": 1}, 7]),
    "expired": lambda one: one.token(exp=int(time.time()) - 60),
    "no end": lambda one: one.token(exp=None),
    "an end that is no number": lambda one: one.token(exp="later"),
    "an endless end": lambda one: one.token(exp=True),
    "an end beyond every float": lambda one: one.token(exp=10**400),
    "a beginning beyond every float": lambda one: one.token(nbf=-(10**400)),
    "not yet": lambda one: one.token(nbf=int(time.time()) + 600),
    "made in the future": lambda one: one.token(iat=int(time.time()) + 600),
    "nobody": lambda one: one.token(sub=None),
    "an empty subject": lambda one: one.token(sub=""),
    "a long subject": lambda one: one.token(sub="s" * 256),
    "a logout token": lambda one: one.token(events={"backchannel-logout": {}}),
    "another type": lambda one: one.token(header={"typ": "logout+jwt"}),
    "an unlisted algorithm": lambda one: one.token(header={"alg": "PS256"}),
    "a list of algorithms": with_header({"alg": ["RS256"]}),
    "an object as algorithm": with_header({"alg": {"RS256": True}}),
    "a number as algorithm": with_header({"alg": 256}),
    "a key id that is a list": with_header({"alg": "RS256", "kid": ["rsa-0"]}),
    "a type that is an object": with_header({"alg": "RS256", "typ": {"JWT": 1}}),
    "a list as header": with_header(["alg"]),
    "a text as header": with_header("alg"),
    "deep": lambda one: f"{_part(b'{' + b'[' * 9_000)}.e30.e30",
    "long": lambda one: one.token(pad="p" * 20_000),
    "nothing": lambda one: "ey..",
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_what_the_provider_did_not_sign_for_us_now_is_refused(
    issuer: Issuer, bearers: TokenBearers, kind: str
) -> None:
    with pytest.raises(TokenRefused) as raised:
        await bearers.bearer(HOSTILE[kind](issuer), None)
    assert raised.value.code == "token_refused"
    assert str(raised.value).endswith("Get another from your identity provider.")
    assert (await bearers.bearer(issuer.token(), None)).tenant == "acme"


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (RSAKey.generate_key(2048, {"kid": "a"}), "PS256"),
        (ECKey.generate_key("P-256", {"kid": "b"}), "ES256"),
        (OKPKey.generate_key("Ed25519", {"kid": "c"}), "Ed25519"),
    ],
    ids=lambda one: str(one) if isinstance(one, str) else "",
)
async def test_keys_of_each_kind_sign(issuer: Issuer, key: Any, algorithm: str) -> None:
    issuer.keys = [
        {"kty": "AKP", "kid": "of tomorrow"},
        "no key",
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        key.as_dict(private=False),
    ]
    bearers = bearers_of(issuer, oidc_algorithms=(algorithm,))
    assert (await bearers.bearer(issuer.token(key, {"alg": algorithm}), None)).role == "developer"
    assert (await bearers.bearer(issuer.token(key, {"alg": algorithm, "kid": None}), None)).tenant
    with pytest.raises(TokenRefused):
        await bearers.bearer(issuer.token(), None)


async def test_a_new_key_counts_at_once_and_a_withdrawn_one_no_more(
    issuer: Issuer, bearers: TokenBearers, later: Callable[[float], None]
) -> None:
    token = issuer.token()
    await bearers.bearer(token, None)
    issuer.keys = [issuer.other_key.as_dict(private=False)]
    later(provider_module.ASK_GAP_S + 1)
    assert (await bearers.bearer(issuer.token(issuer.other_key), None)).tenant == "acme"
    assert issuer.asked == 2
    with pytest.raises(TokenRefused, match="no such key"):
        await bearers.bearer(token, None)


async def test_many_unknown_keys_are_one_question(issuer: Issuer, bearers: TokenBearers) -> None:
    await bearers.bearer(issuer.token(), None)
    for number in range(50):
        with pytest.raises(TokenRefused):
            await bearers.bearer(issuer.token(header={"kid": f"none-{number}"}), None)
    assert issuer.asked == 1


async def test_while_the_provider_is_away_known_keys_count_for_a_day(
    issuer: Issuer, bearers: TokenBearers, later: Callable[[float], None]
) -> None:
    await bearers.bearer(issuer.token(), None)
    issuer.is_away = True
    later(FRESH_S + 1)
    assert (await bearers.bearer(issuer.token(sub="bob"), None)).tenant == "acme"
    later(KEEP_S)
    with pytest.raises(IdentityProviderAway, match="answered 503") as raised:
        await bearers.bearer(issuer.token(), None)
    assert raised.value.retryable
    issuer.is_away = False
    later(FRESH_S)
    assert (await bearers.bearer(issuer.token(), None)).tenant == "acme"


async def test_a_provider_that_was_never_reached_lets_nobody_in(issuer: Issuer) -> None:
    issuer.is_away = True
    with pytest.raises(IdentityProviderAway, match="answered 503"):
        await bearers_of(issuer).bearer(issuer.token(), None)


async def test_a_provider_of_another_name_is_not_believed(issuer: Issuer) -> None:
    issuer.named = "https://evil.example"
    with pytest.raises(IdentityProviderAway, match="calls itself"):
        await bearers_of(issuer).bearer(issuer.token(), None)


async def test_groups_give_roles_and_nothing_else_does(
    issuer: Issuer, bearers: TokenBearers
) -> None:
    for groups in (None, [], ["strangers"], "Team", {"team": True}, [7, ["team"]]):
        with pytest.raises(NoRole):
            await bearers.bearer(issuer.token(groups=groups, role="admin"), None)
    both = await bearers.bearer(issuer.token(groups=["watchers", "ops"]), None)
    assert both.permissions == ROLES["viewer"] | ROLES["operator"]
    wider = await bearers.bearer(issuer.token(groups=["team", "ops"]), None)
    assert wider.permissions == ROLES["developer"] | ROLES["operator"]
    assert not wider.may(Permission.KEYS_MANAGE)


async def test_a_tenant_s_role_counts_in_that_tenant_alone(
    issuer: Issuer, bearers: TokenBearers
) -> None:
    token = issuer.token(groups=["team", "rivals"])
    with pytest.raises(TenantNotNamed, match="acme, rival"):
        await bearers.bearer(token, None)
    assert (await bearers.bearer(token, "acme")).role == "developer"
    assert (await bearers.bearer(token, "rival")).role == "viewer"
    with pytest.raises(TenantForbidden):
        await bearers.bearer(token, "third")
    wide = issuer.token(groups=["team", "readers"])
    assert (await bearers.bearer(wide, "acme")).tenant == "acme"
    for named in (None, "third"):
        found = await bearers.bearer(wide, named)
        assert (found.tenant, found.permissions) == (None, ROLES["viewer"])


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ("realm_access.roles", {"realm_access": {"roles": ["team"]}}),
        ("https://hocket/groups", {"https://hocket/groups": ["team"]}),
        ("scope", {"scope": "openid team"}),
        ("role", {"role": "team"}),
    ],
)
async def test_groups_are_where_the_settings_say(
    issuer: Issuer, claim: str, told: dict[str, Any]
) -> None:
    bearers = bearers_of(issuer, oidc_groups_claim=claim)
    assert (await bearers.bearer(issuer.token(groups=None, **told), None)).tenant == "acme"
    with pytest.raises(NoRole):
        await bearers.bearer(issuer.token(), None)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("OIDC_ISSUER", "http://login.example.com"),
        ("OIDC_ISSUER", "https://login.example.com?a=b"),
        ("OIDC_ISSUER", "https://user:secret@login.example.com"),
        ("OIDC_ALGORITHMS", "none"),
        ("OIDC_ALGORITHMS", "RS256, HS256"),
        ("OIDC_ALGORITHMS", ","),
        ("OIDC_ROLES", "[]"),
        ("OIDC_ROLES", '{"a": "owner@acme"}'),
        ("OIDC_ROLES", '{"a": "worker@*"}'),
        ("OIDC_ROLES", '{"a": "admin"}'),
        ("OIDC_ROLES", '{"a": "admin@a.b"}'),
        ("OIDC_ROLES", '{"": "admin@*"}'),
    ],
)
def test_settings_that_cannot_be_are_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    monkeypatch.setenv(f"HOCKET_{variable}", text)
    with pytest.raises(InvalidInput, match=f"HOCKET_{variable}"):
        read()


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"oidc_roles": ROLES_OF_GROUPS}, "HOCKET_OIDC_CLIENT_ID"),
        ({"oidc_client_id": "hocket"}, "HOCKET_OIDC_ROLES"),
    ],
)
def test_what_a_provider_needs_is_named(given: dict[str, Any], missing: str) -> None:
    with pytest.raises(InvalidInput, match=missing):
        token_bearers_of(Settings(oidc_issuer="https://login.example.com", **given))
    assert token_bearers_of(Settings()) is None
