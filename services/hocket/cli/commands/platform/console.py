"""`hocket console`: open the console in a browser, signed in with one's own key."""

from typing import Annotated
from urllib.parse import urlencode

import typer

from hocket.cli.remote.target import target_of


def console(
    context: typer.Context,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the URL.")] = False,
) -> None:
    """Open the console in a browser, signed in with your key.

    The printed URL is valid for one minute.
    """
    import webbrowser

    from hocket.cli.terminal.console import notes

    target = target_of(context)
    api = target.api()
    asked = {"ticket": api.post("/console/tickets")["ticket"]}
    if target.chosen_tenant is not None:
        asked["tenant"] = target.chosen_tenant
    address = f"{api.url}/console/sign-in?{urlencode(asked)}"
    typer.echo(address)
    if not no_browser and not webbrowser.open(address):
        notes.print("No browser could be opened: open the URL within a minute.", markup=False)
