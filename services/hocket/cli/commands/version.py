"""`hocket version`."""

import platform
from importlib.metadata import version as version_of
from typing import Annotated

import typer


def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the versions of Hocket and Python."""
    from hocket.cli.terminal.console import print_json

    own, python = version_of("hocket"), platform.python_version()
    if as_json:
        print_json({"hocket": own, "python": python})
        return
    typer.echo(f"hocket {own} (Python {python})")
