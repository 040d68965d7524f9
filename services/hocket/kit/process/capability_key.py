"""Where the key of the capabilities comes from: `HOCKET_CAPABILITY_KEY`, else Postgres, where the first
process that asks makes one for all. Workers never get it."""

import secrets
from typing import TYPE_CHECKING

from hocket.kit.process.settings import Settings
from hocket.schemas.capabilities import Capabilities, keys_of, usage_key_of

if TYPE_CHECKING:
    import asyncpg

_KEY_BYTES = 32
_MAKE = "INSERT INTO hocket.platform_key (key) VALUES ($1) ON CONFLICT DO NOTHING"
_READ = "SELECT key FROM hocket.platform_key"


def capabilities_of(settings: Settings) -> Capabilities | None:
    """Return the capabilities of the setting; None without one."""
    if settings.capability_key is None:
        return None
    return Capabilities(keys_of(settings.capability_key.get_secret_value()))


def usage_seals_of(settings: Settings) -> Capabilities | None:
    """Return what seals usage records: by HOCKET_USAGE_KEY, else by the key that follows from
    HOCKET_CAPABILITY_KEY; None without either."""
    if settings.usage_key is not None:
        return Capabilities(keys_of(settings.usage_key.get_secret_value()))
    if settings.capability_key is None:
        return None
    return Capabilities(keys_of(usage_key_of(settings.capability_key.get_secret_value())))


async def platform_capabilities(settings: Settings, pool: "asyncpg.Pool") -> Capabilities:
    """Return the capabilities of the setting, or of the key in Postgres, which is made where there is
    none."""
    given = capabilities_of(settings)
    if given is not None:
        return given
    key = await pool.fetchval(_READ)
    if key is None:
        await pool.execute(_MAKE, secrets.token_bytes(_KEY_BYTES))
        key = await pool.fetchval(_READ)
    return Capabilities([key])
