"""`hocket backup` and `hocket restore`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hocket.cli.remote.target import target_of

AsJson = Annotated[bool, typer.Option("--json", help="Print its manifest for programs.")]


def backup(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A folder that is empty or not there yet.")],
    as_json: AsJson = False,
) -> None:
    """Copy what a platform knows out of NATS and Postgres, while it runs.

    Every task that was acknowledged before is in it. Files of large values (`blobs/`) are not: copy
    their folder besides, where they are not in Postgres.
    """
    import asyncio

    from hocket.cli.backups import folder as backups
    from hocket.cli.terminal.console import print_json

    target = target_of(context)
    manifest = asyncio.run(
        backups.take(folder, nats_url=target.nats_url, database_url=target.database_url)
    )
    if as_json:
        print_json(manifest)
        return
    typer.echo(f"{folder} holds {_summary(manifest)}.")


def restore(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="What `hocket backup` made.")],
    replicas: Annotated[
        int,
        typer.Option(
            envvar="HOCKET_STREAM_REPLICAS", min=1, max=5, help="Copies of streams in NATS."
        ),
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Put a backup into an empty database and an empty NATS (DATABASE_URL, NATS_URL).

    Start the processes afterwards: runs that were going on at the moment of the backup go on.
    """
    import asyncio

    from hocket.cli.backups import folder as backups
    from hocket.cli.terminal.console import print_json

    target = target_of(context)
    manifest = asyncio.run(
        backups.put_back(
            folder,
            nats_url=target.nats_url,
            database_url=target.database_url,
            replicas=replicas,
        )
    )
    if as_json:
        print_json(manifest)
        return
    typer.echo(
        f"Restored {_summary(manifest)}. What was accepted after {manifest['began_at']} may be missing: "
        "publish such tasks again under their idempotency keys, which makes each one run."
    )


def _summary(manifest: dict[str, Any]) -> str:
    runs, calls = manifest["tables"]["hocket.run"], manifest["messages"]["USAGE"]
    return (
        f"{runs} runs, {manifest['messages']['TASKS']} tasks that had not begun and {calls} calls that "
        f"were not booked, of {manifest['began_at']}"
    )
