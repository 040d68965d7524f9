"""The tutorial "an agent of your own" is followed word by word: its files are written, its commands are
run as they stand on the page."""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.places import ROOT

PAGE = ROOT / "docs" / "tutorials" / "own-agent.md"
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAIT_S = 60.0


class Reader:
    """Somebody at a shell, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | {"HOCKET_DATA_DIR": str(folder / "d"), "PATH": path}
        for name in ("NATS_URL", "HOCKET_NATS_URL", "DATABASE_URL"):
            self.environment.pop(name, None)
        self.background: list[asyncio.subprocess.Process] = []

    async def run(self, text: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            "bash", "-ec", text, cwd=self.work, env=self.environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def start(self, text: str) -> None:
        ports = " --api-port 0 --gateway-port 0 --nats-port 0" if "hocket up" in text else ""
        log = (self.work.parent / f"log{len(self.background)}").open("wb")
        self.background.append(
            await asyncio.create_subprocess_exec(
                "bash", "-ec", f"exec {text.strip()}{ports}",
                cwd=self.work, env=self.environment, stdout=log, stderr=log,
            )
        )  # fmt: skip
        log.close()

    async def until(self, text: str, command: str) -> str:
        """Run a command until it says something."""
        async with asyncio.timeout(WAIT_S):
            while True:
                _, output = await self.run(command)
                if text in output:
                    return output
                await asyncio.sleep(0.2)

    async def stop(self) -> None:
        for process in reversed(self.background):
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
                await asyncio.wait_for(process.wait(), WAIT_S)


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    reader = Reader(folder)
    yield reader
    await reader.stop()
    shutil.rmtree(folder)


@pytest.mark.long
async def test_the_page_is_followed_word_by_word(reader: Reader) -> None:
    said: list[str] = []
    for language, mark, text in BLOCK.findall(PAGE.read_text("utf-8")):
        mark = mark.strip()
        if language in ("python", "yaml"):
            (reader.work / mark).write_text(text)
        elif language == "text":
            assert text.strip() in " ".join(" ".join(said).split()), said
        elif mark == "background":
            await reader.start(text)
            await reader.until(
                "helpdesk.answer" if "worker" in text.split()[0] else "python",
                "hocket types || true",
            )
        elif mark == "without the agent":
            agent = reader.background.pop()
            agent.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(agent.wait(), WAIT_S) == 0
            await reader.until("no worker runs it", text)
        else:
            code, output = await reader.run(text)
            assert (code != 0) == (mark == "fails"), output
            said.append(output)
    types, answered, refused, failed = said
    assert '"max_rounds"' in types
    assert "succeeded" in answered
    assert "nodes.ask.config.max_rounds" in refused
    assert "input.question" in failed
