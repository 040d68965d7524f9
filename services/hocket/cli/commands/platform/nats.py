"""`hocket nats`: what NATS servers of one's own need."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="What NATS servers of your own need.", no_args_is_help=True)


@app.command("accounts")
def accounts(
    folder: Annotated[Path, typer.Argument(help="Where to put the files; what is there is kept.")],
    server: Annotated[
        str, typer.Option(help="URL of the server, without an account; of a cluster several.")
    ] = "nats://nats:4222",
) -> None:
    """Write accounts.conf, for the servers' configuration, and a file with a URL for each user.

    By them each process of the platform may do what it needs, and the bearer of a key what the key says
    (docs/reference/nats-access.md).
    """
    from hocket.kit.access.account_files import kept_accounts
    from hocket.kit.nats.server_urls import server_urls
    from hocket.schemas.errors import InvalidInput

    server_urls(server, field="--server")
    if "@" in server:
        raise InvalidInput(
            field="--server", reason="it names an account", cure="Write nats://HOST:PORT."
        )
    for path in kept_accounts(folder, server):
        typer.echo(path)
