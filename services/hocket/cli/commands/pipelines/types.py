"""`hocket types`: the node types that workers run."""

from typing import Annotated, Any

import typer

from hocket.cli.remote.api import Api, path
from hocket.cli.remote.target import target_of

PAGE = 500


def types(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(help="Show this node type, with its JSON Schemas.", metavar="TYPE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List node types, built-in and custom, with the workers that currently run them."""
    from hocket.cli.terminal.console import print_json

    api = target_of(context).api()
    if name is not None:
        shown = api.get(path("types", name))
        if as_json:
            print_json(shown)
        else:
            _print_type(shown)
        return
    found = _all(api)
    if as_json:
        print_json(found)
    else:
        _print_list(found)


def _all(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = api.get("/v1/types", after=after or None, limit=PAGE)
        found += page["types"]
        after = page["next"]
    return found


def _print_list(found: list[dict[str, Any]]) -> None:
    from rich.text import Text

    from hocket.cli.terminal.console import print_table

    rows = [
        (
            one["type"],
            "built-in" if one["built_in"] else one["version"],
            str(sum(queue["workers"] for queue in one["queues"])),
            str(sum(queue["slots"] for queue in one["queues"])),
            ", ".join(queue["queue"] for queue in one["queues"])
            if one["is_served"]
            else Text("no worker runs it", "red"),
            " ".join(one["description"].split()),
        )
        for one in found
    ]
    columns = ("TYPE", "VERSION", "WORKERS", "SLOTS", "QUEUES", "DESCRIPTION")
    print_table(columns, rows, numbers=("WORKERS", "SLOTS"), texts=("QUEUES", "DESCRIPTION"))


def _print_type(one: dict[str, Any]) -> None:
    from hocket.cli.drawing.amounts import local
    from hocket.cli.terminal.console import out, print_json

    served = "" if one["is_served"] else "  no worker runs it"
    kind = "built-in" if one["built_in"] else "of your own"
    out.print(f"{one['type']}  {kind}{served}", style="bold", markup=False)
    for queue in one["queues"]:
        text = f"  queue {queue['queue']}: {queue['workers']} workers, {queue['slots']} slots"
        out.print(text, markup=False)
    for version in one["versions"]:
        seen = local(version["last_seen_at"])
        head = f"\nversion {version['version']}  {version['workers']} workers, last seen {seen}"
        out.print(head, style="bold", markup=False)
        if version["description"]:
            out.print(version["description"], markup=False)
        for fault in version.get("faults", ()):
            out.print(fault, style="yellow", markup=False)
        told = ("concurrency", "timeout_ms", "effects", "usd_per_second")
        print_json({name: version[name] for name in (*told, "config", "input", "output")})
