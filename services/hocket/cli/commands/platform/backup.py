"""`hocket backup` and `hocket restore`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hocket.cli.remote.target import target_of
from hocket.cli.terminal import folders

AsJson = Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")]


def backup(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(
            parser=folders.path, help="Destination folder; must be empty or not exist yet."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Back up a running platform's data from NATS and Postgres.

    Includes every task acknowledged before the backup began. Excludes the files of large values
    (`blobs/`): copy that folder separately, unless they are stored in Postgres.
    """
    import asyncio

    from hocket.cli.backups import folder as backups
    from hocket.cli.terminal.console import notes, print_json
    from hocket.cli.terminal.log_lines import show_warnings

    show_warnings(notes)
    nats_url, database_url = target_of(context).servers()
    manifest = asyncio.run(backups.take(folder, nats_url=nats_url, database_url=database_url))
    if as_json:
        print_json(manifest)
        return
    typer.echo(f"{folder} holds {_summary(manifest)}.")


def restore(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(parser=folders.path, help="Folder created by `hocket backup`.")
    ],
    replicas: Annotated[
        int,
        typer.Option(
            envvar="HOCKET_STREAM_REPLICAS", min=1, max=5, help="Replicas of each NATS stream."
        ),
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into an empty database and an empty NATS (DATABASE_URL, NATS_URL).

    Start the processes afterwards: runs that were in progress at the time of the backup continue.
    """
    import asyncio

    from hocket.cli.backups import folder as backups
    from hocket.cli.terminal.console import notes, print_json
    from hocket.cli.terminal.log_lines import show_warnings

    show_warnings(notes)
    nats_url, database_url = target_of(context).servers()
    manifest = asyncio.run(
        backups.put_back(folder, nats_url=nats_url, database_url=database_url, replicas=replicas)
    )
    if as_json:
        print_json(manifest)
        return
    typer.echo(
        f"Restored {_summary(manifest)}. Tasks accepted after {manifest['began_at']} may be "
        "missing: publish them again with their idempotency keys, so that each becomes one "
        "run."
    )


def _summary(manifest: dict[str, Any]) -> str:
    from hocket.cli.backups.messages import TASK_STREAMS

    runs, calls = manifest["tables"]["hocket.run"], manifest["messages"]["USAGE"]
    tasks = sum(manifest["messages"].get(stream, 0) for stream in TASK_STREAMS)
    return (
        f"{runs} runs, {tasks} tasks that had not begun and {calls} calls that were not booked, of "
        f"{manifest['began_at']}"
    )
