"""Who may come in: keys, of which the configuration knows only hashes.

Without keys everybody may, as whoever they say they are; that is for a loopback address or a network
of one's own.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hocket.gateway.core.config.fields import Fields, wrong
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.subjects import TOKEN

KEY_PREFIX = "hk-"
MAX_KEYS = 100_000
_KEY_FIELDS = frozenset({"name", "sha256", "tenant", "models"})
_SHA256 = re.compile("[0-9a-f]{64}")


class KeyRefused(HocketError):
    """{reason}. Send a key of this gateway as `Authorization: Bearer KEY`."""

    code = "invalid_api_key"
    error_class = ErrorClass.INVALID


class ModelForbidden(HocketError):
    """The key `{name}` is not for the model `{model}`."""

    code = "model_forbidden"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class Key:
    """Whose calls come with a key, and which models it is for (None: all)."""

    name: str
    tenant: str
    models: frozenset[str] | None = None

    def check(self, model: str) -> None:
        """Raise ModelForbidden where the key is not for a model."""
        if self.models is not None and model not in self.models:
            raise ModelForbidden(name=self.name, model=model)


@dataclass(frozen=True, slots=True)
class Access:
    """The keys by their hash; where there are none, nobody needs one."""

    keys: Mapping[str, Key] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether everybody may come in."""
        return not self.keys

    def key(self, authorization: str) -> Key | None:
        """Return the key of a request, None where none is needed; raise KeyRefused."""
        if self.open:
            return None
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise KeyRefused(reason="There is no key")
        found = self.keys.get(hashed(secret.strip()))
        if found is None:
            raise KeyRefused(reason="The key is not known")
        return found


def hashed(secret: str) -> str:
    """Return what the configuration knows of a key."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def parse_access(section: object, environment: Mapping[str, str]) -> Access:
    """Return the keys of an `access:` section; raise RoutingInvalid."""
    if section is None:
        return Access()
    access = Fields(section, "access", environment)
    access.only({"keys"})
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
        raise wrong("access.keys", "they are too many", f"List up to {MAX_KEYS}.")
    return Access(keys)
