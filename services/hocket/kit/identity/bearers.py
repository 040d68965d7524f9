"""Bearers of an identity provider's tokens: the groups give the roles, the subject the identity.

A token that was checked is remembered until it expires, so that its signature is verified only once; all
are forgotten when the provider's keys change. The id of a bearer is derived from issuer and subject. It
is the same in each process and for each token, and budgets, rate limits and the audit use it.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hocket.kit.identity.provider import Provider, ProviderKeys
from hocket.kit.identity.tokens import LEEWAY_S, TokenChecks
from hocket.kit.process import clock
from hocket.schemas.access.group_roles import (
    MAX_GROUPS,
    TenantRole,
    acting,
    roles_of,
)
from hocket.schemas.access.keys import Principal
from hocket.schemas.checks.plain_json import shown_text

MAX_REMEMBERED = 10_000
"""Tokens that are remembered; beyond this, the oldest are forgotten."""
ID_PREFIX = "oidc-"
ID_DIGITS = 20
MAX_NAME_CHARS = 100
WORD_CLAIMS = frozenset({"scope", "scp"})
"""Claims whose text is a space-separated list (RFC 8693, 4.2); the text of others is a single name."""


@dataclass(frozen=True, slots=True)
class Person:
    """The person whom an ID token identifies; `groups` are those that have a role."""

    subject_id: str
    name: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject that a token identifies, with the roles of its groups; valid until `ends_at_s`."""

    subject_id: str
    name: str
    roles: tuple[TenantRole, ...]
    ends_at_s: float


class TokenBearers:
    """Identifies bearers by their tokens. `claim` names the claim that holds the groups, `table` maps
    groups to roles."""

    def __init__(
        self, provider: Provider, checks: TokenChecks, claim: str, table: Mapping[str, TenantRole]
    ) -> None:
        self.provider = provider
        self.checks = checks
        self._claim = claim
        self._table = table
        self._known: dict[bytes, Subject] = {}
        self._keys: ProviderKeys = provider.keys

    async def bearer(self, text: str, tenant: str | None) -> Principal:
        """Return the bearer of a token; `tenant` is the one that the request names, if any. Raises
        TokenRefused, IdentityProviderAway, NoRole, TenantForbidden or TenantNotNamed."""
        subject = await self._subject(text)
        role = acting(subject.roles, tenant)
        return Principal(
            key_id=subject.subject_id,
            name=subject.name,
            tenant=role.tenant,
            role=role.role,
            permissions=role.permissions,
            expires_at_s=subject.ends_at_s,
            is_token=True,
        )

    def person_of(self, claims: Mapping[str, Any]) -> Person:
        """Return the person whom checked claims identify, even if none of the groups has a role."""
        listed = itertools.islice(_groups(claims, self._claim), MAX_GROUPS)
        groups = tuple(sorted({group for group in listed if group in self._table}))
        subject_id = subject_id_of(self.provider.issuer, str(claims["sub"]))
        return Person(subject_id, _name_of(claims), groups)

    def roles_of(self, groups: Iterable[str]) -> tuple[TenantRole, ...]:
        """Return the roles of a member of these groups; raise NoRole."""
        return roles_of(groups, self._table)

    async def _subject(self, text: str) -> Subject:
        mark = hashlib.sha256(text.encode("ascii", "replace")).digest()
        if self.provider.is_fresh and self._keys is self.provider.keys:
            known = self._known.get(mark)
            if known is not None and clock.now_ms() / 1000 < known.ends_at_s:
                return known
        subject = self.subject_of(await self.checks.claims(text))
        if self._keys is not self.provider.keys:
            self._keys = self.provider.keys
            self._known.clear()
        if len(self._known) >= MAX_REMEMBERED:
            for former in list(itertools.islice(self._known, MAX_REMEMBERED // 2)):
                del self._known[former]
        self._known[mark] = subject
        return subject

    def subject_of(self, claims: Mapping[str, Any]) -> Subject:
        """Return the subject that checked claims identify; raise NoRole."""
        return Subject(
            subject_id_of(self.provider.issuer, str(claims["sub"])),
            _name_of(claims),
            roles_of(itertools.islice(_groups(claims, self._claim), MAX_GROUPS), self._table),
            float(claims["exp"]) + LEEWAY_S,
        )


def subject_id_of(issuer: str, subject: str) -> str:
    """Return the id of an issuer's subject."""
    told = f"{len(issuer)}:{issuer}{subject}".encode()
    return f"{ID_PREFIX}{hashlib.sha256(told).hexdigest()[:ID_DIGITS]}"


def _name_of(claims: Mapping[str, Any]) -> str:
    names = (claims.get(name) for name in ("preferred_username", "email", "name"))
    name = next((one for one in names if isinstance(one, str) and one), str(claims["sub"]))
    return shown_text(name, MAX_NAME_CHARS)[:MAX_NAME_CHARS]


def _groups(claims: Mapping[str, Any], claim: str) -> Iterator[str]:
    """Yield the groups in a claim; `claim` is its name, or a dotted path to it
    (`realm_access.roles`)."""
    found: object = claims.get(claim)
    if found is None:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        yield from found.split() if claim in WORD_CLAIMS else (found,)
    elif isinstance(found, list):
        yield from (one for one in found if isinstance(one, str))
