"""`hocket console`: the console in a browser, signed in by one's own key."""

from typing import Annotated

import typer

from hocket.cli.remote.target import target_of


def console(
    context: typer.Context,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
) -> None:
    """Open the console in a browser, signed in with your key.

    The address that it prints can be used for a minute.
    """
    import webbrowser

    from hocket.cli.terminal.console import notes

    api = target_of(context).api()
    ticket = api.post("/console/tickets")["ticket"]
    address = f"{api.url}/console/sign-in?ticket={ticket}"
    typer.echo(address)
    if not no_browser and not webbrowser.open(address):
        notes.print("There is no browser here: open the address within a minute.", markup=False)
