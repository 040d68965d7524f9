"""Decides which keys may connect to NATS, and what they may do there (NATS' auth callout, ADR-26).

A server asks about each connection that does not belong to one of its own users. The answer is a token
for that connection with the permissions of the key (`schemas/access/nats_table.py`); it expires with the
key, or with the secret that was presented. Each question is answered by one of the REST processes, from
memory.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog
from nats.aio.msg import Msg

from hocket.admin.nats_access.connection_limit import ConnectionLimit
from hocket.admin.nats_access.message_rates import MessageRates
from hocket.kit.access.key_book import KeyBook
from hocket.kit.access.nkeys import AccountKey, claims_of
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas.access.keys import KeyRefused, Principal, hashed, parts_of
from hocket.schemas.access.nats_table import GUEST_ACCOUNT, of_bearer
from hocket.schemas.errors import HocketError

SUBJECT = "$SYS.REQ.USER.AUTH"
QUEUE = "access"
MAX_ANSWERING = 512
"""Questions processed at once; others are not answered, and their clients retry."""
MARK_CHARS = 16
"""Characters kept of the hash of the secret with which a connection was opened."""
USER = "key"
UNLIMITED = -1

log = structlog.get_logger(__name__)


class Callout:
    """Answers the servers' questions while `open`. `bus` is connected as the user `access`."""

    def __init__(
        self,
        bus: Bus,
        key: AccountKey,
        book: KeyBook,
        limit: ConnectionLimit,
        rates: MessageRates,
    ) -> None:
        self._bus = bus
        self._key = key
        self._book = book
        self._limit = limit
        self._rates = rates
        self._answering: set[asyncio.Task[None]] = set()
        self._reporting = Reporting()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer until the block ends."""
        asked = await self._bus.subscribe(SUBJECT, self._on_asked, queue=QUEUE)
        try:
            yield
        finally:
            await asked.unsubscribe()
            await stop_tasks(self._answering)

    async def _on_asked(self, message: Msg) -> None:
        if len(self._answering) >= MAX_ANSWERING:
            if count := self._reporting.due("busy"):
                log.warning("connections_not_answered", limit=MAX_ANSWERING, count=count)
            return
        task = asyncio.create_task(self._answer(message), name="connection asked")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, message: Msg) -> None:
        try:
            asked = claims_of(message.data)["nats"]
            user, server = asked["user_nkey"], asked["server_id"]["id"]
            shown = _shown_key(asked["connect_opts"])
        except (ValueError, KeyError, TypeError) as error:
            if count := self._reporting.due("malformed"):
                log.warning("connection_malformed", reason=repr(error), count=count)
            return
        told: dict[str, Any] = {"type": "authorization_response", "version": 2}
        try:
            bearer = await self._book.bearer(shown)
            told["jwt"] = self._user(user, bearer, shown)
        except HocketError as error:
            told["error"] = str(error)[:200]
            if count := self._reporting.due("refused"):
                host = str(asked.get("client_info", {}).get("host", ""))[:64]
                log.info("connection_refused", reason=error.code, address=host, count=count)
        answer = self._key.token({"sub": user, "aud": server, "nats": told})
        self._bus.publish_nowait(message.reply, answer.encode())

    def _user(self, user: str, bearer: Principal, shown: str) -> str:
        """Return the token for a connection."""
        may = of_bearer(bearer)
        if may is None:
            raise KeyRefused(reason=f"the role `{bearer.role}` has no permissions on NATS")
        parts = parts_of(shown)
        assert parts is not None, "the book has looked"
        self._rates.check(bearer)
        self._limit.take(bearer)
        until_s = bearer.counts_until_s(parts[1])
        claims: dict[str, Any] = {
            "sub": user,
            "aud": GUEST_ACCOUNT,
            "name": f"{USER}:{bearer.key_id}:{hashed(parts[1]).hex()[:MARK_CHARS]}",
            "nats": {
                "type": "user",
                "version": 2,
                "subs": UNLIMITED,
                "data": UNLIMITED,
                "payload": UNLIMITED,
                "pub": {"allow": may.publish},
                "sub": {"allow": may.subscribe},
            },
        }
        if until_s != float("inf"):
            claims["exp"] = int(until_s) + 1
        return self._key.token(claims)


def _shown_key(options: Mapping[str, Any]) -> str:
    """Return the key that a connection presents: as token, as password of any user, or as user name."""
    for name in ("auth_token", "pass", "user"):
        if isinstance(text := options.get(name), str) and parts_of(text) is not None:
            return text
    return ""
