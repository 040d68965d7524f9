"""`hocket login --sso` at an identity provider of others: in, who one is, and out; and what its tokens
must say, and how they are renewed."""

import asyncio
import json
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from hocket.kit.identity.configured import cli_client_of, token_bearers_of
from hocket.kit.process.settings import Settings
from support.access.issuer import AUDIENCE, Issuer, running_issuer
from support.access.provider_process import (
    CLI_CLIENT,
    CLIENT,
    IDPYOIDC,
    ProviderProcess,
    running_provider,
)
from support.access.terminal import Terminal, terminal_of
from support.rest_rig import Rest, running_rest

BOUND_S = 120
GROUPS = {"builders": "developer@acme"}


@pytest.fixture(scope="module")
async def provider() -> AsyncIterator[ProviderProcess]:
    async with running_provider(IDPYOIDC) as provider:  # the other one knows no public clients
        await provider.set_groups("ann", ["builders"])
        yield provider


@pytest.fixture
async def rest(nats_url: str, database_url: str, provider: ProviderProcess) -> AsyncIterator[Rest]:
    settings = Settings(
        oidc_issuer=provider.url,
        oidc_client_id=CLIENT,
        oidc_cli_client_id=CLI_CLIENT,
        oidc_roles=GROUPS,
    )
    tokens, client = token_bearers_of(settings), cli_client_of(settings)
    async with running_rest(nats_url, database_url, tokens=tokens, cli_client=client) as rest:
        yield rest


async def address_of(login: asyncio.subprocess.Process) -> str:
    """Return where a sign-in sends the browser."""
    assert login.stdout is not None
    return (await login.stdout.readline()).decode().strip()


async def visit(address: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(address) as reply:
        return reply.status


@pytest.fixture
async def terminal(rest: Rest, tmp_path: Path) -> AsyncIterator[Terminal]:
    async with asyncio.timeout(BOUND_S):
        yield await terminal_of(rest.url, tmp_path)


async def sign_in(terminal: Terminal, provider: ProviderProcess) -> tuple[str, str]:
    login = await terminal.start("login", "--sso", "--no-browser")
    back = await provider.agree(await address_of(login), "ann")
    assert await visit(back) == 200
    out, err = await login.communicate()
    assert login.returncode == 0, err
    return out.decode(), err.decode()


async def test_a_person_signs_in_by_browser_and_out_again(
    rest: Rest, provider: ProviderProcess, terminal: Terminal
) -> None:
    out, err = await sign_in(terminal, provider)
    assert f"Signed in to {rest.url} as ann, developer of the tenant acme." in err
    token = terminal.context["key"]
    assert stat.S_IMODE(terminal.file.stat().st_mode) == 0o600
    assert token not in out + err
    code, own, _ = await terminal.run("keys", "own", "--json")
    assert (code, json.loads(own)["name"]) == (0, "ann")
    code, _, err = await terminal.run("logout")
    assert code == 0, err
    assert token not in terminal.file.read_text()
    assert (await terminal.run("keys", "own"))[0] != 0


async def test_a_browser_that_was_sent_by_somebody_else_signs_nobody_in(
    provider: ProviderProcess, terminal: Terminal
) -> None:
    login = await terminal.start("login", "--sso", "--no-browser")
    address = await address_of(login)
    back = parse_qs(urlsplit(address).query)["redirect_uri"][0]
    assert await visit(f"{back}?code=stolen&state=guessed") == 200
    assert await visit(back.replace("/callback", "/elsewhere")) == 404
    assert login.returncode is None, "it waits for its own"
    assert await visit(await provider.agree(address, "ann")) == 200
    _, err = await login.communicate()
    assert login.returncode == 0, err


@asynccontextmanager
async def at_issuer(
    nats_url: str, database_url: str, home: Path
) -> AsyncIterator[tuple[Issuer, Terminal]]:
    """Run a platform with a provider whose tokens are the test's to say, and a terminal."""
    async with running_issuer() as issuer:
        settings = Settings(
            oidc_issuer=issuer.url,
            oidc_client_id="console",
            oidc_cli_client_id=AUDIENCE,
            oidc_roles={"team": "viewer@acme"},
        )
        tokens, client = token_bearers_of(settings), cli_client_of(settings)
        async with (
            running_rest(nats_url, database_url, tokens=tokens, cli_client=client) as rest,
            asyncio.timeout(BOUND_S),
        ):
            yield issuer, await terminal_of(rest.url, home)


async def came_back(issuer: Issuer, terminal: Terminal, **fault: object) -> tuple[int | None, str]:
    """Sign in with an ID token that has a fault; return how the command ended, and its errors."""
    login = await terminal.start("login", "--sso", "--no-browser")
    asked = parse_qs(urlsplit(await address_of(login)).query)
    issuer.id_claims = {"nonce": asked["nonce"][0]} | fault
    await visit(f"{asked['redirect_uri'][0]}?code=c&state={asked['state'][0]}")
    _, err = await login.communicate()
    return login.returncode, err.decode()


async def test_what_an_id_token_must_say(nats_url: str, database_url: str, tmp_path: Path) -> None:
    async with at_issuer(nats_url, database_url, tmp_path) as (issuer, terminal):
        faults: dict[str, dict[str, object]] = {
            "another nonce": {"nonce": "0" * 32},
            "no nonce": {"nonce": None},
            "another client": {"aud": "other"},
            "another issuer": {"iss": "https://evil.example"},
            "no end": {"exp": None},
        }
        for name, fault in faults.items():
            code, err = await came_back(issuer, terminal, **fault)
            assert code != 0, name
            assert "You are not signed in" in err, name
            assert terminal.context["key"] is None, name
        code, err = await came_back(issuer, terminal)
        assert code == 0, err
        assert terminal.context["key"] is not None


async def test_a_token_that_ends_is_renewed_and_kept(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with at_issuer(nats_url, database_url, tmp_path) as (issuer, terminal):
        issuer.refresh_token = "r"
        assert (await came_back(issuer, terminal))[0] == 0
        assert terminal.context["refresh_token"] == "r"
        issuer.id_claims = {"exp": int(time.time()) + 3_000, "preferred_username": "ann again"}
        terminal.change(expires_at=str(time.time()))
        code, own, err = await terminal.run("keys", "own", "--json")
        assert (code, json.loads(own)["name"]) == (0, "ann again"), err
        assert terminal.context["refresh_token"] == "r+", "each is good once"
        assert float(terminal.context["expires_at"]) > time.time() + 2_000
        assert stat.S_IMODE(terminal.file.stat().st_mode) == 0o600
        assert (await terminal.run("keys", "own"))[0] == 0, "it is not renewed each time"
        assert terminal.context["refresh_token"] == "r+"
        terminal.change(expires_at=str(time.time()))
        both = await asyncio.gather(*(terminal.run("keys", "own") for _ in range(3)))
        assert [(code, err) for code, _, err in both] == [(0, "")] * 3
        assert terminal.context["refresh_token"] == "r++", "one of them renewed it"
        issuer.refresh_token = None
        terminal.change(expires_at=str(time.time()))
        code, _, err = await terminal.run("keys", "own")
        assert code != 0
        assert "hocket login --sso" in err


async def test_a_platform_without_a_provider_says_so(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with running_rest(nats_url, database_url) as rest, asyncio.timeout(BOUND_S):
        terminal = Terminal(tmp_path)
        await terminal.run("context", "add", "work", rest.url)
        code, _, err = await terminal.run("--context", "work", "login", "--sso")
        assert code != 0
        assert "HOCKET_OIDC_CLI_CLIENT_ID" in err


async def test_a_key_goes_to_no_other_platform_than_the_named_one(tmp_path: Path) -> None:
    terminal = await terminal_of("http://127.0.0.1:9", tmp_path)
    for named in (("--api", "http://127.0.0.1:10"), ("--data-dir", str(tmp_path))):
        for command in (("login",), ("logout", "--revoke")):
            code, _, err = await terminal.run(*named, *command)
            assert (code, named[1] in err) == (2, True)
            assert "a key is stored only with a context" in err
