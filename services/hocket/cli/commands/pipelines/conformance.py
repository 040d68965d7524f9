"""`hocket conformance`: check whether a worker follows the protocol."""

from typing import Annotated

import typer

app = typer.Typer(help="Check programs against the platform's protocols.", no_args_is_help=True)


@app.command("worker", context_settings={"allow_interspersed_args": False})
def worker(
    command: Annotated[
        list[str], typer.Argument(help="Command that starts the worker, after `--`.")
    ],
    only: Annotated[str, typer.Option(help="Run only these checks (comma-separated).")] = "",
    journal: Annotated[
        bool, typer.Option("--journal", help="Also check the journal protocol.")
    ] = False,
    waits: Annotated[
        bool, typer.Option("--waits", help="Also check handlers that wait for signals.")
    ] = False,
    calls: Annotated[
        bool, typer.Option("--calls", help="Also check handlers that call nodes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a worker process, in any language, against the worker protocol.

    The worker must run the node type `conformance.step` (docs/reference/worker-protocol.md). It gets
    NATS_URL and HOCKET_BLOBS_DIR. Exits with 1 if a check fails.
    """
    import asyncio

    from hocket.cli.conformance.checks import CHECKS
    from hocket.cli.conformance.journal_checks import CALL_CHECKS, JOURNAL_CHECKS, WAIT_CHECKS
    from hocket.cli.conformance.play import play
    from hocket.cli.terminal.console import notes, print_json
    from hocket.cli.terminal.log_lines import show_warnings

    every = [*CHECKS, *JOURNAL_CHECKS, *WAIT_CHECKS, *CALL_CHECKS]
    beside = ((journal, JOURNAL_CHECKS), (waits, WAIT_CHECKS), (calls, CALL_CHECKS))
    chosen = [*CHECKS, *(name for is_asked, names in beside if is_asked for name in names)]
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    wanted = wanted or chosen
    for name in wanted:
        if name not in every:
            raise typer.BadParameter(f"there is no check `{name}`; use {', '.join(every)}")
    show_warnings(notes)
    found = asyncio.run(play(command, wanted))
    failed = sum(fault is not None for fault in found.values())
    if as_json:
        print_json([{"check": name, "fault": fault} for name, fault in found.items()])
    else:
        _print(found, failed)
    if failed:
        raise typer.Exit(1)


def _print(found: dict[str, str | None], failed: int) -> None:
    from hocket.cli.terminal.console import out

    for name, fault in found.items():
        told = f": {fault}" if fault else ""
        out.print(f"{'FAIL' if fault else 'ok  '} {name}{told}", markup=False)
    out.print(f"{len(found) - failed} of {len(found)} checks passed", markup=False)
