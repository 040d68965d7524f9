"""Who may call the gateway according to its configuration: holders of its own keys, which it stores
only as hashes, and of the platform's; or, on a loopback address only (`open`), anyone, under
whatever name they give."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hocket.gateway.core.config.fields import Fields, wrong
from hocket.schemas.access.keys import (
    UNKNOWN,
    KeyMissing,
    KeyRefused,
    PermissionMissing,
    Principal,
)
from hocket.schemas.access.roles import Permission
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.subjects import TOKEN

KEY_PREFIX = "hk-"
MAX_KEYS = 100_000
_KEY_FIELDS = frozenset({"name", "sha256", "tenant", "models"})
CALLER = frozenset({Permission.MODELS_READ, Permission.MODELS_CALL})
"""The permissions of keys from the configuration."""
_SHA256 = re.compile("[0-9a-f]{64}")


class ModelForbidden(HocketError):
    """The key `{name}` may not call the model `{model}`."""

    code = "model_forbidden"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class Key:
    """A key: the tenant its calls belong to (None: whichever the caller names) and the models it
    may call (None: all).

    A platform key has a `bearer`, and its id as its name.
    """

    name: str
    tenant: str | None
    models: frozenset[str] | None = None
    permissions: frozenset[Permission] = CALLER
    requests_per_s: float | None = None
    bearer: Principal | None = None

    def needs(self, permission: Permission) -> None:
        """Raise PermissionMissing if the key lacks a permission."""
        if permission not in self.permissions:
            raise PermissionMissing(key=self.name, permission=str(permission))

    def check(self, model: str) -> None:
        """Raise PermissionMissing, or ModelForbidden if the key may not call the model."""
        self.needs(Permission.MODELS_CALL)
        if self.models is not None and model not in self.models:
            raise ModelForbidden(name=self.name, model=model)


@dataclass(frozen=True, slots=True)
class Access:
    """The keys from the configuration by hash, and whether anyone may call without one."""

    keys: Mapping[str, Key] = field(default_factory=dict)
    open: bool = False

    def key(self, secret: str) -> Key:
        """Return the key of a secret; raise KeyMissing or KeyRefused."""
        if not secret:
            raise KeyMissing
        found = self.keys.get(hashed(secret))
        if found is None:
            raise KeyRefused(reason=UNKNOWN)
        return found


def hashed(secret: str) -> str:
    """Return the hash by which the configuration identifies a key."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def parse_access(section: object, environment: Mapping[str, str]) -> Access:
    """Return the keys of an `access:` section; raise RoutingInvalid."""
    if section is None:
        return Access()
    access = Fields(section, "access", environment)
    access.only({"keys", "open"})
    if "open" in access:
        if "keys" in access:
            raise wrong("access.open", "there are keys as well", "Remove one of them.")
        return Access(open=access.flag("open", default=False))
    keys: dict[str, Key] = {}
    for where, entry in access.items("keys", "List at least one, or remove `access`."):
        found = access.of(entry, where)
        found.only(_KEY_FIELDS)
        sha256 = found.text("sha256").lower()
        if not _SHA256.fullmatch(sha256):
            cure = "Make a key with `hocket gateway key`, which prints its hash."
            raise wrong(found.at("sha256"), "it is not a SHA-256 in hexadecimal", cure)
        if sha256 in keys:
            raise wrong(found.at("sha256"), "another key has it", "Remove one of them.")
        tenant = found.text("tenant") if "tenant" in found else "default"
        if not TOKEN.fullmatch(tenant):
            cure = "Use 1 to 63 letters, digits, `-` or `_`."
            raise wrong(found.at("tenant"), "it is not a name", cure)
        models = found.tags("models") if "models" in found else None
        keys[sha256] = Key(found.name("name"), tenant, models)
    if len(keys) > MAX_KEYS:
        raise wrong("access.keys", "there are too many", f"List up to {MAX_KEYS}.")
    return Access(keys)
