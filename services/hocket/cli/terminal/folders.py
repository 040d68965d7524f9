"""Folders that users name on the command line."""

from pathlib import Path

import typer


def path(text: str) -> Path:
    """Return the folder that an option names. An empty text, as from a variable that is not set, would
    silently be the current folder."""
    if not text.strip():
        raise typer.BadParameter("it is empty; write `.` for the current folder")
    return Path(text)
