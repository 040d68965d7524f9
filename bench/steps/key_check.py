"""Measure what checking a key costs a request, from what a process holds in memory, without servers.

Each kind is measured over `--keys` keys: the book alone (`book`); a previous secret while a key is
being rotated (`former`); a token of an identity provider whose signature was verified before (`token`);
and the whole way through REST's access control to an endpoint that does nothing (`door`, and
`door-token`), minus the same call without access control. Kinds alternate, so that all are exposed to
the same state of the machine. Every check must name a bearer: the bench fails if one is refused.

Printed are the CPU microseconds per check, the best and the median of all rounds, one line of JSON for
each kind. The exit code is 1 if a median exceeds MOST_US.

    .venv/bin/python -m bench.steps.key_check --keys 1000 --rounds 21
"""

import argparse
import asyncio
import json
import secrets
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from joserfc import jws
from joserfc.jwk import RSAKey
from starlette.types import Message, Receive, Scope, Send

from bench.support.machine import machine_text
from hocket.admin.app import DEFAULT_WEB_RULES
from hocket.admin.console.sessions import Sessions
from hocket.admin.requests.access_control import AccessControl
from hocket.admin.requests.identity import BEARER
from hocket.kit.access.key_book import KeyBook
from hocket.kit.identity.bearers import TokenBearers
from hocket.kit.identity.configured import token_bearers_of
from hocket.kit.process.settings import Settings
from hocket.schemas.access.key_messages import KeyRow, KeysTold
from hocket.schemas.access.keys import hashed, key_text

MOST_US = 50.0
PER_S = 1e9
"""A rate limit that is never reached."""
FORMER_FOR_S = 86_400.0
CLIENT_ID = "hocket"

Check = Callable[[str], Awaitable[object]]


class KeysMissing(Exception):
    """A check did not name the bearer of its key."""


class Keys:
    """A number of keys, delivered in one page; each is being rotated, so that two secrets are valid."""

    def __init__(self, count: int) -> None:
        until_s = time.time() + FORMER_FOR_S
        rows, self.present, self.former = [], [], []
        for number in range(count):
            key_id, secret, former = f"{number:012x}", secrets.token_hex(32), secrets.token_hex(32)
            self.present.append(key_text(key_id, secret))
            self.former.append(key_text(key_id, former))
            rows.append(
                KeyRow(
                    key_id=key_id,
                    name=f"key {number}",
                    tenant="acme",
                    role="developer",
                    secret_sha256=hashed(secret).hex(),
                    former_sha256=hashed(former).hex(),
                    former_until_s=until_s,
                    change=number + 1,
                )
            )
        self._told = KeysTold(keys=tuple(rows), last=count)

    async def page(self, after: int, *, whole: bool) -> KeysTold:
        return self._told if whole or after < self._told.last else KeysTold(keys=(), last=after)

    async def note_used(self, _used: Mapping[str, float]) -> None:
        return


class Door:
    """REST's access control in front of an endpoint that does nothing, or that endpoint alone."""

    def __init__(self, book: KeyBook, tokens: TokenBearers) -> None:
        self._guarded = AccessControl(
            _endpoint,
            book=book,
            web=DEFAULT_WEB_RULES,
            public=(),
            per_s=PER_S,
            sessions=Sessions(book, None),
            tokens=tokens,
        )

    async def guarded(self, key: str) -> object:
        """Call the endpoint through access control; return the bearer."""
        scope = _scope(key)
        await self._guarded(scope, _receive, _send)
        return scope.get(BEARER)

    async def alone(self, key: str) -> object:
        """Call the endpoint directly."""
        await _endpoint(_scope(key), _receive, _send)
        return key


async def main(options: argparse.Namespace) -> int:
    """Measure all kinds in alternation; return the exit code."""
    print(machine_text(), file=sys.stderr)
    keys = Keys(options.keys)
    book = KeyBook(keys)
    async with _provider() as (tokens, token), book.running():
        await book.bearer(keys.present[-1])
        texts = [token] * options.keys
        door = Door(book, tokens)
        kinds: dict[str, tuple[Check, Sequence[str]]] = {
            "book": (book.bearer, keys.present),
            "former": (book.bearer, keys.former),
            "token": (lambda text: tokens.bearer(text, None), texts),
            "alone": (door.alone, keys.present),
            "door": (door.guarded, keys.present),
            "door-token": (door.guarded, texts),
        }
        took_us: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(options.rounds):
            for name, (check, shown) in kinds.items():
                took_us[name].append(await _timed(check, shown))
    alone_us = took_us.pop("alone")
    for name in ("door", "door-token"):
        took_us[name] = [us - less for us, less in zip(took_us[name], alone_us, strict=True)]
    is_little = [_told(name, options.keys, found) for name, found in took_us.items()]
    return int(not all(is_little))


async def _timed(check: Check, shown: Sequence[str]) -> float:
    """Return the CPU time of a check in microseconds; raise KeysMissing if a check names no bearer."""
    began_ns = time.process_time_ns()
    for text in shown:
        if await check(text) is None:
            raise KeysMissing("a check named no bearer")
    return (time.process_time_ns() - began_ns) / 1_000 / len(shown)


def _told(name: str, keys: int, found: Sequence[float]) -> bool:
    """Print what a kind of check costs; return whether it is within the limit."""
    median = statistics.median(found)
    us = {"best": round(min(found), 1), "median": round(median, 1)}
    print(json.dumps({"check": name, "keys": keys, "us": us}), flush=True)
    return median <= MOST_US


async def _endpoint(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


def _scope(key: str) -> Scope:
    """Return a request as an ASGI server passes it in."""
    headers = [
        (b"host", b"127.0.0.1:8080"),
        (b"authorization", f"Bearer {key}".encode()),
        (b"content-type", b"application/json"),
    ]
    return {
        "type": "http",
        "method": "POST",
        "path": "/v1/runs",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
    }


async def _receive() -> Message:
    return {"type": "http.request"}


async def _send(message: Message) -> None:
    if message.get("status", 204) != 204:
        raise KeysMissing(f"access control answered {message['status']}")


@asynccontextmanager
async def _provider() -> AsyncIterator[tuple[TokenBearers, str]]:
    """Serve an identity provider; yield its verifier of tokens, and a token that was presented once."""
    key = RSAKey.generate_key(2048, {"kid": "bench"})
    app = web.Application()
    runner = web.AppRunner(app)

    async def metadata(_request: web.Request) -> web.Response:
        return web.json_response({"issuer": url, "jwks_uri": f"{url}/keys"})

    async def keys(_request: web.Request) -> web.Response:
        return web.json_response({"keys": [key.as_dict(private=False)]})

    app.router.add_get("/.well-known/openid-configuration", metadata)
    app.router.add_get("/keys", keys)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    tokens = token_bearers_of(
        Settings(oidc_issuer=url, oidc_client_id=CLIENT_ID, oidc_roles={"team": "developer@acme"})
    )
    assert tokens is not None, "an issuer is named"
    claims = {"iss": url, "aud": CLIENT_ID, "sub": "ann", "exp": time.time() + 3_600,
              "groups": ["team"]}  # fmt: skip
    token = jws.serialize_compact({"alg": "RS256", "kid": "bench"}, json.dumps(claims), key)
    try:
        await tokens.bearer(token, None)
        yield tokens, token
    finally:
        await tokens.provider.close()
        await runner.cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=21)
    sys.exit(asyncio.run(main(parser.parse_args())))
