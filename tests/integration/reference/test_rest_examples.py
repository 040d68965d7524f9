"""docs/reference/rest-api.md has an example of each operation, and they are answered as it says; so are
the commands of docs/reference/command-line.md. Of all that they write, nothing has a secret in clear,
and nothing comes into another tenant's answer."""

import asyncio
import json
import re
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.local.platform import Platform
from hocket.kit.nats.bus import Bus
from support.administration.api_examples import Player, examples
from support.administration.command_examples import REFUSED, Places, commands
from support.contract_rig import document
from support.places import ROOT

CONFIG = ROOT / "examples" / "rest" / "hocket.yaml"
HANDLERS = ROOT / "examples" / "nodes"
LETTERS = ("The roof leaks", "There is no hurry", "What arrived overnight")
"""What the examples submit."""
KEPT_IN = {"admin.key", "capability.key", "nats.conf", "password", "platform.json", "url"}
"""Files whose purpose is to hold a secret; only their user may read them."""
SECRET_FIELDS = ("key", "secret")
"""Where answers have a secret that was made just now."""


@dataclass
class Play:
    """A platform on which all examples were played."""

    platform: Platform
    player: Player
    found: list[tuple[str, list[str]]]
    """In what each answer differed."""


@pytest.fixture(scope="module")
async def play() -> AsyncIterator[Play]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    environment = {"PYTHONPATH": str(HANDLERS)}
    async with Platform(
        folder / "d", worker_types=("llm",), config=CONFIG, env=environment
    ) as platform:
        bus = await Bus.connect(platform.nats_url, name="publisher")
        for body in (b"no JSON", b"none either"):  # which become dead letters
            await bus.publish("hocket.task.default.sort", body)
        await bus.close()
        async with aiohttp.ClientSession(headers=bearer(platform.api_key)) as session:
            player = Player(session, platform.api_url)
            found = [(one.name, await player.play(one)) for one in examples()]
            yield Play(platform, player, found)
    shutil.rmtree(folder)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_every_operation_has_an_example(play: Play) -> None:
    described = await document(play.platform.api_url)
    operations = {
        f"{method.upper()} {path}"
        for path, methods in described["paths"].items()
        for method in methods
        if path.startswith("/v1")
    }
    asked = [f"{one.method} {one.path.partition('?')[0]}" for one in examples()]
    assert len(operations) > 80

    assert {one for one in operations if not any(_is_of(one, name) for name in asked)} == set()


async def test_every_example_is_answered_as_the_page_says(play: Play) -> None:
    assert [(name, differing) for name, differing in play.found if differing] == []


async def test_no_secret_is_in_what_the_platform_wrote(play: Play) -> None:
    planted = {
        *(
            urlsplit(url).password or ""
            for url in (play.platform.nats_url, play.platform.database_url)
        ),
        play.platform.api_key.rpartition("_")[2],
        (play.platform.data_dir / "capability.key").read_text().strip(),
        *(one.rpartition("_")[2] for text in play.player.answers for one in _secrets(text)),
    }
    assert len(planted) == 4 + 2 + 2, "with two of a key and two of a webhook"
    written = dict(_files(play.platform.data_dir))
    assert any(LETTERS[0].encode() in content for content in written.values()), "runs are there"

    holding = {
        str(path): sum(secret.encode() in content for secret in planted)
        for path, content in written.items()
        if any(secret.encode() in content for secret in planted)
    }

    assert holding == {}


async def test_every_command_of_the_page_does_what_it_says(
    play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(HANDLERS))
    monkeypatch.setenv("HOCKET_DATA_DIR", str(play.platform.data_dir))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    failed: list[str] = []
    async with aiohttp.ClientSession(headers=bearer(play.platform.api_key)) as session:
        places = Places(session, play.platform.api_url, play.player)
        for line in commands():
            words = [await places.filled(line, word) for word in shlex.split(line, comments=True)]
            result = await asyncio.to_thread(CliRunner().invoke, app, words[1:])
            if result.exit_code != (1 if line.startswith(REFUSED) else 0):
                failed.append(f"{line}: {result.output[-300:]} {result.exception!r}")

    assert "\n".join(failed) == ""


async def test_nothing_of_a_tenant_is_in_another_ones_answers(play: Play) -> None:
    url, admin = play.platform.api_url, bearer(play.platform.api_key)
    ids = {one for one in play.player.actual.values() if re.match("r[0-9a-f]{24}|msg_", one)}
    assert len(ids) > 5
    told: dict[str, str] = {}
    changed: dict[str, int] = {}
    async with aiohttp.ClientSession() as session:
        wanted = {"name": "stranger", "role": "admin"}
        headers = {**admin, "X-Hocket-Tenant": "other"}
        async with session.post(f"{url}/v1/keys", json=wanted, headers=headers) as reply:
            stranger = bearer((await reply.json())["key"])
        for one in examples():
            path = play.player.here(one.path)
            if one.kind == "text" and path == "/v1/runs/events":
                continue  # a stream without an end, which test_live has for two tenants
            if one.method != "GET" and path == one.path:
                continue  # it makes or changes something of the stranger's own
            async with session.request(
                one.method,
                url + path,
                data=play.player.here(one.body).encode() or None,
                headers={**one.headers, **stranger},
            ) as reply:
                text = await reply.text()
                if one.method != "GET" and reply.ok:
                    changed[f"{one.method} {path}"] = reply.status
            own = reply.ok and any(name in text for name in ids)
            if own or any(letter in text for letter in LETTERS):
                told[f"{one.method} {path}"] = text

    assert told == {}
    assert changed == {}


def _files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield what is in the files that are not there for secrets."""
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # servers remove theirs meanwhile
            if path.name not in KEPT_IN and path.is_file():
                yield path, path.read_bytes()


def _secrets(text: str) -> Iterator[str]:
    """Yield the secrets that an answer has."""
    try:
        answer: Any = json.loads(text)
    except ValueError:
        return
    for name in SECRET_FIELDS:
        value = answer.get(name) if isinstance(answer, dict) else None
        if isinstance(value, str):
            yield value


def _is_of(operation: str, request: str) -> bool:
    """Tell whether a request is of an operation, and not of one whose path has fewer parameters."""
    pattern = re.sub(r"\\{[^}]+\\}", "[^/]+", re.escape(operation))
    return re.fullmatch(pattern, request) is not None
