"""`hocket dev`: rerun a pipeline on every change."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.remote.target import Target, target_of
from hocket.cli.terminal import folders

if TYPE_CHECKING:
    from hocket.cli.local.development_sources import Sources


def dev(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="Pipeline file in YAML or JSON."),
    ],
    given: Annotated[
        str | None,
        typer.Option("--input", help="Input: a JSON object, or @FILE (also watched for changes)."),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "-i",
            metavar="KEY=VALUE",
            help="One field of the input: JSON, otherwise text. May be repeated.",
        ),
    ] = None,
    workers: Annotated[
        list[str] | None,
        typer.Option(
            "--worker",
            metavar="MODULE:WORKER",
            help="Worker to run; restarted when a Python file changes.",
        ),
    ] = None,
    handlers: Annotated[
        str,
        typer.Option(
            envvar="HOCKET_HANDLERS",
            help="Modules that `python` nodes may run, if a platform is started: my_package",
        ),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="HOCKET_CONFIG",
            parser=folders.file,
            metavar="<file>",
            help="hocket.yaml with models and databases, if a platform is started.",
        ),
    ] = None,
) -> None:
    """Rerun a pipeline on every change to its file, its input or its workers.

    Each time, FILE is applied and run, and the result is shown with what changed since the previous
    run: outcome, time and cost. A change cancels a run in flight. If no platform is running, one is
    started on the data folder and stopped at the end.
    """
    import asyncio

    from hocket.cli.local.development_sources import Sources

    target = target_of(context)
    sources = Sources(file, given, tuple(pairs or ()), tuple(workers or ()))
    if target.api_url is None:
        asyncio.run(_with_platform(target, sources, handlers, config))
        return
    if handlers or config:
        option = "--handlers" if handlers else "--config"
        raise typer.BadParameter(
            f"{option} applies only when a platform is started, and one is already running"
        )
    asyncio.run(_develop(target, sources))


async def _develop(target: Target, sources: "Sources") -> None:
    from hocket.cli.local.development import Development, until_signal

    await until_signal(Development(target, sources).run)


async def _with_platform(
    target: Target, sources: "Sources", handlers: str, config: Path | None
) -> None:
    from dataclasses import replace

    from hocket.cli.local.platform import Platform
    from hocket.cli.terminal.console import notes
    from hocket.cli.terminal.log_lines import show_warnings
    from hocket.schemas.pipeline.handlers import entries_of

    show_warnings(notes)
    notes.print(f"Starting Hocket in {target.data_dir} ...", style="dim", markup=False)
    platform = Platform(
        target.data_dir, nats_url=target.named_nats, handlers=entries_of(handlers), config=config
    )  # with NATS where the tasks will go
    async with platform:
        await _develop(replace(target), sources)  # a fresh copy finds the platform that runs now
        notes.print("Stopping ...", style="dim")
