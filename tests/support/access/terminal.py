"""A terminal with a home of its own, in which a person signs in."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from support.shared.commands import run_hocket


class Terminal:
    """Runs commands as a user with a home of his own does."""

    def __init__(self, home: Path) -> None:
        self.file = home / ".config" / "hocket" / "contexts.json"
        self._home = home

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hocket.cli", *words),
            cwd=self._home,
            env={"HOME": str(self._home), "PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *words: str) -> tuple[int, str, str]:
        env = {"HOME": str(self._home), "PATH": os.environ["PATH"]}
        done = await asyncio.to_thread(run_hocket, *words, env=env, folder=self._home)
        return done.returncode, done.stdout, done.stderr

    @property
    def context(self) -> dict[str, Any]:
        """What is kept of the context `work`."""
        return dict(json.loads(self.file.read_text())["contexts"]["work"])

    def change(self, **fields: str) -> None:
        """Write something else into it."""
        whole = json.loads(self.file.read_text())
        whole["contexts"]["work"] |= fields
        self.file.write_text(json.dumps(whole))


async def terminal_of(platform_url: str, home: Path) -> Terminal:
    """Return a terminal whose present context is the platform, signed out."""
    terminal = Terminal(home)
    for words in (("context", "add", "work", platform_url), ("context", "use", "work")):
        assert (await terminal.run(*words))[0] == 0
    return terminal
