"""`hocket login --device`: a person signs in on another device, at a provider of others; and what a
provider may answer instead."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hocket.cli.remote.device_sign_in import INTERVAL_S, DeviceCode, sign_in_elsewhere
from hocket.cli.remote.identity_provider import ProviderClient, ProviderSignInFailed
from hocket.kit.identity.configured import cli_client_of, token_bearers_of
from hocket.kit.process.settings import Settings
from support.access.issuer import AUDIENCE, BROKEN, Issuer, running_issuer
from support.access.provider_process import (
    CLI_CLIENT,
    CLIENT,
    DEVICES,
    ProviderProcess,
    running_provider,
)
from support.access.terminal import Terminal, terminal_of
from support.rest_rig import Rest, running_rest

BOUND_S = 120


@pytest.fixture(scope="module")
async def provider() -> AsyncIterator[ProviderProcess]:
    async with running_provider(DEVICES) as provider:
        await provider.set_groups("ann", ["builders"])
        yield provider


@pytest.fixture
async def rest(nats_url: str, database_url: str, provider: ProviderProcess) -> AsyncIterator[Rest]:
    settings = Settings(
        oidc_issuer=provider.url,
        oidc_client_id=CLIENT,
        oidc_cli_client_id=CLI_CLIENT,
        oidc_roles={"builders": "developer@acme"},
    )
    tokens, client = token_bearers_of(settings), cli_client_of(settings)
    async with running_rest(nats_url, database_url, tokens=tokens, cli_client=client) as rest:
        yield rest


@pytest.fixture
async def terminal(rest: Rest, tmp_path: Path) -> AsyncIterator[Terminal]:
    async with asyncio.timeout(BOUND_S):
        yield await terminal_of(rest.url, tmp_path)


async def signed_in(
    terminal: Terminal, provider: ProviderProcess, allow: str
) -> tuple[int | None, str, str]:
    """Begin a sign-in in the terminal and answer it elsewhere, after it has asked once in vain."""
    login = await terminal.start("login", "--device")
    assert login.stdout is not None
    told = (await login.stdout.readline()).decode().strip()
    assert told.startswith(f"Open {provider.url}/activate on any device and enter the code ")
    code = told.rpartition(" ")[2]
    whole = (await login.stdout.readline()).decode().strip()
    assert whole == f"or open {provider.url}/activate?user_code={code}"
    await asyncio.sleep(1.5)
    form = {"user_code": code, "sub": "ann", "allow": allow}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{provider.url}/activate", data=form) as reply,
    ):
        assert reply.status == 204
    out, err = await login.communicate()
    return login.returncode, out.decode(), err.decode()


async def test_a_person_signs_in_on_another_device(
    rest: Rest, provider: ProviderProcess, terminal: Terminal
) -> None:
    code, out, err = await signed_in(terminal, provider, "yes")
    assert code == 0, err
    assert f"Signed in to {rest.url} as ann, developer of the tenant acme." in err
    token = terminal.context["key"]
    assert token not in out + err
    assert stat.S_IMODE(terminal.file.stat().st_mode) == 0o600
    code, own, _ = await terminal.run("keys", "own", "--json")
    assert (code, json.loads(own)["name"]) == (0, "ann")


async def test_a_person_who_says_no_is_not_signed_in(
    provider: ProviderProcess, terminal: Terminal
) -> None:
    code, _, err = await signed_in(terminal, provider, "no")
    assert code != 0
    assert "the sign-in was denied at the identity provider" in err
    assert terminal.context["key"] is None


CODE: dict[str, Any] = {
    "device_code": "d",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://login.example/device",
    "expires_in": 600,
    "interval": 2,
}


async def asked(issuer: Issuer, **changed: object) -> tuple[str, list[float], list[DeviceCode]]:
    """Sign in at a provider that the test directs; return how it ended, the pauses, and what was
    shown."""
    issuer.device_code = {name: value for name, value in (CODE | changed).items() if value}
    pauses: list[float] = []
    shown: list[DeviceCode] = []
    client = ProviderClient(issuer.url, AUDIENCE)
    try:
        await asyncio.to_thread(sign_in_elsewhere, client, shown.append, pauses.append)
    except ProviderSignInFailed as error:
        return str(error.fields["reason"]), pauses, shown
    return "", pauses, shown


async def test_a_provider_s_pace_is_kept() -> None:
    async with running_issuer() as issuer:
        issuer.refusals = ["authorization_pending", "slow_down", "authorization_pending"]
        assert await asked(issuer) == (
            "",
            [2.0, 2.0, 2.0 + INTERVAL_S, 2.0 + INTERVAL_S],
            [DeviceCode("https://login.example/device", "WDJB-MJHT", None, 600.0)],
        )
        assert (await asked(issuer, interval=None))[1] == [INTERVAL_S]
        assert (await asked(issuer, interval=0.001))[1] == [1.0]
        assert (await asked(issuer, interval=10**400, expires_in=10**400))[1] == [60.0]


async def test_an_answer_that_is_lost_does_not_end_the_sign_in() -> None:
    """The code stays valid, and is asked for more slowly (RFC 8628, 3.5)."""
    async with running_issuer() as issuer:
        issuer.refusals = ["authorization_pending", "", BROKEN, "authorization_pending"]
        assert (await asked(issuer))[:2] == ("", [2.0, 2.0, 4.0, 8.0, 8.0])


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ("access_denied", "the sign-in was denied at the identity provider"),
        ("expired_token", "the code has expired"),
        ("invalid_client", "the identity provider says: invalid_client"),
    ],
)
async def test_a_refusal_is_told(refusal: str, reason: str) -> None:
    async with running_issuer() as issuer:
        issuer.refusals = ["authorization_pending", refusal]
        assert (await asked(issuer))[0] == reason


@pytest.mark.parametrize(
    "changed",
    [
        {"user_code": None},
        {"user_code": "\x1b]0;me\x07"},
        {"user_code": "W" * 65},
        {"device_code": None},
        {"expires_in": "soon"},
        {"expires_in": float("nan")},
        {"verification_uri": "http://login.example/device"},
        {"verification_uri": "https://login.example/\x1b[2J"},
        {"verification_uri_complete": "javascript:alert(1)"},
    ],
)
async def test_a_code_that_cannot_be_shown_ends_the_sign_in(changed: dict[str, object]) -> None:
    async with running_issuer() as issuer:
        reason, pauses, shown = await asked(issuer, **changed)
        assert reason
        assert (pauses, shown) == ([], [])


async def test_a_code_ends_and_not_each_provider_has_one() -> None:
    async with running_issuer() as issuer:
        assert await asked(issuer, expires_in=1) == (
            "the code has expired",
            [],
            [DeviceCode("https://login.example/device", "WDJB-MJHT", None, 1.0)],
        )
        issuer.device_code = None
        client = ProviderClient(issuer.url, AUDIENCE)
        with pytest.raises(ProviderSignInFailed, match="no sign-in for devices"):
            await asyncio.to_thread(sign_in_elsewhere, client, lambda code: None)
