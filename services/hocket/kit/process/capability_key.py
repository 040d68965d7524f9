"""Where the key for capabilities comes from: `HOCKET_CAPABILITY_KEY`, or Postgres.

In Postgres, the first process that asks creates one for all. Workers never get it.
"""

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
    """Return the capabilities with the key in the settings; None without one."""
    if settings.capability_key is None:
        return None
    return Capabilities(keys_of(settings.capability_key.get_secret_value()))


def usage_seals_of(settings: Settings) -> Capabilities | None:
    """Return what seals usage records: with HOCKET_USAGE_KEY, or with the key that is derived from
    HOCKET_CAPABILITY_KEY; None without either."""
    if settings.usage_key is not None:
        return Capabilities(keys_of(settings.usage_key.get_secret_value()))
    if settings.capability_key is None:
        return None
    return Capabilities(keys_of(usage_key_of(settings.capability_key.get_secret_value())))


async def platform_capabilities(settings: Settings, pool: "asyncpg.Pool") -> Capabilities:
    """Return the capabilities with the key in the settings, or with that in Postgres, which is created
    if there is none."""
    given = capabilities_of(settings)
    if given is not None:
        return given
    key = await pool.fetchval(_READ)
    if key is None:
        await pool.execute(_MAKE, secrets.token_bytes(_KEY_BYTES))
        key = await pool.fetchval(_READ)
    return Capabilities([key])
