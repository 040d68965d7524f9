"""`make page-test`: follow docs/how-to/three-servers.md to the letter, with Hocket and Postgres
installed.

All its commands run in one shell, in an empty folder, with a new Postgres, and the shell's output is
printed. Both runs of the page must return what they were given."""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import structlog

from hocket.kit.embedded import EmbeddedServers
from support.places import ROOT

PAGE = ROOT / "docs" / "how-to" / "three-servers.md"
INSTALLS = frozenset({"Install", "Postgres"})
"""Sections for readers who have nothing installed yet."""
SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SAID = re.compile(r'"?said"?: "?(\w+)')
WANTED = ("before", "after")
BOUND_S = 600.0
LOG_LINES = 15


def commands(*, without: Collection[str] = ()) -> str:
    """Return the page's commands, except those of some sections."""
    found = SECTION.findall(PAGE.read_text())
    assert {title for title, _ in found} >= INSTALLS, "the page has other sections"
    return "\n".join(
        block for title, text in found if title not in without for block in BLOCK.findall(text)
    )


def unsaid(printed: str) -> list[str]:
    """Return what the page's runs should have printed and did not."""
    return [word for word in WANTED if word not in SAID.findall(printed)]


async def followed(folder: Path, database_url: str) -> tuple[int, str]:
    """Follow the page; return the shell's exit code and output."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = folder / "printed"
    with printed.open("wb") as output:  # processes that the page starts keep it open
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-euv", "-c", commands(without=INSTALLS)),
            cwd=folder,
            env={"PATH": programs, "HOME": str(folder), "DATABASE_URL": database_url},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(BOUND_S):
            code = await shell.wait()
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        print(printed.read_text(), flush=True)
    return code, printed.read_text()


async def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    folder = Path(tempfile.mkdtemp(prefix="hocket-page-"))
    try:
        async with EmbeddedServers(folder / "postgres", nats=False) as servers:
            began = time.monotonic()
            code, printed = await followed(folder, servers.database_url)
            print(f"followed in {time.monotonic() - began:.0f} s")
            if code or (missing := unsaid(printed)):
                for log in sorted((folder / "cluster").glob("*.log")):
                    print(f"--- {log.name}", *log.read_text().splitlines()[-LOG_LINES:], sep="\n")
                sys.exit(f"FAILED: exit code {code}; not said: {missing if not code else WANTED}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main())
