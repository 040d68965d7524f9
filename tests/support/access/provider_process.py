"""Third-party identity providers, each in its own process, and a person's sign-in at one."""

import asyncio
import base64
import hashlib
import json
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp

BOUND_S = 60.0
MOCK = "oidc_provider_mock"
"""Based on Authlib; its access tokens are opaque."""
IDPYOIDC = "support.access.idpyoidc_provider"
DEVICES = "support.access.device_provider"
CLIENT = "hocket"
CLI_CLIENT = "hocket-cli"
"""The command line: a public client, redirected to any port of the loopback interface."""
SECRET = "secret-of-the-client"
BASIC = {"Authorization": "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()}
CALLBACK = "http://127.0.0.1:9/callback"
PUBLIC_URL = "http://127.0.0.1:9"
CONSOLE_CALLBACK = f"{PUBLIC_URL}/console/sign-in/callback"
"""Where people return who were sent by a console with this public address."""


class ProviderProcess:
    """A provider under test; `url` is its issuer. With each start it generates new keys and forgets all
    users."""

    def __init__(self, module: str, port: int, shown: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._command = (sys.executable, "-m", module, "--port", str(port))
        self._shown = shown
        """Which of its tokens is presented to us."""
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(BOUND_S):
            while not await _answers(self):
                assert self._process.returncode is None, "the provider ended"
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """Kill it, and wait until it has ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def token(self, person: str) -> str:
        """Return the token of a person who has signed in."""
        return str((await self.tokens(person))[self._shown])

    async def set_groups(self, person: str, groups: list[str]) -> None:
        """Set a person's groups."""
        claims = {"groups": groups, "preferred_username": person}
        async with (
            aiohttp.ClientSession() as session,
            session.put(f"{self.url}/users/{person}", json=claims) as reply,
        ):
            assert reply.status == 204, await reply.text()

    async def metadata(self) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/.well-known/openid-configuration") as reply,
        ):
            return dict(await reply.json())

    async def agree(self, address: str, person: str) -> str:
        """Sign in as a person at the address of a redirect; return the address of the redirect back."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(address, data={"sub": person}, allow_redirects=False) as reply,
        ):
            assert reply.status in (302, 303), await reply.text()
            return reply.headers["Location"]

    async def tokens(self, person: str) -> dict[str, Any]:
        """Return the tokens that a client receives after a person has signed in."""
        metadata = await self.metadata()
        verifier = secrets.token_urlsafe(32)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        asked = {
            "client_id": CLIENT,
            "response_type": "code",
            "redirect_uri": CALLBACK,
            "scope": "openid profile",
            "state": "s",
            "nonce": "n",
            "code_challenge": challenge.decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        back = await self.agree(f"{metadata['authorization_endpoint']}?{query}", person)
        code = parse_qs(urlsplit(back).query)["code"][0]
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": CALLBACK,
            "code_verifier": verifier,
        }
        async with (
            aiohttp.ClientSession() as session,
            session.post(metadata["token_endpoint"], data=form, headers=BASIC) as reply,
        ):
            assert reply.status == 200, await reply.text()
            return dict(await reply.json())


@asynccontextmanager
async def running_provider(
    module: str = MOCK, shown: str = "id_token"
) -> AsyncIterator[ProviderProcess]:
    """Run a provider in its own process until the block ends; `shown` is which of its tokens is
    presented to us."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    provider = ProviderProcess(module, port, shown)
    try:
        await provider.start()
        yield provider
    finally:
        await provider.kill()


async def _answers(provider: ProviderProcess) -> bool:
    try:
        return bool((await provider.metadata())["issuer"])
    except (aiohttp.ClientError, json.JSONDecodeError):
        return False
