"""Every command that prints data prints JSON for programs with `--json`."""

from collections.abc import Iterator

import click
import typer

from hocket.cli.app import app

WITHOUT = {
    "prints JSON, JSON lines or a document of its own anyway": {
        "audit export", "runs export", "gateway status", "import wfformat", "runs record", "schema",
    },
    "prints nothing but that it was done, and REST answers nothing": {
        "context add", "context remove", "context use", "dlq drop", "pipeline delete",
        "schedules delete", "webhooks delete", "login", "logout",
    },
    "prints one line, which is what is wanted": {"console"},
    "goes on until it is stopped, or draws on a terminal": {
        "demo", "dev", "emulate", "mcp", "serve", "up",
    },
}  # fmt: skip


def leaves(command: click.Command, above: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(above), {name for one in command.params for name in one.opts}
        return
    for name, one in below.items():
        yield from leaves(one, (*above, name))


def test_every_command_that_prints_data_takes_json() -> None:
    options = dict(leaves(typer.main.get_command(app)))
    assert len(options) > 100
    without = {name for name, taken in options.items() if "--json" not in taken}
    assert without == set().union(*WITHOUT.values())
