"""Folders and files that users name on the command line."""

import os
from pathlib import Path

import typer


def path(text: str) -> Path:
    """Return the folder that an option names. An empty text, as from a variable that is not set, would
    silently be the current folder."""
    if not text.strip():
        raise typer.BadParameter("it is empty; write `.` for the current folder")
    return Path(text)


def file(text: str) -> Path:
    """Return the file that an option or its variable names; no shell has replaced `~` in a variable."""
    try:
        found = Path(text).expanduser()
    except RuntimeError:
        raise typer.BadParameter(
            f"File '{text}' is below a home folder that is not there."
        ) from None
    if not os.path.exists(found):  # `Path.exists` raises for a folder of others
        raise typer.BadParameter(f"File '{text}' does not exist.")
    if found.is_dir():
        raise typer.BadParameter(f"File '{text}' is a directory.")
    return found
