"""Checks whether a NATS server can write its streams, and restarts it when writing is possible again.

A stream that met a full disk (or a disk error) keeps its write error until the server is restarted,
however much room there is by then: it accepts no messages and answers no publishers. So the server is
asked every CHECK_EVERY_S for its streams' health, over its system account, whose password is stored only
in the server's configuration. If a stream reports a write error and the folder can be written, the
server is stopped gracefully, and supervision starts it again. What was acknowledged is on disk; the rest
is published again by its publishers.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog
from nats.errors import Error as NatsError

from hocket.kit.nats.connection.cancellable_client import CancellableClient
from hocket.kit.process.task_stop import stop_tasks

CHECK_EVERY_S = 1.0
CHECK_TIMEOUT_S = 2.0
RESTART_AT_MOST_EVERY_S = 5.0
"""Pause after a restart, in case a stream still has a write error."""
WRITE_ERROR = "write error"
"""The text by which the server reports a stream that refuses to write after an error."""
ROOM_BYTES = 4 * 1024 * 1024
"""Free space that is required before the server is restarted because of a write error."""

log = structlog.get_logger(__name__)


class WriteCheck:
    """The check of one server. `url` returns the URL of its system account; `restart` restarts it."""

    def __init__(
        self,
        name: str,
        store_dir: Path,
        *,
        url: Callable[[], str],
        restart: Callable[[], Awaitable[None]],
    ) -> None:
        self._name = name
        self._store_dir = store_dir
        self._url = url
        self._restart = restart
        self._checking: asyncio.Task[None] | None = None
        self.error = ""
        """The write error that a stream reports; empty while all is well."""

    def start(self) -> None:
        """Start checking."""
        if self._checking is None:
            self._checking = asyncio.create_task(self._check(), name=f"check-{self._name}")

    async def stop(self) -> None:
        """Stop checking."""
        checking, self._checking = self._checking, None
        if checking is not None:
            await stop_tasks([checking])

    async def _check(self) -> None:
        """Check for write errors until cancelled, and restart the server when it can write again."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                await self._check_once()
            except Exception as error:  # the server may have died since it answered
                log.warning("server_write_check_failed", server=self._name, reason=repr(error))

    async def _check_once(self) -> None:
        found = await self._found_write_error()
        if found is None:
            return
        if found and not self.error:
            log.error("server_cannot_write", server=self._name, reason=found)
        self.error = found
        has_room = bool(found) and await asyncio.to_thread(_can_write, self._store_dir)
        if has_room:
            log.warning("server_restarts_to_write", server=self._name, reason=found)
            await self._restart()
            await asyncio.sleep(RESTART_AT_MOST_EVERY_S)

    async def _found_write_error(self) -> str | None:
        """Return a write error that a stream reports, "" if none does, None without an answer."""
        client = CancellableClient()
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await client.connect(
                    self._url(),
                    name="hocket-up health",
                    allow_reconnect=False,
                    error_cb=_ignore,
                )
                answer = await client.request("$SYS.REQ.SERVER.PING.HEALTHZ", b"")
        except (OSError, TimeoutError, NatsError):
            return None  # it is away or very busy; supervision handles that
        finally:
            await client.close()
        reason = str(json.loads(answer.data).get("data", {}).get("error", ""))
        return reason if WRITE_ERROR in reason else ""


async def _ignore(_error: Exception) -> None:
    """Ignore errors of the connection: the missing answer shows them."""


def _can_write(folder: Path) -> bool:
    """Tell whether ROOM_BYTES fit into the folder."""
    trial = folder.with_name("write.trial")
    try:
        with trial.open("wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
            os.fsync(file.fileno())
    except OSError:
        return False
    finally:
        trial.unlink(missing_ok=True)
    return True
