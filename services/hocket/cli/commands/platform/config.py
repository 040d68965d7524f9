"""`hocket config`: the configuration file."""

from pathlib import Path
from typing import Annotated

import typer

from hocket.cli.terminal import exit_codes

app = typer.Typer(help="Configuration file, as named by HOCKET_CONFIG.", no_args_is_help=True)


@app.command("check")
def check(
    file: Annotated[
        Path,
        typer.Argument(
            exists=True, dir_okay=False, help="The file, as HOCKET_CONFIG would name it."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a configuration file and list all errors, each with its field and a fix.

    Gateways and workers run the same checks on startup. Environment variables named in the file
    (os.environ/NAME) are read from this shell; hooks are loaded, but models and databases are not
    contacted. Exits with 2 if there are errors, or if the file cannot be read.
    """
    import asyncio

    from rich.text import Text

    from hocket.cli.local.config_check import checked
    from hocket.cli.terminal.console import out, print_json

    found = asyncio.run(checked(file))
    if as_json:
        faults = [fault._asdict() for fault in found.faults]
        print_json({"models": found.models, "faults": faults, "notes": found.notes})
    else:
        for fault in found.faults:
            place = Text.assemble(("FAILED", "bold red"), f"  {fault.field}: {fault.reason}.")
            out.print(place.append(f" {fault.cure}", "bold"), soft_wrap=True)
        for note in found.notes:
            out.print(Text.assemble(("note  ", "yellow"), f"  {note}"), soft_wrap=True)
        if not found.faults:
            models = ", ".join(found.models) or "none"
            out.print(Text(f"No errors found. Models: {models}.", "green"), soft_wrap=True)
    if found.faults:
        raise typer.Exit(exit_codes.BAD_INPUT)
