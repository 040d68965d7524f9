"""Reads the configuration again while the gateway runs.

The file is read at start (a bad one ends the process), on SIGHUP, and when it has changed on disk
and then stayed the same (a file being written may be empty or incomplete). After the start, a bad
file changes nothing and is reported with the field and the cure. A SIGHUP that comes during the start is
followed once the gateway has started.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import structlog

from hocket.gateway.config.backend_pool import retire_missing
from hocket.gateway.config.reading import read_routes
from hocket.gateway.config.routes import Routes
from hocket.kit.process.lifecycle import Health
from hocket.schemas.errors import HocketError

log = structlog.get_logger()


class Hangups:
    """Takes SIGHUP inside the block, where it does not end the process. It is remembered until there is
    somebody to follow it."""

    def __init__(self) -> None:
        self._reload: Callable[[], None] | None = None
        self._came = False

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)

    @contextmanager
    def followed(self, reload: Callable[[], None]) -> Iterator[None]:
        """Call `reload` for each SIGHUP inside the block, and once if there was one before."""
        self._reload = reload
        if self._came:
            reload()
        try:
            yield
        finally:
            self._reload = None

    def _take(self) -> None:
        self._came = True
        if self._reload is not None:
            self._reload()


class Reload:
    """Reads the configuration again when it is told to and when its file has changed;
    a bad one changes nothing."""

    def __init__(
        self, path: Path | None, routes: Routes, use: Callable[[Routes], None], health: Health
    ) -> None:
        self.routes = routes
        self._path = path
        self._use = use
        self._health = health
        self._reading: asyncio.Task[None] | None = None
        self._read_as = self._seen_as = _version(path)
        self._report()

    def look(self) -> None:
        """Read the file again if it has changed since it was last read, and not since the last look."""
        version = _version(self._path)
        if version == self._seen_as and version != self._read_as:
            self.start()
        self._seen_as = version

    def start(self) -> None:
        """Begin to read the file again, unless it is being read."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self.read(), name="reload")

    async def read(self) -> None:
        """Replace the routes, or log why that is not possible."""
        self._read_as = _version(self._path)
        before = self.routes
        try:
            self.routes = await read_routes(self._path, before)
        except HocketError as error:
            log.warning("routing_rejected", path=str(self._path), reason=str(error))
            detail = f"old routes; reload refused: {error}"
            self._health.report("routing", True, detail, degraded=True)
            return
        self._use(self.routes)
        await retire_missing(before.served, self.routes.served)
        log.info("routing_reloaded", models=self.routes.table.names())
        self._report()

    def _report(self) -> None:
        self._health.report("routing", True, f"{len(self.routes.table.models)} models")


def _version(path: Path | None) -> tuple[int, int] | None:
    """Return a value that changes whenever the file does; None if there is no file."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if found else None
