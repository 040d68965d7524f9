"""The warnings of a platform's processes on the terminal: their logs may hold anything."""

import asyncio
import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from hocket.cli.terminal import log_lines
from hocket.cli.terminal.log_lines import follow_warnings, show_warnings
from hocket.cli.terminal.safe_text import SafeConsole

WAIT_S = 20
ODD = (
    b'{"level": "error"}',
    b'{"level": ["error"], "event": "x"}',
    b'{"level": {"a": 1}, "event": "x"}',
    b'{"level": "error", "event": 1}',
    b'["level"]',
    b"null",
    b"\xff\xfe\x00",
    b"[" * 19_000,
    b'{"a":' * 3_000,
    b'{"level": "error", "event": "deep", "a": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"level": "error", "event": "long", "a": ' + b"1" * 5_000 + b"}",
    b"x" * 300_000,
)


async def test_no_line_of_a_log_ends_the_following(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "LOOK_INTERVAL_S", 0.01)
    shown = io.StringIO()
    log, gone = tmp_path / "worker.log", tmp_path / "gone.log"
    log.touch()
    gone.symlink_to(tmp_path / "nothing")
    following = asyncio.create_task(follow_warnings(SafeConsole(file=shown, width=200), tmp_path))
    await asyncio.sleep(0)  # it has seen how long the log is
    async with asyncio.timeout(WAIT_S):
        for n, line in enumerate(ODD):
            said = b'{"level": "error", "event": "after %d", "text": "\\u001b[2J"}' % n
            with log.open("ab") as file:
                file.write(line + b"\n" + said + b"\n")
            while f"after {n} " not in shown.getvalue():
                assert not following.done(), following
                await asyncio.sleep(0.01)
    following.cancel()
    assert "\x1b[2J" not in shown.getvalue()
    assert "\\x1b[2J" in shown.getvalue()


class FullDisk(io.StringIO):
    """Standard error that goes to a file on a full disk."""

    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_warning_that_cannot_be_written_ends_nothing() -> None:
    before = structlog.get_config()
    try:
        show_warnings(SafeConsole(file=FullDisk()))

        structlog.get_logger().warning("process_died", process="worker")
    finally:
        structlog.configure(**before)


def test_a_warning_that_nobody_reads_any_more_ends_nothing() -> None:
    program = (
        "import sys, structlog\n"
        "from hocket.cli.terminal.console import notes\n"
        "from hocket.cli.terminal.log_lines import show_warnings\n"
        "show_warnings(notes)\n"
        "structlog.get_logger().warning('process_died', process='worker')\n"
        "sys.exit(7)\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run([sys.executable, "-c", program], stderr=writing, check=False)
    finally:
        os.close(writing)
    assert ended.returncode == 7


async def test_a_warning_that_the_command_tells_itself_is_not_shown_twice() -> None:
    before, written = structlog.get_config(), io.StringIO()
    try:
        show_warnings(SafeConsole(file=written), but={"document_unreadable"})
        structlog.get_logger().warning("document_unreadable", source="a.pdf")
        structlog.get_logger().warning("other", source="b.pdf")
    finally:
        structlog.configure(**before)
    assert "a.pdf" not in written.getvalue()
    assert "b.pdf" in written.getvalue()
