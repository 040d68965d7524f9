"""The file that a child process writes its output to."""

from pathlib import Path


def shorten(log_path: Path, keep_bytes: int) -> None:
    """Put a log aside that has grown beyond `keep_bytes`; the one that was put aside before goes."""
    if log_path.exists() and log_path.stat().st_size > keep_bytes:
        log_path.replace(log_path.with_suffix(".log.1"))


def end_of(log_path: Path, *, start: int = 0, max_bytes: int) -> str:
    """Return the end of what was written after the byte `start`."""
    if not log_path.exists():
        return ""
    with log_path.open("rb") as file:
        file.seek(max(start, log_path.stat().st_size - max_bytes))
        return file.read().decode("utf-8", "replace").strip()
