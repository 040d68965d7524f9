"""Runs all checks against one command, each on a fresh stage."""

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hocket.cli.conformance.checks import CHECKS
from hocket.cli.conformance.journal_checks import CALL_CHECKS, JOURNAL_CHECKS, WAIT_CHECKS
from hocket.cli.conformance.stage import MISREAD, NotSeen, Stage, noting, shown_error
from hocket.schemas.errors import InvalidInput

LOG_LINES = 5
EVERY = CHECKS | JOURNAL_CHECKS | WAIT_CHECKS | CALL_CHECKS


async def play(command: Sequence[str], names: Sequence[str]) -> dict[str, str | None]:
    """Return for each check what is wrong, or None if it passed."""
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    stage = Stage(folder, command)
    found: dict[str, str | None] = {}
    try:
        await stage.open()
        for name in names:
            found[name] = await _fault(stage, name)
    finally:
        await stage.close()
        shutil.rmtree(folder, ignore_errors=True)
    return found


async def _fault(stage: Stage, name: str) -> str | None:
    """Run one check with its own process, on empty streams."""
    stage.heard.clear()
    for stream in ("STEPS", "LOG", "DLQ", "PROBATION", "JOURNALS"):
        await stage.bus.js.purge_stream(stream)
    try:
        stage.running = await stage.start()
        stage.heard.clear()
        await _played(stage, name)
    except (FileNotFoundError, PermissionError) as error:
        reason = f"`{error.filename}` cannot be started: {error.strerror}"
        cure = "Name a program and its arguments, after `--`."
        raise InvalidInput(field="COMMAND", reason=reason, cure=cure) from error
    except (AssertionError, NotSeen) as error:
        return f"{error}{_last_lines(stage.folder / 'worker.log')}"
    finally:
        await stage.stop_all()  # also one that has not announced itself
        await asyncio.sleep(0)
    return None


async def _played(stage: Stage, name: str) -> None:
    """Run one check; raise AssertionError or NotSeen, also if it ends after it read a message, which may
    lack what it reads. The error of a check that read no message is the check's own."""
    with noting() as last_read:
        try:
            await EVERY[name](stage)
        except MISREAD as error:
            if not last_read:
                raise
            reason, (one,) = shown_error(error), last_read
            raise NotSeen(
                f"the check ended with {reason} after it read a message on {one.subject}, which may "
                f"not be what the protocol says: {one.shown}"
            ) from error


def _last_lines(log: Path) -> str:
    lines = (
        log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:] if log.exists() else []
    )
    return "".join(f"\n       worker: {line[:300]}" for line in lines)
