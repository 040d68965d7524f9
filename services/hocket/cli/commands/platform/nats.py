"""`hocket nats`: what your own NATS servers need."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from hocket.cli.remote.target import target_of
from hocket.cli.terminal import folders

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(help="Set up your own NATS servers.", no_args_is_help=True)


@app.command("accounts")
def accounts(
    folder: Annotated[
        Path,
        typer.Argument(
            parser=folders.path, help="Folder for the files; existing passwords and seed are kept."
        ),
    ],
    server: Annotated[
        str | None,
        typer.Option(
            help="URL of the server, without an account; for a cluster, several URLs.",
            show_default="that of existing files, otherwise nats://nats:4222",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write accounts.conf for the servers' configuration, and a file with each user's URL.

    An existing accounts.conf is replaced, as each release may change what users may do; if it was
    different, it is kept as accounts.conf.before.

    They limit each process of the platform to what it needs, and the holder of a key to what the key
    allows (docs/reference/nats-access.md).
    """
    from hocket.cli.terminal.console import print_json
    from hocket.kit.access.account_files import kept_accounts
    from hocket.kit.nats.server_urls import server_urls
    from hocket.schemas.errors import InvalidInput

    if server is not None:
        server_urls(server, field="--server")
    if server is not None and any("@" in part.partition("?")[0] for part in server.split(",")):
        raise InvalidInput(
            field="--server", reason="it names an account", cure="Write nats://HOST:PORT."
        )
    try:
        paths = [str(path) for path in kept_accounts(folder, server, on_kept=_say_kept)]
    except OSError as error:
        reason = f"{folder} cannot be written: {error.strerror}"
        cure = "Name a folder that you may write to."
        raise InvalidInput(field="FOLDER", reason=reason, cure=cure) from error
    print_json(paths) if as_json else typer.echo("\n".join(paths))


def _say_kept(earlier: Path) -> None:
    typer.echo(f"accounts.conf was different; it is kept as {earlier}", err=True)


@app.command("spread")
def spread(context: typer.Context, as_json: AsJson = False) -> None:
    """Balance stream leaders across a cluster's servers, starting with the streams that runs use.

    After an outage, the servers that stayed up lead the streams of the others. Messages published
    while leadership moves are delayed for a moment.
    """
    import asyncio
    from dataclasses import asdict

    from hocket.cli.terminal.console import print_json

    url = target_of(context).nats_url

    async def work() -> list[dict[str, Any]]:
        from hocket.cli.doctor.nats import leaders
        from hocket.cli.doctor.nats.connection import connect

        connection = await connect(url)
        made: list[dict[str, Any]] = []
        try:
            async for move in leaders.spread(connection):
                made.append(asdict(move))
                if not as_json:
                    typer.echo(f"{move.stream}: {move.before} -> {move.after}")
        finally:
            await connection.close()
        return made

    made = asyncio.run(_or_unavailable(work()))
    if as_json:
        print_json(made)
    elif not made:
        typer.echo("leaders are already balanced")


async def _or_unavailable(work: Coroutine[Any, Any, T]) -> T:
    from nats.errors import Error as NatsError

    from hocket.kit.nats.errors import BusUnavailable

    try:
        return await work
    except (OSError, TimeoutError, NatsError) as error:
        raise BusUnavailable(reason=str(error) or type(error).__name__) from error
