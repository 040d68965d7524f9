"""When the gateway reads its configuration again."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from hocket.gateway.config.backend_pool import retire_missing
from hocket.gateway.config.reading import read_routes
from hocket.gateway.config.reload import Hangups, Reload
from hocket.gateway.config.routes import Routes
from hocket.gateway.core.errors import RoutingInvalid
from hocket.kit.process import config
from hocket.kit.process.lifecycle import Health
from support.gateway.routing_rig import BOUND_S


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


async def test_a_hangup_is_followed_also_if_it_came_before_anybody_could() -> None:
    reloads: list[str] = []
    noticed = asyncio.Event()

    def reload() -> None:
        reloads.append("reload")
        noticed.set()

    async def hung_up(at_least: int) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(BOUND_S):
            while len(reloads) < at_least:
                await noticed.wait()
                noticed.clear()

    with Hangups() as early:
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(BOUND_S):
            while not early._came:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)
        with early.followed(reload):
            assert len(reloads) == 1
            await hung_up(2)
    with Hangups() as never, never.followed(reload):
        await hung_up(3)
    assert len(reloads) == 3


LARGE = 40_000


async def test_calls_go_on_while_a_large_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hocket.yaml"
    path.write_text(models("writer") + "other: [" + "1, " * LARGE + "1]\n")
    load, turns, meanwhile = config.load, 0, 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    def counted(path: Path) -> dict[str, Any]:
        nonlocal meanwhile
        before = turns
        content = load(path)
        meanwhile = turns - before
        return content

    monkeypatch.setattr(config, "load", counted)
    beside = asyncio.create_task(others())
    await asyncio.sleep(0)  # it begins
    routes = await read_routes(path)
    beside.cancel()
    await retire_missing(routes.served, {})
    assert meanwhile > 1  # counted, not timed: a busy machine holds up both


@pytest.mark.parametrize("key", ["k\n", "k\r\nX-Other: y"])
async def test_a_key_that_no_header_may_have_is_refused_with_its_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    path = tmp_path / "hocket.yaml"
    params = {"model": "openai/x", "api_base": "http://127.0.0.1:9/v1", "api_key": key}
    path.write_text(yaml.safe_dump({"model_list": [{"model_name": "w", "litellm_params": params}]}))
    with pytest.raises(RoutingInvalid, match=r"litellm_params\.api_key"):
        await read_routes(path)
    monkeypatch.setenv("OPENAI_API_KEY", key)
    entry = {"model_name": "w", "litellm_params": {"model": "openai/x"}}
    path.write_text(yaml.safe_dump({"model_list": [entry]}))
    with pytest.raises(RoutingInvalid, match="OPENAI_API_KEY"):
        await read_routes(path)
