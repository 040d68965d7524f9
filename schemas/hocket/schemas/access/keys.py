"""The form of a key, `hk_<id>_<secret>`, and what a key says of its bearer.

The id is public: it stands in lists, logs and the audit. The secret has 256 bits, and only its SHA-256
is kept. While a key is rotated its former secret counts as well, until a moment that is chosen then.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
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
    """There is no key. {cure}"""

    code = "key_missing"
    cure = (
        "Send one as `Authorization: Bearer hk_...` or `X-Api-Key: hk_...`; an admin makes it with "
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
    cure = "Leave `X-Hocket-Tenant` out: the key says its tenant."


@dataclass(frozen=True, slots=True)
class Principal:
    """The bearer of a key: whose tenant, and what is allowed. A `tenant` of None is all."""

    key_id: str
    name: str
    tenant: str | None
    role: str
    permissions: frozenset[Permission]
    models: frozenset[str] | None = None
    """The models that may be called; None is all."""
    pools: tuple[str, ...] = ()
    """The pools whose steps may be taken: node types, each with `@` and the queue where there is one."""
    requests_per_s: float | None = None
    expires_at_s: float = float("inf")
    secret_sha256: bytes = b""
    former_sha256: bytes = b""
    former_until_s: float = 0.0
    is_token: bool = False
    """Whether it is no key, but a token of an identity provider: `key_id` is that of its subject."""
    subject: str = ""
    """Of whom it is, where it is no key, but a person who signed in to the console ..."""
    groups: tuple[str, ...] = ()
    """... and the groups that this person had then."""
    row_id: str = ""
    """Where a person's session is a bearer: the id of the row by which it may be revoked."""

    @property
    def actor(self) -> str:
        """The bearer as author of changes."""
        return self.key_id if self.is_token else f"key:{self.key_id}"

    def may(self, permission: Permission) -> bool:
        """Tell whether a permission is among those of this bearer."""
        return permission in self.permissions

    def check(self, permission: Permission) -> None:
        """Raise PermissionMissing where a permission is not among those of this bearer."""
        if permission not in self.permissions:
            raise PermissionMissing(key=self.key_id, permission=str(permission))

    def acts_for(self, named: str | None, otherwise: str) -> str:
        """Return the tenant of a request that names one, or none; raise TenantForbidden."""
        if self.tenant is None:
            return otherwise if named is None else named
        if named is not None and named != self.tenant:
            raise TenantForbidden(key=self.key_id)
        return self.tenant

    def counts_until_s(self, secret: str) -> float:
        """Return until when a secret counts that is accepted now."""
        if hmac.compare_digest(hashed(secret), self.secret_sha256):
            return self.expires_at_s
        return min(self.expires_at_s, self.former_until_s)

    def accepts(self, secret: str, now_s: float) -> str:
        """Return why a secret is refused, nothing where it is accepted. It is compared in constant
        time, whatever else is wrong with the key."""
        given = hashed(secret)
        is_present = hmac.compare_digest(given, self.secret_sha256)
        is_former = hmac.compare_digest(given, self.former_sha256)
        if not is_present and not is_former:
            return UNKNOWN
        if now_s >= self.expires_at_s:
            return "it has expired"
        if not is_present and now_s >= self.former_until_s:
            return "it was replaced by a rotation, and the time for both is over"
        return ""


UNKNOWN = "it is not known, or was revoked"


def hashed(secret: str) -> bytes:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret.encode("ascii", "replace")).digest()


def key_text(key_id: str, secret: str) -> str:
    """Return a key as its bearer gets it."""
    return f"{PREFIX}{key_id}_{secret}"


def parts_of(text: str) -> tuple[str, str] | None:
    """Return id and secret of a key; None where it does not have the form."""
    found = _FORM.fullmatch(text)
    return None if found is None else (found[1], found[2])


def sent_key(headers: Mapping[str, str]) -> str:
    """Return the key that a request's headers send, as OpenAI's or as Anthropic's clients do; nothing
    where they send none."""
    authorization = headers.get("authorization") or ""
    if authorization[: len(_BEARER)].lower() == _BEARER:
        return authorization[len(_BEARER) :].strip()
    return (headers.get("x-api-key") or "").strip()
