"""The form of a key, `hk_<id>_<secret>`, and what a key tells about its bearer.

The id is public: it appears in lists, logs and the audit. The secret has 256 bits, and only its SHA-256
is stored. After a rotation the former secret stays valid until a time that is chosen with the rotation.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hocket.schemas.access.roles import Permission
from hocket.schemas.errors import ErrorClass, HocketError

PREFIX = "hk_"
ID_DIGITS = 12
SECRET_DIGITS = 64
_FORM = re.compile(rf"{PREFIX}([0-9a-f]{{{ID_DIGITS}}})_([0-9a-f]{{{SECRET_DIGITS}}})", re.ASCII)
_BEARER = "bearer "


class AccessDenied(HocketError):
    """The request is not allowed. {cure}"""

    error_class = ErrorClass.INVALID
    cure: ClassVar[str] = "Use another key."

    def __init__(self, **fields: Any) -> None:
        super().__init__(cure=self.cure, **fields)


class KeyMissing(AccessDenied):
    """The request has no key. {cure}"""

    code = "key_missing"
    cure = (
        "Send one as `Authorization: Bearer hk_...` or `X-Api-Key: hk_...`; an admin creates it with "
        "`hocket keys create`. The command line takes it from HOCKET_API_KEY."
    )


class KeyRefused(AccessDenied):
    """The key is refused: {reason}. {cure}"""

    code = "key_refused"
    cure = "Ask an admin for another: `hocket keys create`, or `hocket keys rotate`."


class PermissionMissing(AccessDenied):
    """The key `{key}` has no permission `{permission}`. {cure}"""

    code = "permission_missing"
    cure = "Use a key with a role that has it; `hocket keys roles` lists them."


class TenantForbidden(AccessDenied):
    """The key `{key}` does not cover the tenant that the request names. {cure}"""

    code = "tenant_forbidden"
    cure = "Leave out `X-Hocket-Tenant`: the key determines the tenant."


@dataclass(frozen=True, slots=True)
class Principal:
    """The bearer of a key: its tenant, and what it may do. A `tenant` of None means all tenants."""

    key_id: str
    name: str
    tenant: str | None
    role: str
    permissions: frozenset[Permission]
    models: frozenset[str] | None = None
    """The models that may be called; None means all."""
    pools: tuple[str, ...] = ()
    """The pools whose steps may be taken: node types, each followed by `@` and a queue if it has one."""
    requests_per_s: float | None = None
    expires_at_s: float = float("inf")
    secret_sha256: bytes = b""
    former_sha256: bytes = b""
    former_until_s: float = 0.0
    is_token: bool = False
    """Whether this is a token of an identity provider and not a key; `key_id` then names its subject."""
    subject: str = ""
    """The person, if this is the session of somebody who signed in to the console ..."""
    groups: tuple[str, ...] = ()
    """... and the groups that the person had at sign-in."""
    row_id: str = ""
    """The id of the row by which a person's session can be revoked."""
    session_ends_at_s: float = float("inf")
    """When the session ends, if this is one of the console that was begun with a key."""

    @property
    def actor(self) -> str:
        """The name of the bearer as the author of changes."""
        return self.key_id if self.is_token else f"key:{self.key_id}"

    def may(self, permission: Permission) -> bool:
        """Tell whether this bearer has a permission."""
        return permission in self.permissions

    def check(self, permission: Permission) -> None:
        """Raise PermissionMissing if this bearer does not have a permission."""
        if permission not in self.permissions:
            raise PermissionMissing(key=self.key_id, permission=str(permission))

    def acts_for(self, named: str | None, otherwise: str) -> str:
        """Return the tenant that a request is for, whether or not it names one; raise TenantForbidden if
        the key does not cover it."""
        if self.tenant is None:
            return otherwise if named is None else named
        if named is not None and named != self.tenant:
            raise TenantForbidden(key=self.key_id)
        return self.tenant

    def by_former(self) -> "Principal":
        """Return the bearer of the former secret: the same, until that secret ends."""
        return replace(
            self,
            secret_sha256=self.former_sha256,
            former_sha256=b"",
            expires_at_s=min(self.expires_at_s, self.former_until_s),
        )

    def counts_until_s(self, secret: str) -> float:
        """Return until when (epoch seconds) a secret that is accepted now stays valid."""
        if hmac.compare_digest(hashed(secret), self.secret_sha256):
            return self.expires_at_s
        return min(self.expires_at_s, self.former_until_s)

    def accepts(self, secret: str, now_s: float) -> str:
        """Return why a secret is refused, or an empty text if it is accepted. It is compared in constant
        time, whatever else is wrong with the key. No secret is accepted for a person's row."""
        given = hashed(secret)
        is_present = hmac.compare_digest(given, self.secret_sha256)
        is_former = hmac.compare_digest(given, self.former_sha256)
        if self.subject or (not is_present and not is_former):
            return UNKNOWN
        if now_s >= self.expires_at_s:
            return "it has expired"
        if not is_present and now_s >= self.former_until_s:
            return "it was replaced by a rotation and is no longer accepted"
        return ""


UNKNOWN = "it is unknown or was revoked"


def hashed(secret: str) -> bytes:
    """Return the hash that is stored of a secret."""
    return hashlib.sha256(secret.encode("ascii", "replace")).digest()


def key_text(key_id: str, secret: str) -> str:
    """Return the text of a key, as its bearer gets it."""
    return f"{PREFIX}{key_id}_{secret}"


def parts_of(text: str) -> tuple[str, str] | None:
    """Return the id and secret of a key, or None if the text does not have the form of one."""
    found = _FORM.fullmatch(text)
    return None if found is None else (found[1], found[2])


def sent_key(headers: Mapping[str, str]) -> str:
    """Return the key in a request's headers, as OpenAI's or Anthropic's clients send it; empty if there
    is none."""
    authorization = headers.get("authorization") or ""
    if authorization[: len(_BEARER)].lower() == _BEARER:
        return authorization[len(_BEARER) :].strip()
    return (headers.get("x-api-key") or "").strip()
