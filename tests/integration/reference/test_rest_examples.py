"""docs/reference/rest-api.md has an example of each operation, and they are answered as it says."""

import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from hocket.cli.local.platform import Platform
from hocket.kit.nats.bus import Bus
from support.administration.api_examples import Player, examples
from support.contract_rig import document
from support.places import ROOT

CONFIG = ROOT / "examples" / "rest" / "hocket.yaml"
HANDLERS = ROOT / "examples" / "nodes"


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    environment = {"PYTHONPATH": str(HANDLERS)}
    async with Platform(
        folder / "d", worker_types=("llm",), config=CONFIG, env=environment
    ) as running:
        bus = await Bus.connect(running.nats_url, name="publisher")
        for body in (b"no JSON", b"none either"):  # which become dead letters
            await bus.publish("hocket.task.default.sort", body)
        await bus.close()
        yield running
    shutil.rmtree(folder)


async def test_every_operation_has_an_example(platform: Platform) -> None:
    described = await document(platform.api_url)
    operations = {
        f"{method.upper()} {path}"
        for path, methods in described["paths"].items()
        for method in methods
        if path.startswith("/v1")
    }
    asked = [f"{one.method} {one.path.partition('?')[0]}" for one in examples()]
    assert len(operations) > 80

    assert {one for one in operations if not any(_is_of(one, name) for name in asked)} == set()


async def test_every_example_is_answered_as_the_page_says(platform: Platform) -> None:
    headers = {"Authorization": f"Bearer {platform.api_key}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        player = Player(session, platform.api_url)
        found = [(one.name, await player.play(one)) for one in examples()]

    assert [(name, differing) for name, differing in found if differing] == []


def _is_of(operation: str, request: str) -> bool:
    """Tell whether a request is of an operation, and not of one whose path has fewer parameters."""
    pattern = re.sub(r"\\{[^}]+\\}", "[^/]+", re.escape(operation))
    return re.fullmatch(pattern, request) is not None
