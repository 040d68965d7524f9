"""`hocket version`."""

import platform
from importlib.metadata import version as version_of

import typer


def version() -> None:
    """Print the version of Hocket and of Python."""
    typer.echo(f"hocket {version_of('hocket')} (Python {platform.python_version()})")
