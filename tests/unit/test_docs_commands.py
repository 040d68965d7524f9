"""docs/reference/command-line.md has an example of each command."""

import re
import shlex
from collections.abc import Iterator

import click
import typer

from hocket.cli.app import app
from support.administration.command_examples import commands


def paths(command: click.Command, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    commands_below = getattr(command, "commands", None)
    if commands_below is None:
        yield above
        return
    for name, below in commands_below.items():
        yield from paths(below, (*above, name))


def test_every_command_has_an_example() -> None:
    lines = [shlex.split(line, comments=True)[1:] for line in commands(all_sections=True)]
    shown = {" ".join(words) for words in lines}
    shown = {re.sub(r"^--\S+ \S+ ", "", line) for line in shown}
    every = {" ".join(path) for path in paths(typer.main.get_command(app))}
    assert len(every) > 100

    assert {
        one for one in every if not any(f"{line} ".startswith(f"{one} ") for line in shown)
    } == set()
