"""`hocket runs compare`: two runs side by side."""

from typing import Annotated, Any

import typer

from hocket.cli.remote.target import target_of

WORDS = {"only_a": "only in A", "only_b": "only in B"}


def compare(
    context: typer.Context,
    a: Annotated[str, typer.Argument(metavar="RUN", help="ID of the run.")],
    b: Annotated[str, typer.Argument(metavar="OTHER", help="ID of the run to compare it with.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two runs node by node: state, time, cost, and the first difference."""
    from hocket.cli.drawing.states import style
    from hocket.cli.remote.api import path
    from hocket.cli.terminal.console import out, print_json, print_table

    found = target_of(context).api().get(path("runs", a, "compare"), other=b)
    if as_json:
        print_json(found)
        return
    for name in "ab":
        run = found[name]
        title = f"{run['pipeline']} v{run['version']}  "
        out.print(f"{name.upper()}  {run['run_id']}  {title}", end="", markup=False)
        out.print(run["status"], style=style(run["status"]))
    out.print()
    rows = [
        (
            one["node"],
            *_side(one["a"]),
            *_side(one["b"]),
            ", ".join(WORDS.get(word, word) for word in one["differs"])
            + (" <- first difference" if one["first"] else ""),
        )
        for one in found["nodes"]
    ]
    columns = ("NODE", "A", "TIME A", "COST A", "B", "TIME B", "COST B", "DIFFERS")
    numbers = ("TIME A", "COST A", "TIME B", "COST B")
    print_table(columns, rows, numbers=numbers, texts=("NODE", "DIFFERS"))
    if found["withheld"]:
        out.print("Inputs and outputs were not compared: your key cannot read them.", style="dim")


def _side(side: dict[str, Any] | None) -> tuple[Any, str, str]:
    from rich.text import Text

    from hocket.cli.drawing.amounts import duration, money
    from hocket.cli.drawing.states import style

    if side is None:
        return "-", "", ""
    steps = f" {side['succeeded']}/{side['steps']}" if side["steps"] > 1 else ""
    state = Text.assemble((side["state"], style(side["state"])), steps)
    return state, duration(side["ran_ms"]), money(side["cost_usd"])
