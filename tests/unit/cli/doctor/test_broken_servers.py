"""`hocket doctor` in front of servers that are none, are silent, or refuse: each is a finding."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hocket.cli.doctor import database
from hocket.cli.doctor.api import look_at_api
from hocket.cli.doctor.database import Database, look_at_database
from hocket.cli.doctor.findings import Finding, Verdict
from hocket.cli.doctor.nats import connection
from hocket.cli.doctor.nats.servers import findings_of, look_at_servers
from hocket.cli.remote.target import Target
from support.shared.commands import run_hocket
from support.shared.scripted_api import Answer, as_json, refusal, scripted_api

BOUND_S = 20.0
OWN = {"name": "me", "role": "viewer", "tenant": None}


@contextmanager
def silent() -> Iterator[int]:
    """A port that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@asynccontextmanager
async def says(greeting: bytes) -> AsyncIterator[int]:
    """A port that says something to everybody."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def doctor(home: Path, **settings: str) -> tuple[int, dict[str, Any]]:
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", **settings}
    done = run_hocket("doctor", "--json", env=env)
    assert "Traceback" not in done.stderr
    return done.returncode, {one["name"]: one for one in json.loads(done.stdout)}


@pytest.mark.parametrize(
    "greeting",
    [b"INFO []\r\n", b"INFO {\r\n", b"220 smtp\r\n", b"INFO " + b"x" * 200_000, b"\x00\xff\r\n"],
    ids=["a list", "half", "smtp", "long", "bytes"],
)
async def test_a_port_that_speaks_something_else_is_no_nats(greeting: bytes) -> None:
    async with says(greeting) as port:
        servers = await look_at_servers(f"nats://127.0.0.1:{port}")
    (found,) = findings_of(servers)
    assert (found.name, found.verdict) == ("nats", Verdict.FAILED)
    assert found.found == "it is not a NATS server"


async def test_a_silent_port_is_said_to_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(database, "TIMEOUT_S", 0.2)
    found = Database()
    with silent() as port:
        servers = await look_at_servers(f"nats://127.0.0.1:{port}")
        await look_at_database(f"postgresql://a@127.0.0.1:{port}/x", found)
    assert [one.found for one in findings_of(servers)] == ["no answer in time"]
    assert [one.found for one in found.findings] == ["no answer in time"]


@pytest.mark.parametrize(
    "url",
    ["postgresql://h:port/x", "postgresql://a:1,b:port/x", "postgresql://[::1/x", "mysql://h/x"],
)
def test_an_address_of_postgres_that_is_none_is_a_finding(tmp_path: Path, url: str) -> None:
    code, found = doctor(tmp_path, DATABASE_URL=url)
    assert (code, found["postgres"]["verdict"]) == (1, "failed")


def test_settings_that_cannot_be_used_are_findings_beside_the_others(tmp_path: Path) -> None:
    code, found = doctor(tmp_path, NATS_URL="nats://h:port", HOCKET_MIN_FREE_DISK_MIB="much")
    assert code == 1
    assert "`NATS_URL` is not valid" in found["nats"]["found"]
    assert "HOCKET_MIN_FREE_DISK_MIB is not a whole number" in found["disk"]["found"]
    assert found["python"]["verdict"] == "ok"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((502, b"<html>Bad Gateway</html>"), "status 502"),
        ((302, b""), "status 302"),
        ((200, b"<html>Welcome</html>"), "is not JSON that Hocket sends"),
        ((200, b"{}"), "not how Hocket answers"),
        (refusal(401, "key_invalid", "The key is not valid."), "The key is not valid."),
    ],
    ids=["502", "redirect", "page", "other", "key"],
)
def test_what_answers_in_place_of_the_api_is_a_finding(
    tmp_path: Path, answer: Answer, said: str
) -> None:
    with scripted_api(lambda *_: answer) as api:
        code, found = doctor(tmp_path, HOCKET_API_URL=api.url, HOCKET_API_KEY="hk_a_b")
    assert (code, found["api"]["verdict"]) == (1, "failed")
    assert said in found["api"]["found"]
    assert found["api"]["cure"]


def test_the_api_of_a_context_is_looked_at(tmp_path: Path) -> None:
    with scripted_api(lambda *_: as_json(200, OWN)) as api:
        file = tmp_path / ".config" / "hocket" / "contexts.json"
        file.parent.mkdir(parents=True)
        context = {"api_url": api.url, "tenant": None, "key": "hk_a_b"}
        file.write_text(json.dumps({"current": "far", "contexts": {"far": context}}))
        file.chmod(0o600)
        _, found = doctor(tmp_path)
    assert found["api"]["found"] == f"{api.url}, as me, viewer of all tenants"
    assert found["platform"]["found"] == f"that of the context: {api.url}"


async def test_an_api_that_is_silent_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hocket.cli.doctor.api.TIMEOUT_S", 0.2)
    monkeypatch.delenv("HOCKET_API_KEY", raising=False)
    with silent() as port:
        target = Target(tmp_path, named_api=f"http://127.0.0.1:{port}")
        async with asyncio.timeout(BOUND_S):
            found = await look_at_api(target)
    assert [(one.name, one.verdict) for one in found] == [("api", Verdict.FAILED)]
    assert isinstance(found[0], Finding)
