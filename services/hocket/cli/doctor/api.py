"""The check of the REST API by `hocket doctor`: whether Hocket answers there, and accepts the key."""

import asyncio

from hocket.cli.doctor.findings import Finding, Verdict
from hocket.cli.remote.target import Target
from hocket.cli.terminal.errors import ApiRefused, ApiUnreachable
from hocket.schemas.errors import HocketError

TIMEOUT_S = 5.0
NAME = "api"
OWN_KEY = "/v1/keys/own"
OF_ADDRESS = "Start it (python -m hocket.admin), or correct --api, HOCKET_API_URL or the context."
OF_KEY = "Set HOCKET_API_KEY to a key of this platform, or sign in again: hocket login."


async def look_at_api(target: Target) -> list[Finding]:
    """Ask the API whose key this is; empty if no API is known."""
    if target.api_url is None:
        return []
    try:
        own = await asyncio.to_thread(target.api(timeout_s=TIMEOUT_S).get, OWN_KEY)
        told = (
            f"{target.api_url}, as {own['name']}, {own['role']} of {own['tenant'] or 'all tenants'}"
        )
    except ApiRefused as error:
        return [Finding(NAME, Verdict.FAILED, f"{target.api_url}: {error}", OF_KEY)]
    except ApiUnreachable as error:
        found = f"{target.api_url}: {error.fields['reason']}"
        return [Finding(NAME, Verdict.FAILED, found, OF_ADDRESS)]
    except HocketError as error:
        return [Finding(NAME, Verdict.FAILED, str(error))]
    except (LookupError, TypeError):
        found = f"{target.api_url}: this is not how Hocket answers"
        return [Finding(NAME, Verdict.FAILED, found, OF_ADDRESS)]
    return [Finding(NAME, Verdict.OK, told)]
