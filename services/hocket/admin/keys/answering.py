"""Answers key lookups over NATS for processes without a database connection (gateways).

Each question is answered by one of the REST processes. Only sealed questions are answered, and an answer
is sealed for its question, so that it cannot be replayed. Without a sealing key, nothing is answered.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from nats.aio.msg import Msg
from pydantic import ValidationError

from hocket.kit.access.key_source import DatabaseKeys
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import subjects
from hocket.schemas.access.key_messages import KeysAsked, KeysTold
from hocket.schemas.capabilities import SEAL, Capabilities, answer_to
from hocket.schemas.errors import PayloadTooLarge

QUEUE = "admin"
MAX_ANSWERING = 64
"""Questions looked up at once; further ones are not answered."""
ANSWER_TIMEOUT_S = 5.0
"""How long an answer may take, with the wait for a connection: whoever asked has given up before."""
UNTOLD: tuple[type[Exception], ...] = (*STATEMENT_ERRORS, PayloadTooLarge)
"""Why a question may get no answer."""

log = structlog.get_logger(__name__)
_reporting = Reporting()


class KeysDoor:
    """Answers key lookups while `open`."""

    def __init__(self, bus: Bus, keys: DatabaseKeys, seals: Capabilities | None) -> None:
        self._bus = bus
        self._keys = keys
        self._seals = seals
        self._answering: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer until the block ends."""
        asked = await self._bus.subscribe(subjects.ACCESS_KEYS, self._on_asked, queue=QUEUE)
        try:
            yield
        finally:
            await asked.unsubscribe()
            await stop_tasks(self._answering)

    async def _on_asked(self, message: Msg) -> None:
        if self._seals is None or not message.reply or len(self._answering) >= MAX_ANSWERING:
            return
        seal = (message.headers or {}).get(SEAL, "")
        if not self._seals.is_sealed(seal, subjects.ACCESS_KEYS, message.data):
            if count := _reporting.due("keys_asked_unsealed"):
                log.warning("keys_asked_unsealed", count=count)
            return
        try:
            asked = KeysAsked.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("keys_asked_malformed"):
                log.warning("keys_asked_malformed", faults=error.error_count(), count=count)
            return
        task = asyncio.create_task(self._answer(message, asked, self._seals), name="keys asked")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, message: Msg, asked: KeysAsked, seals: Capabilities) -> None:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                told = await self._told(asked)
            body = told.model_dump_json().encode()
            seal = seals.seal(answer_to(subjects.ACCESS_KEYS, message.data), body)
            self._bus.respond(message.reply, body, {SEAL: seal})
        except UNTOLD as error:
            if count := _reporting.due("keys_not_told"):
                log.warning("keys_not_told", reason=repr(error), count=count)

    async def _told(self, asked: KeysAsked) -> KeysTold:
        if asked.used:
            await self._keys.note_used(asked.used)
        told = await self._keys.page(asked.after, whole=asked.whole)
        keys = tuple(key.model_copy(update={"groups": ()}) for key in told.keys)
        told = told.model_copy(update={"keys": keys})
        if asked.grants_after is not None:
            changed = await self._keys.grants(asked.grants_after)
            told = told.model_copy(update={"grants": tuple(changed)})
        return told
