"""A REST process or a gateway that checks the first key, then trusts requests that ask for it.

Requests ask with `X-Api-Key: trust`, beside their key. The cost of checking keys is measured against
them.

.venv/bin/python -m bench.steps.trusting admin|gateway
"""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from hocket.admin.__main__ import main as admin
from hocket.admin.requests.access_control import AccessControl
from hocket.gateway.api.http.keys import DoorKeys
from hocket.gateway.core.config.access import Key
from hocket.gateway.service import main as gateway
from hocket.kit.access.open_requests import OpenRequests
from hocket.kit.process.lifecycle import run
from hocket.schemas.access.keys import Principal

_known, _open = AccessControl._known, OpenRequests.open
_key, _open_door = DoorKeys.key, DoorKeys.open
_NOTHING = nullcontext()
_bearers: list[Principal] = []
"""The first bearer, and a copy of it that is given to trusted requests."""
_keys: list[Key | None] = []
"""The same for keys."""


def _trusting_known(self: AccessControl, headers: Mapping[str, str]) -> Principal | None:
    if _bearers and headers.get("x-api-key") == "trust":
        return _bearers[1]
    found = _known(self, headers)
    if not _bearers and found is not None:
        _bearers.extend((found, replace(found)))
    return found


def _trusting_open(self: OpenRequests, bearer: Principal) -> AbstractContextManager[None]:
    return _open(self, bearer) if not _bearers or bearer is not _bearers[1] else _NOTHING


async def _trusting_key(self: DoorKeys, headers: Mapping[str, str]) -> Key | None:
    if _keys and headers.get("x-api-key") == "trust":
        return _keys[1]
    found = await _key(self, headers)
    if not _keys:
        _keys.extend((found, replace(found) if found is not None else None))
    return found


def _trusting_door(self: DoorKeys, key: Key | None) -> AbstractContextManager[None]:
    return _open_door(self, key) if key is not _keys[1] else _NOTHING


if __name__ == "__main__":
    AccessControl._known = _trusting_known  # type: ignore[method-assign]
    OpenRequests.open = _trusting_open  # type: ignore[assignment, method-assign]
    DoorKeys.key = _trusting_key  # type: ignore[method-assign]
    DoorKeys.open = _trusting_door  # type: ignore[assignment, method-assign]
    run(sys.argv[1], {"admin": admin, "gateway": gateway}[sys.argv[1]])
