"""`hocket pipeline diff`, `release`, `activate`, `rollback`, `canary`, `archive`, `delete`: which
version runs use."""

from typing import Annotated, Any

import typer

from hocket.cli.remote.api import path
from hocket.cli.remote.target import target_of

Name = Annotated[str, typer.Argument(help="Name of the pipeline.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
IfMatch = Annotated[
    int | None,
    typer.Option(
        "--if-revision", min=0, help="Proceed only if the release still has this revision."
    ),
]
PERCENT = 100
CANARY_PERCENT = 10
CANARY_MIN_RUNS = 100
SHOWN_CHARS = 100
"""How much is shown of a value that differs."""


def diff(
    context: typer.Context,
    name: Name,
    before: Annotated[int, typer.Argument(min=1, help="Version to compare from.")],
    after: Annotated[
        int | None, typer.Argument(min=1, help="Version to compare with; defaults to the newest.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the differences between two versions of a pipeline."""
    from hocket.cli.terminal.console import notes, print_json, print_table

    place = path("pipelines", name, "diff")
    found = target_of(context).api().get(place, before=before, after=after)
    if as_json:
        print_json(found)
        return
    rows = [(_field(one), _short(one["before"]), _short(one["after"])) for one in found["changes"]]
    columns = ("FIELD", f"VERSION {found['before']}", f"VERSION {found['after']}")
    print_table(columns, rows, texts=columns[-1:])
    if found["truncated"]:
        notes.print("There are more differences; these are the first.")


def release(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show which version is used by runs that do not name one."""
    _say(target_of(context).api().get(path("pipelines", name, "release")), as_json=as_json)


def activate(
    context: typer.Context,
    name: Name,
    version: Annotated[
        int | None,
        typer.Argument(min=1, help="Version to activate; without it, always use the newest."),
    ] = None,
    revision: IfMatch = None,
    as_json: AsJson = False,
) -> None:
    """Make runs use a version until another one is activated."""
    _post(context, name, "activate", revision, {"version": version}, as_json=as_json)


def rollback(
    context: typer.Context, name: Name, revision: IfMatch = None, as_json: AsJson = False
) -> None:
    """Make runs use the previously active version again."""
    _post(context, name, "rollback", revision, as_json=as_json)


def canary(
    context: typer.Context,
    name: Name,
    version: Annotated[
        int | None,
        typer.Argument(
            min=1, help="Version that a share of the runs use; without it, show the current canary."
        ),
    ] = None,
    percent: Annotated[
        float | None,
        typer.Option(
            "--percent",
            min=0.01,
            max=99.99,
            help=f"Percentage of runs that use it; {CANARY_PERCENT} by default.",
        ),
    ] = None,
    min_runs: Annotated[
        int | None,
        typer.Option(
            "--min-runs",
            min=1,
            help=f"Runs of the version required before it is judged; {CANARY_MIN_RUNS} by default.",
        ),
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="End the canary: all runs use the active version.")
    ] = False,
    revision: IfMatch = None,
    as_json: AsJson = False,
) -> None:
    """Start, show or end a canary: another version that a share of the runs use.

    It ends automatically if more of its runs fail or expire than those of the active version. If no
    version is activated yet, it activates the one that runs use now. That one stays activated when the
    canary ends; `hocket pipeline activate NAME` makes runs use the newest again.
    """
    from hocket.cli.terminal.console import print_json

    _check_canary(version, percent, min_runs, revision, end=end)
    api, place = target_of(context).api(), path("pipelines", name, "canary")
    if end:
        _say(api.delete(place, if_match=_etag(revision)), as_json=as_json)
    elif version is None:
        found = api.get(place)
        print_json(found) if as_json else _print_report(found)
    else:
        share = (CANARY_PERCENT if percent is None else percent) / PERCENT
        required = CANARY_MIN_RUNS if min_runs is None else min_runs
        body = {"version": version, "share": share, "min_runs": required}
        _say(api.put(place, body, if_match=_etag(revision)), as_json=as_json)


def _check_canary(
    version: int | None,
    percent: float | None,
    min_runs: int | None,
    revision: int | None,
    *,
    end: bool,
) -> None:
    """Raise typer.BadParameter for what would be ignored: a canary would not be as it was asked for."""
    started = {"--percent": percent, "--min-runs": min_runs}
    option = next((name for name, value in started.items() if value is not None), None)
    if end and version is not None:
        raise typer.BadParameter("--end ends the canary, whatever its version; leave VERSION out")
    if end and option is not None:
        raise typer.BadParameter(f"{option} starts a canary; use it without --end")
    if version is None and option is not None:
        raise typer.BadParameter(f"{option} starts a canary; name its VERSION")
    if version is None and not end and revision is not None:
        raise typer.BadParameter("--if-revision is for a change; name a VERSION, or use --end")


def archive(
    context: typer.Context, name: Name, revision: IfMatch = None, as_json: AsJson = False
) -> None:
    """Archive a pipeline: it accepts no new runs and is left out of lists."""
    _post(context, name, "archive", revision, as_json=as_json)


def unarchive(
    context: typer.Context, name: Name, revision: IfMatch = None, as_json: AsJson = False
) -> None:
    """Unarchive a pipeline, so that it accepts new runs again."""
    _post(context, name, "unarchive", revision, as_json=as_json)


def delete(context: typer.Context, name: Name, revision: IfMatch = None) -> None:
    """Delete an archived pipeline that has no stored runs."""
    target_of(context).api().delete(path("pipelines", name), if_match=_etag(revision))
    typer.echo(f"{name} is deleted")


def add_to(app: typer.Typer) -> None:
    """Add these commands to a group."""
    for command in (diff, release, activate, rollback, canary, archive, unarchive, delete):
        app.command(command.__name__)(command)


def _post(
    context: typer.Context,
    name: str,
    action: str,
    revision: int | None,
    body: dict[str, Any] | None = None,
    *,
    as_json: bool,
) -> None:
    place = path("pipelines", name, action)
    _say(target_of(context).api().post(place, body, if_match=_etag(revision)), as_json=as_json)


def _etag(revision: int | None) -> str | None:
    return None if revision is None else f'"{revision}"'


def _say(found: dict[str, Any], *, as_json: bool) -> None:
    from hocket.cli.terminal.console import out, print_json

    if as_json:
        print_json(found)
        return
    name, active = found["pipeline"], found["active_version"]
    if found["archived_at"]:
        out.print(f"{name} is archived and accepts no new runs")
        return
    kept = "activated" if found["pinned"] else "the newest"
    out.print(f"runs of {name} use version {active}, {kept}", markup=False)
    if canary := found["canary"]:
        share = f"{canary['share'] * PERCENT:g} %"
        out.print(f"{share} of them use version {canary['version']}", markup=False)
    elif found["newest_version"] != active:
        out.print(f"version {found['newest_version']} is the newest", markup=False)


def _print_report(found: dict[str, Any]) -> None:
    from hocket.cli.drawing.amounts import duration
    from hocket.cli.terminal.console import out, print_table

    rows = [
        (
            f"{one['version']} {'canary' if side == 'candidate' else 'active'}",
            *(f"{one[name]:,}" for name in ("runs", "failed", "expired")),
            "" if one["failure_ratio"] is None else f"{one['failure_ratio'] * PERCENT:.1f} %",
            "" if one["p95_ms"] is None else duration(one["p95_ms"]),
        )
        for side in ("active", "candidate")
        for one in (found[side],)
    ]
    columns = ("VERSION", "RUNS", "FAILED", "EXPIRED", "BAD", "P95")
    print_table(columns, rows, numbers=columns[1:])
    out.print(VERDICTS[found["verdict"]].format(**found["canary"]), markup=False)


VERDICTS = {
    "undecided": "Version {version} cannot be judged yet: it needs at least {min_runs} runs.",
    "as_good": "Version {version} is as good.",
    "worse": "Version {version} is worse.",
}


def _field(change: dict[str, Any]) -> str:
    return f"{change['path']} (order)" if change.get("order") else str(change["path"])


def _short(value: Any) -> str:
    import json

    text = "" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
