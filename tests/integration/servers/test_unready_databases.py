"""Commands that use the database themselves say in a line what it lacks: the schema, or a privilege."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from hocket.kit.embedded.servers import EmbeddedServers
from hocket.kit.nats.bus import Bus
from support.shared.commands import run_hocket

ROLE = "without_privileges"
COMMANDS = {
    "keys": ("keys", "create", "a", "--role", "admin", "--all-tenants", "--in-database"),
    "data": ("data", "delete", "--tenant", "acme", "--dry-run"),
    "report-login": ("report-login", "create", "bi", "--tenant", "acme"),
    "backup": ("backup", "copy"),
}


@pytest.fixture
async def empty_url(servers: EmbeddedServers) -> AsyncIterator[str]:
    """The URL of a database without a schema."""
    root = await asyncpg.connect(servers.database_url)
    await root.execute("CREATE DATABASE unmigrated")
    try:
        yield servers.postgres.url_of("unmigrated")
    finally:
        await root.execute("DROP DATABASE unmigrated WITH (FORCE)")
        await root.close()


@pytest.fixture
async def stranger_url(database_url: str) -> AsyncIterator[str]:
    """The URL of a database for a login that may do nothing there."""
    root = await asyncpg.connect(database_url)
    await root.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'right-secret'")
    parts = urlsplit(database_url)
    place = parts.netloc.rpartition("@")[2]
    try:
        yield f"postgresql://{ROLE}:right-secret@{place}{parts.path}"
    finally:
        await root.execute(f"DROP ROLE {ROLE}")
        await root.close()


async def said(name: str, folder: Path, database_url: str, nats_url: str) -> str:
    """Return the only line that a command says, which it refuses to do."""
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    env |= {"DATABASE_URL": database_url, "NATS_URL": nats_url}
    done = await asyncio.to_thread(run_hocket, *COMMANDS[name], env=env, folder=folder)
    assert (done.returncode in (1, 2), done.stdout) == (True, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_database_without_the_schema(
    name: str, empty_url: str, nats_url: str, bus: Bus, tmp_path: Path
) -> None:
    line = await said(name, tmp_path, empty_url, nats_url)
    assert "the schema is not there: run `hocket migrate`." in line


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_login_without_the_privilege(
    name: str, stranger_url: str, nats_url: str, bus: Bus, tmp_path: Path
) -> None:
    line = await said(name, tmp_path, stranger_url, nats_url)
    may_not = "DATABASE_URL may not do that" if name == "report-login" else "lacks a privilege"
    assert f"{may_not}: permission denied" in line
