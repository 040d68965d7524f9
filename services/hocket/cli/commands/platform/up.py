"""`hocket up`: a whole platform on this machine, until Ctrl-C."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hocket.cli.remote.target import DATABASE_NAMES, target_of
from hocket.cli.terminal import folders

if TYPE_CHECKING:
    from hocket.cli.local.platform import Platform

DEFAULT_NATS_PORT = 4222
DEFAULT_API_PORT = 8080
DEFAULT_GATEWAY_PORT = 8081


def up(
    context: typer.Context,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            parser=folders.path,
            help="Folder for all data and logs.",
            show_default="that of `hocket`",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of worker processes.")] = 1,
    coordinators: Annotated[
        int,
        typer.Option(
            min=1, max=16, help="Number of coordinator processes; they share the partitions."
        ),
    ] = 1,
    api_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the REST API; 0 picks any free one.")
    ] = DEFAULT_API_PORT,
    gateway_port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, help="Port of the OpenAI-compatible API; 0 picks any free one."
        ),
    ] = DEFAULT_GATEWAY_PORT,
    inline_gateway: Annotated[
        bool,
        typer.Option(
            help="Run a gateway in each worker process instead of a separate one: cheaper calls."
        ),
    ] = False,
    nats_port: Annotated[
        int,
        typer.Option(min=0, max=65_535, help="Port of the embedded NATS; 0 picks any free one."),
    ] = DEFAULT_NATS_PORT,
    api_host: Annotated[str, typer.Option(help="Address on which both APIs listen.")] = "127.0.0.1",
    handlers: Annotated[
        str,
        typer.Option(
            envvar="HOCKET_HANDLERS",
            help="Modules that `python` nodes may run: my_package,other.steps",
        ),
    ] = "",
    types: Annotated[
        str,
        typer.Option(
            help="Node types its workers run: python,llm,python@gpu (a queue). Default: all."
        ),
    ] = "",
    worker: Annotated[
        bool, typer.Option(help="Start workers, in addition to those that you start yourself.")
    ] = True,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="HOCKET_CONFIG",
            parser=folders.file,
            metavar="<file>",
            help="hocket.yaml with models and databases.",
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            envvar=DATABASE_NAMES,
            help="Use your own Postgres instead of the embedded one.",
        ),
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(help="Log level of the processes."),
    ] = "info",
) -> None:
    """Start the whole platform on this machine.

    Starts NATS and Postgres (embedded, unless NATS_URL and DATABASE_URL name your own), coordinator,
    workers, gateway, ledger and REST API. Ctrl-C stops everything in order; the data is kept.
    """
    import asyncio

    from hocket.cli.local.platform import SERVICES, Platform
    from hocket.schemas.pipeline.handlers import entries_of
    from hocket.workers.configuration import parse_types

    if not worker and (types or inline_gateway):
        option = "--types" if types else "--inline-gateway"
        raise typer.BadParameter(f"{option} applies to workers; use it without --no-worker")
    target = target_of(context)
    platform = Platform(
        data_dir or target.data_dir,
        workers=workers,
        worker_types=parse_types(types) if types else (),
        services=[name for name in SERVICES if worker or name != "worker"],
        coordinators=coordinators,
        nats_url=target.named_nats,
        database_url=database,
        nats_port=nats_port,
        api_host=api_host,
        api_port=api_port,
        gateway_port=gateway_port,
        inline_gateway=inline_gateway,
        handlers=entries_of(handlers),
        config=config,
        log_level=log_level,
    )
    asyncio.run(_serve(platform))


async def _serve(platform: "Platform") -> None:
    import asyncio
    import signal
    import time

    from hocket.cli.terminal.console import notes
    from hocket.cli.terminal.log_lines import follow_warnings, show_warnings

    show_warnings(notes)
    began = time.monotonic()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    notes.print(f"Starting Hocket in {platform.data_dir} ...", style="dim", markup=False)
    starting = asyncio.create_task(platform.__aenter__())
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        return
    await starting
    try:
        _print_summary(platform, time.monotonic() - began)
        following = asyncio.create_task(follow_warnings(notes, platform.log_dir))
        await stopped  # an error in following is no reason to stop
        following.cancel()
        notes.print("Stopping ...", style="dim")
    finally:
        await platform.__aexit__(None, None, None)
    notes.print(f"Hocket has stopped; its data stays in {platform.data_dir}.", markup=False)


def _print_summary(platform: "Platform", took_s: float) -> None:
    from hocket.cli.local.admin_key import FILE as ADMIN_KEY
    from hocket.cli.terminal.console import out
    from hocket.kit.nats.server_urls import without_passwords
    from hocket.kit.process.platform_facts import default_data_dir
    from hocket.schemas.checks.redaction import without_url_passwords

    url_file = platform.backing.nats_url_file
    any_client = "or publish a JSON object on hocket.task.default.NAME with any NATS client"
    rows = [
        ("REST API", f"{platform.api_url}  (docs: {platform.api_url}/docs)"),
        ("models", f"{platform.gateway_url}  (OpenAI's API)"),
        ("NATS", without_passwords(platform.nats_url)),
        ("Postgres", without_url_passwords(platform.database_url)),
        ("data, logs", f"{platform.data_dir}, {platform.log_dir.name}/"),
    ]
    rows.insert(2, ("keys", f"the admin's: {platform.data_dir / ADMIN_KEY}, which `hocket` uses"))
    if url_file is not None:
        rows.insert(4, ("", f"URL with its password: {url_file}"))
    if platform.data_dir != default_data_dir():
        rows.append(("other shells", f"export HOCKET_DATA_DIR={platform.data_dir}"))
    rows += [
        ("", ""),
        ("apply", "hocket pipeline apply FILE"),
        ("run", "hocket run NAME -i question='...'"),
        ("", any_client),
        ("look", "hocket console (in a browser), hocket runs list, hocket cost"),
        ("stop", "Ctrl-C"),
    ]
    out.print(f"Hocket is ready after {took_s:.1f} s.\n", style="bold green")
    for name, text in rows:
        out.print(f"  {name:<14}{text}".rstrip(), markup=False)
