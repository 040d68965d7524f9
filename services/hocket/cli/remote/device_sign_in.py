"""Signs a person in at an identity provider from a machine without a browser: the person opens a page on
another device and enters a code there (the device authorization grant, RFC 8628)."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hocket.cli.remote.identity_provider import (
    SCOPE,
    ProviderClient,
    ProviderRefused,
    ProviderSignInFailed,
    ProviderSilent,
    ProviderTokens,
    asked,
    metadata_of,
    safe,
    tokens_of,
)

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
MAX_WAIT_S = 1_800.0
INTERVAL_S = 5.0
"""The pause between two questions to a provider that names none, and what `slow_down` adds (RFC 8628,
3.2 and 3.5)."""
MIN_INTERVAL_S, MAX_INTERVAL_S = 1.0, 60.0
MAX_CODE_CHARS = 64
_WAITS = ("authorization_pending", "slow_down", "")
"""Refusals after which one asks again; something before the provider, such as a proxy, gives no code."""
_REASONS = {
    "access_denied": "the sign-in was denied at the identity provider",
    "expired_token": "the code has expired",
}


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """Where a person signs in, the code to enter there, and how long it is valid. `whole_address`
    includes the code, if the provider has such an address."""

    address: str
    code: str
    whole_address: str | None
    lasts_s: float


@dataclass(frozen=True, slots=True)
class _Begun:
    shown: DeviceCode
    device_code: str
    interval_s: float


def sign_in_elsewhere(
    client: ProviderClient,
    show: Callable[[DeviceCode], None],
    sleep: Callable[[float], None] = time.sleep,
) -> ProviderTokens:
    """Sign a person in on another device; `show` tells them where, and the code. Raises
    ProviderSignInFailed."""
    metadata = metadata_of(client)
    if metadata.device_endpoint is None:
        raise ProviderSignInFailed(reason="the identity provider has no sign-in for devices")
    form = {"client_id": client.client_id, "scope": metadata.offline.get("scope", SCOPE)}
    begun = _begun(client, asked(metadata.device_endpoint, form))
    show(begun.shown)
    form = {
        "grant_type": GRANT,
        "device_code": begun.device_code,
        "client_id": client.client_id,
    }
    fault: ProviderSignInFailed | None = None
    interval_s, until_s = begun.interval_s, time.monotonic() + begun.shown.lasts_s
    while time.monotonic() + interval_s < until_s:
        sleep(interval_s)
        try:
            answer = asked(metadata.token_endpoint, form)
        except ProviderRefused as error:
            if error.error in _REASONS:
                raise ProviderSignInFailed(reason=_REASONS[error.error]) from error
            if error.error not in _WAITS:
                raise
            fault = None if error.error else error
            if error.error == "slow_down":
                interval_s += INTERVAL_S
        except ProviderSilent as error:
            fault = error
        else:
            return tokens_of(client, answer, nonce=None)
        if fault is not None:  # the code is still valid
            interval_s = min(2 * interval_s, MAX_INTERVAL_S)
    raise fault or ProviderSignInFailed(reason="the code has expired")


def _begun(client: ProviderClient, answer: Mapping[str, Any]) -> _Begun:
    """Return the sign-in that a provider began; raise ProviderSignInFailed."""
    address, code = answer.get("verification_uri"), answer.get("user_code")
    device_code, lasts_s = answer.get("device_code"), answer.get("expires_in")
    if not (
        isinstance(address, str)
        and isinstance(code, str)
        and 0 < len(code) <= MAX_CODE_CHARS
        and code.isprintable()
        and isinstance(device_code, str)
        and isinstance(lasts_s, int | float)
        and lasts_s > 0
    ):
        raise ProviderSignInFailed(reason="the identity provider gave no code for a device")
    whole = answer.get("verification_uri_complete")
    interval_s = answer.get("interval", INTERVAL_S)
    if not (isinstance(interval_s, int | float) and interval_s > 0):
        interval_s = INTERVAL_S
    return _Begun(
        DeviceCode(
            safe(address, client.issuer),
            code,
            safe(whole, client.issuer) if isinstance(whole, str) else None,
            float(min(lasts_s, MAX_WAIT_S)),
        ),
        device_code,
        float(min(max(interval_s, MIN_INTERVAL_S), MAX_INTERVAL_S)),
    )
