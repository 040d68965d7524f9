"""`hocket import`: convert workflows of other systems into pipelines."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Import workflows from other formats as pipelines.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Import workflows from other formats as pipelines."""


@app.command("wfformat")
def wfformat(
    file: Annotated[
        str, typer.Argument(help="WfFormat JSON, optionally gzipped; `-` for standard input.")
    ],
    scale: Annotated[
        float, typer.Option(min=0, max=1e6, help="Factor by which to multiply the tasks' runtimes.")
    ] = 1.0,
    handler: Annotated[
        str | None,
        typer.Option(
            help="Function that runs the tasks: `module:function`.  [default: one that sleeps]"
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the pipeline; defaults to the name in the file.")
    ] = None,
    details: Annotated[
        bool, typer.Option(help="Also give each step its task's program, arguments and files.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write (JSON if so named) instead of standard output."
        ),
    ] = None,
) -> None:
    """Import a WfCommons workflow instance as a pipeline: one `python` node per task.

    Each step gets its task's ID and (scaled) runtime. The default handler sleeps for that long.
    """
    from hocket.cli.importing.wfformat import REPLAY_HANDLER, pipeline_of
    from hocket.cli.terminal.console import notes, print_document
    from hocket.cli.terminal.sources import read_unpacked
    from hocket.schemas.checks.plain_json import parse_json
    from hocket.schemas.pipeline.plan import compile_pipeline

    document = parse_json(read_unpacked(file), "(document)")
    chosen = REPLAY_HANDLER if handler is None else handler
    pipeline = pipeline_of(document, name=name, scale=scale, handler=chosen, details=details)
    compile_pipeline(pipeline)
    text = _text(pipeline, as_json=output is not None and output.suffix == ".json")
    _check_size(text)
    if output is None:
        print_document(text)
        return
    _write(output, text)
    count = len(pipeline["nodes"])
    notes.print(f"pipeline {pipeline['pipeline']} with {count} nodes was written to {output}")


def _text(pipeline: dict[str, object], *, as_json: bool) -> str:
    import json

    from hocket.cli.terminal.safe_text import visible_yaml

    if as_json:
        return json.dumps(pipeline, indent=2, ensure_ascii=False) + "\n"
    return visible_yaml(pipeline)


def _check_size(text: str) -> None:
    from hocket.schemas.errors import InvalidInput
    from hocket.schemas.pipeline.document import MAX_DOCUMENT_BYTES

    size = len(text.encode())
    if size > MAX_DOCUMENT_BYTES:
        raise InvalidInput(
            field="(document)",
            reason=f"its pipeline has {size} bytes; the limit is {MAX_DOCUMENT_BYTES}",
            cure="Import it without --details, or split it.",
        )


def _write(path: Path, text: str) -> None:
    from hocket.cli.terminal.errors import FileUnwritable

    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise FileUnwritable(path=path, reason=error.strerror) from error
