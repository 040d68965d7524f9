"""`hocket pipeline`: apply, list, show and validate pipelines; the rest is in `releases`."""

from typing import Annotated, Any

import typer

from hocket.cli.remote.target import target_of

app = typer.Typer(
    help="Pipelines, their versions, and the version that runs use.", no_args_is_help=True
)

File = Annotated[str, typer.Argument(help="Pipeline file in YAML or JSON; `-` for standard input.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("apply")
def apply(context: typer.Context, file: File, as_json: AsJson = False) -> None:
    """Apply FILE as the pipeline's next version; an unchanged spec creates no new version."""
    from hocket.cli.terminal.console import notes, out, print_json

    document = _document(file)
    _compile(document)
    reply = target_of(context).api().post("/v1/pipelines", document)
    if as_json:
        print_json(reply)
        return
    done = "applied" if reply["created"] else "unchanged"
    out.print(f"pipeline {reply['pipeline']} version {reply['version']} {done}")
    for warning in reply["warnings"]:
        notes.print(f"Warning: {warning}")


@app.command("validate")
def validate(context: typer.Context, file: File, as_json: AsJson = False) -> None:
    """Check FILE without storing it.

    Works without a platform; if one is running, the names of models and sub-pipelines are checked too.
    """
    from hocket.cli.terminal.console import notes, out, print_json

    document = _document(file)
    name, nodes = _compile(document)
    target = target_of(context)
    warnings = ["No platform is running here, so model names were not checked."]
    if target.api_url is not None:
        warnings = target.api().post("/v1/pipelines/validate", document)["warnings"]
    if as_json:
        print_json({"pipeline": name, "nodes": nodes, "warnings": warnings})
        return
    out.print(f"pipeline {name} is valid: {nodes} node{'' if nodes == 1 else 's'}")
    for warning in warnings:
        notes.print(f"Warning: {warning}")


@app.command("list")
def list_(
    context: typer.Context,
    archived: Annotated[
        bool, typer.Option("--archived", help="List archived pipelines instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List pipelines with their latest version and the version that runs use."""
    from hocket.cli.drawing.amounts import duration, local
    from hocket.cli.terminal.console import print_json, print_table

    found: list[dict[str, Any]] = []
    while True:
        after = found[-1]["pipeline"] if found else None
        asked = {"after": after, "limit": PAGE, "archived": archived or None}
        page = target_of(context).api().get("/v1/pipelines", **asked)["pipelines"]
        found += page
        if len(page) < PAGE:
            break
    if as_json:
        print_json(found)
        return
    rows = [
        (
            item["pipeline"],
            str(item["version"]),
            str(item["active_version"]),
            item["class"],
            duration(item["slo_ms"]),
            str(item["nodes"]),
            local(item["created_at"]),
            item["description"],
        )
        for item in found
    ]
    columns = ("PIPELINE", "VERSION", "ACTIVE", "CLASS", "SLO", "NODES", "APPLIED", "DESCRIPTION")
    numbers = ("VERSION", "ACTIVE", "SLO", "NODES")
    print_table(columns, rows, numbers=numbers, texts=("DESCRIPTION",))


@app.command("show")
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the pipeline.")],
    version: Annotated[
        int | None, typer.Option(help="Version to show instead of the latest.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a version of a pipeline as YAML, omitting fields with default values."""
    from hocket.cli.remote.api import path
    from hocket.cli.terminal.console import notes, print_document, print_json
    from hocket.cli.terminal.safe_text import visible_yaml
    from hocket.schemas.pipeline.spec import parse_pipeline

    detail = target_of(context).api().get(path("pipelines", name), version=version)
    if as_json:
        print_json(detail)
        return
    pipeline = parse_pipeline(detail["spec"])
    short = pipeline.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    print_document(visible_yaml(short))
    notes.print(f"version {detail['version']} of {detail['versions'][0]}", style="dim")


PAGE = 500


def _document(file: str) -> Any:
    from hocket.cli.terminal.sources import read_text
    from hocket.schemas.pipeline.document import parse_document

    return parse_document(read_text(file))


def _compile(document: Any) -> tuple[str, int]:
    from hocket.schemas.pipeline.plan import compile_pipeline

    plan = compile_pipeline(document)
    return plan.pipeline.pipeline, len(plan.by_path)
