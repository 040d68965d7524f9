"""A real pgbouncer (Debian's package `pgbouncer`) in front of a test's Postgres."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import time
from configparser import ConfigParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from hocket.kit.embedded.account import Account, let_account_reach
from hocket.kit.embedded.ports import LOOPBACK, remembered_port
from support.places import ROOT

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MISSING = "pgbouncer is missing: apt install pgbouncer"
PAGE = ROOT / "docs" / "how-to" / "postgres.md"
STARTS_S = 20.0
LOOK_S = 0.1


class Bouncer:
    """A pgbouncer in front of the database of a URL, with its files in a folder.

    It has the settings of docs/how-to/postgres.md, changed by `settings`. `account` is the user that
    runs it if that is not the current one: it refuses to run as root."""

    def __init__(
        self, folder: Path, url: str, *, account: Account | None = None, **settings: str
    ) -> None:
        assert PROGRAM is not None, MISSING
        self._folder = folder
        self._server = urlsplit(url)
        self._differing = settings
        self._account = account
        folder.mkdir(parents=True, exist_ok=True)
        self._port = remembered_port(folder / "port")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of the database through pgbouncer."""
        password = self._server.password
        return f"postgresql://hocket:{password}@{LOOPBACK}:{self._port}/hocket"

    async def start(self) -> None:
        """Start it; returns when it listens."""
        self._write()
        users = self._folder / "users.txt"
        users.write_text(f'"hocket" "{self._server.password}"\n')
        who: dict[str, Any] = {}
        if self._account is not None:
            let_account_reach(self._account, self._folder)
            for path in (self._folder, *self._folder.iterdir()):
                os.chown(path, *self._account)
            who = {"user": self._account.uid, "group": self._account.gid, "extra_groups": []}
        await asyncio.to_thread(self._launch, who)
        until = time.monotonic() + STARTS_S
        while True:
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, self._port)
            except OSError:
                if time.monotonic() > until or not self._lives:
                    raise
                await asyncio.sleep(LOOK_S)
            else:
                writer.close()
                return

    def _launch(self, who: dict[str, Any]) -> None:
        assert PROGRAM is not None, MISSING
        self._process = subprocess.Popen([PROGRAM, "-q", self._settings], **who)

    def follow(self, url: str) -> None:
        """Switch to another Postgres from now on, as a failover tool does."""
        self._server = urlsplit(url)
        self._write()
        assert self._process is not None, "it was started"
        self._process.send_signal(signal.SIGHUP)

    async def connect(self) -> asyncpg.Connection:
        return await asyncpg.connect(self.url, timeout=5, command_timeout=5)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    @property
    def _lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def _settings(self) -> Path:
        return self._folder / "pgbouncer.ini"

    def _write(self) -> None:
        host, port = self._server.hostname, self._server.port
        database = self._server.path.lstrip("/")
        settings = documented()
        settings["databases"] = {"hocket": f"host={host} port={port} dbname={database}"}
        settings["pgbouncer"] |= {
            "listen_addr": LOOPBACK,
            "listen_port": str(self._port),
            "unix_socket_dir": "",
            "auth_file": str(self._folder / "users.txt"),
            "logfile": str(self._folder / "pgbouncer.log"),
            **self._differing,
        }
        lines = (
            line
            for section, pairs in settings.items()
            for line in (f"[{section}]", *(f"{name} = {value}" for name, value in pairs.items()))
        )
        self._settings.write_text("\n".join(lines) + "\n")


def documented() -> dict[str, dict[str, str]]:
    """Return the settings given in docs/how-to/postgres.md, by section and name."""
    (block,) = re.findall(r"```ini\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    parser = ConfigParser(interpolation=None)
    parser.read_string(block)
    return {section: dict(parser[section]) for section in parser.sections()}
