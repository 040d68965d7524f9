"""When the gateway reads its configuration again."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from hocket.gateway.config.backend_pool import retire_missing
from hocket.gateway.config.routes import Reload, Routes, read_routes
from hocket.kit.process.lifecycle import Health


class Watched:
    """A configuration file, and the routes that a reload put in use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.used: list[Routes] = []
        self._written = 0

    def write(self, text: str) -> None:
        """Write the file, each time with a later moment of change, however coarse a file's clock is."""
        self.path.write_text(text)
        self._written += 1
        os.utime(self.path, ns=(self._written, self._written))


def models(*names: str) -> str:
    backend: dict[str, Any] = {"base_url": "http://127.0.0.1:9/v1", "model": "x"}
    return yaml.safe_dump({"models": {name: {"backends": [backend]} for name in names}})


async def all_read() -> None:
    """Wait for the readings that have begun."""
    await asyncio.gather(*(one for one in asyncio.all_tasks() if one.get_name() == "reload"))


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    found = Watched(tmp_path / "hocket.yaml")
    found.write(models("writer"))
    return found


@asynccontextmanager
async def reloading(watched: Watched) -> AsyncIterator[Reload]:
    reload = Reload(watched.path, await read_routes(watched.path), watched.used.append, Health())
    yield reload
    await retire_missing(reload.routes.served, {})


async def test_a_file_is_read_once_it_changes_no_more(watched: Watched) -> None:
    async with reloading(watched) as reload:
        reload.look()
        for half in ("", models("poet")):  # as an editor writes it: emptied, then filled
            watched.write(half)
            reload.look()
            await all_read()
            assert not watched.used
        reload.look()
        await all_read()
        assert len(watched.used) == 1
        assert "poet" in reload.routes.table.names()


async def test_a_file_that_stays_as_it_is_is_not_read_again(watched: Watched) -> None:
    async with reloading(watched) as reload:
        watched.write(models("poet"))
        for _ in range(4):
            reload.look()
            await all_read()
        assert len(watched.used) == 1
