"""Log lines on the terminal: a command's own warnings and, while `hocket up` is running, those in the
processes' logs. None of them go to standard output, which is reserved for results."""

import asyncio
import json
from collections.abc import Collection, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog
from rich.console import Console

LOOK_INTERVAL_S = 0.5
READ_BYTES = 262_144
MAX_LINE_BYTES = 20_000
"""The longest line shown; longer ones are only in the log."""
LEVELS = frozenset({"warning", "error", "critical"})
NEWS = frozenset({"process_restarted", "server_restarted"})
"""Events worth a line although they are not warnings."""
HIDDEN = ("event", "level", "timestamp", "logger", "service")


def show_warnings(console: Console, *, but: Collection[str] = ()) -> None:
    """Send this process's own warnings to the console, but not those of the events in `but`, and drop
    its other log lines. A warning that cannot be written is dropped, too: who logs it may have to
    restart a process."""

    def shown(_: Any, level: str, event: MutableMapping[str, Any]) -> str:
        if event["event"] in but or (level not in LEVELS and event["event"] not in NEWS):
            raise structlog.DropEvent
        with suppress(OSError):  # nobody reads it any more, or the disk it goes to is full
            _print(console, "hocket", level, event)
        raise structlog.DropEvent

    structlog.configure(processors=[shown], cache_logger_on_first_use=False)


async def follow_warnings(console: Console, log_dir: Path) -> None:
    """Print the warnings that the processes write from now on, until cancelled. The logs also contain
    output of handlers, so a line may be anything."""
    places = {path: _size(path) for path in _logs(log_dir)}
    while True:
        await asyncio.sleep(LOOK_INTERVAL_S)
        for path in _logs(log_dir):
            try:
                places[path] = _print_new(console, path, places.get(path, 0))
            except OSError:  # the log was removed, or the terminal is gone
                continue


def _logs(log_dir: Path) -> list[Path]:
    return sorted(log_dir.glob("*.log"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _print_new(console: Console, path: Path, start: int) -> int:
    size = path.stat().st_size
    if size <= start:
        return size
    with path.open("rb") as file:
        file.seek(max(start, size - READ_BYTES))
        data = file.read(READ_BYTES)
        end = file.tell()
    whole, _, rest = data.rpartition(b"\n")
    for line in whole.splitlines():
        if event := _warning(line):
            _print(console, path.stem, event["level"], event)
    return end - len(rest)


def _warning(line: bytes) -> dict[str, Any] | None:
    """Return the warning in a line, or None for anything else: output of handlers, or tracebacks, which
    are complete in the log."""
    if len(line) > MAX_LINE_BYTES:
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    level = event.get("level")
    return event if isinstance(level, str) and level in LEVELS else None


def _print(console: Console, source: str, level: str, event: MutableMapping[str, Any]) -> None:
    fields = " ".join(
        f"{key}={value}" for key, value in event.items() if key not in HIDDEN and key != "exception"
    )
    style = "red" if level in ("error", "critical") else "yellow" if level == "warning" else "dim"
    text = f"{source}: {event['event']} {fields}"[:1_000]
    try:
        console.print(text, style=style, markup=False)
    except SystemExit as gone:  # rich would end the process where nobody reads its output any more
        raise BrokenPipeError(str(gone)) from gone
