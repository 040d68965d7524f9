"""`make page-test`: docs/how-to/three-servers.md followed to the letter. All its commands run in one
shell, in an empty folder, with a new Postgres, and what the shell prints is printed. Both runs of the
page must say what was given to them."""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import structlog

from hocket.kit.embedded import EmbeddedServers
from support.places import ROOT

PAGE = ROOT / "docs" / "how-to" / "three-servers.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WANTED = ("before", "after")
BOUND_S = 600.0
LOG_LINES = 15


async def followed(folder: Path, database_url: str) -> tuple[int, str]:
    """Follow the page; return the shell's exit code and what it printed."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = folder / "printed"
    with printed.open("wb") as output:  # what it leaves running has it open, too
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-euv", "-c", "\n".join(BLOCK.findall(PAGE.read_text()))),
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
            missing = [word for word in WANTED if not re.search(rf'"?said"?: "?{word}', printed)]
            if code or missing:
                for log in sorted((folder / "cluster").glob("*.log")):
                    print(f"--- {log.name}", *log.read_text().splitlines()[-LOG_LINES:], sep="\n")
                sys.exit(f"FAILED: exit code {code}; not said: {missing}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main())
