"""`hocket runs record`: what the models of a run answered, for tests."""

from pathlib import Path
from typing import Annotated

import typer

from hocket.cli.remote.target import target_of


def record(
    context: typer.Context,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run that has ended.")],
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it there; otherwise it is printed.")
    ] = None,
) -> None:
    """Record what models answered in a run and its sub-runs, as JSON for tests
    (docs/how-to/test-pipelines.md). The platform has to keep answers (docs/how-to/content.md), and your
    key has to see them."""
    from hocket.cli.remote.recording import recording_of
    from hocket.cli.terminal.console import notes

    recording = recording_of(target_of(context).api(), run_id)
    text = recording.model_dump_json(indent=2, exclude_defaults=True) + "\n"
    if to is None:
        typer.echo(text, nl=False)
        return
    to.write_text(text, "utf-8")
    redacted = sum(call.prompt is None for call in recording.calls)
    told = f"{len(recording.calls)} answers of run {run_id} stand in {to}"
    if redacted:
        told += f"; what {redacted} of them answer is not known as it was asked, and not compared"
    notes.print(told, markup=False)
