"""`hocket runs record`: record the answers of a run's models, for tests."""

from typing import Annotated

import typer

from hocket.cli.commands.runs.export import OutputFile
from hocket.cli.remote.target import target_of


def record(
    context: typer.Context,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="ID of a run that has ended.")],
    to: OutputFile = None,
) -> None:
    """Record the model answers of a run and its sub-runs, for tests (docs/how-to/test-pipelines.md).

    The platform must store answers (docs/how-to/content.md), and your key must be allowed to read them.
    """
    from hocket.cli.remote.recording import CannotRecord, recording_of
    from hocket.cli.terminal.console import notes, print_document
    from hocket.cli.terminal.errors import FileUnwritable
    from hocket.testing.recording import MAX_FILE_BYTES

    recording = recording_of(target_of(context).api(), run_id)
    text = recording.model_dump_json(indent=2, exclude_defaults=True) + "\n"
    size = len(text.encode())
    if size > MAX_FILE_BYTES:
        reason = f"its answers take {size:,} bytes, and a test reads at most {MAX_FILE_BYTES:,}"
        raise CannotRecord(run=run_id, reason=reason)
    if to is None:
        print_document(text)
        return
    try:
        to.write_text(text, "utf-8")
    except OSError as error:
        raise FileUnwritable(path=to, reason=error.strerror) from error
    redacted = sum(call.prompt is None for call in recording.calls)
    told = f"{len(recording.calls)} answers of run {run_id} were written to {to}"
    if redacted:
        told += f"; {redacted} of them have no recorded prompt, so their prompts are not compared"
    notes.print(told, markup=False)
