"""`hocket doctor`: check every dependency and say what to do."""

from typing import Annotated

import typer

from hocket.cli.remote.target import target_of
from hocket.cli.terminal import exit_codes


def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check every dependency and suggest fixes.

    Checks this machine, each NATS server, streams and their replicas, Postgres and its standbys, what
    processes offer, certificates and clocks. Exits with 0 if nothing is wrong, 1 otherwise.
    """
    import asyncio
    from dataclasses import asdict

    from rich.text import Text

    from hocket.cli.doctor.examination import examine
    from hocket.cli.doctor.findings import Verdict
    from hocket.cli.terminal.console import notes, out, print_json
    from hocket.cli.terminal.log_lines import show_warnings

    signs = {
        Verdict.OK: Text("ok    ", "green"),
        Verdict.NOTE: Text("note  ", "yellow"),
        Verdict.FAILED: Text("FAILED", "bold red"),
    }
    show_warnings(notes)
    findings = asyncio.run(examine(target_of(context)))
    failed = sum(finding.verdict is Verdict.FAILED for finding in findings)
    if as_json:
        print_json([asdict(finding) for finding in findings])
        raise typer.Exit(exit_codes.FAILED if failed else 0)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        line = Text.assemble(signs[finding.verdict], f"  {finding.name:<{width}}  ", finding.found)
        if finding.cure:
            line.append(f"\n{'':{width + 10}}{finding.cure}", "bold")
        out.print(line)
    if failed:
        out.print(f"{failed} of {len(findings)} checks failed.", style="red")
        raise typer.Exit(exit_codes.FAILED)
    out.print("No problems found.", style="green")
