"""The timeline of a run: one row per step, with a bar over time and its slack before the deadline.

In a bar, light shade is an earlier attempt, dots are waiting for a worker, blocks are work, and a line
is a step that contains others. Times are counted from the run's acceptance; slack is the time left at
dispatch beyond what the rest of the run was expected to take.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich.text import Text

from hocket.cli.drawing.amounts import between_ms, count, duration, local, money
from hocket.cli.drawing.columns import fitted, shortened
from hocket.cli.drawing.states import style
from hocket.schemas.ids import by_number

MIN_BAR_CELLS = 12
MIN_STEP_CELLS, MAX_STEP_CELLS = 12, 32
WAIT, WORK, EARLIER, WHOLE = "·", "█", "░", "─"

Json = Mapping[str, Any]


def timeline(run: Json, steps: Sequence[Json], *, width: int, now: str | None = None) -> list[Text]:
    """Return the lines of a run's timeline in `width` cells; a run in flight is drawn until `now`."""
    begun = run["accepted_at"]
    steps, depths = _tree(steps)
    span_ms = max(
        1.0,
        between_ms(begun, run.get("finished_at") or now) or 0.0,
        *(between_ms(begun, step.get("finished_at")) or 0.0 for step in steps),
    )
    table = _columns(begun, steps, depths)
    table, widths = _fitted(table, width - MIN_BAR_CELLS)
    left = sum(widths) + 2 * len(widths)
    cells = max(MIN_BAR_CELLS, width - left)
    lines = [_head(table[0], widths, cells, span_ms)]
    for row, step in zip(table[1:], steps, strict=True):
        line = _cells(row, widths)
        line.stylize(style(step["state"]), widths[0] + 2, widths[0] + 2 + widths[1])
        line.append(_bar(begun, step, span_ms, cells, now))
        line.rstrip()
        lines.append(line)
    return lines


def summary(run: Json) -> list[Text]:
    """Return the lines about a run as a whole."""
    status = run["status"]
    line = Text.assemble(
        ("run ", "dim"),
        (run["run_id"], "bold"),
        f"  {run['pipeline']} v{run['version']}  ",
        (status, style(status)),
    )
    took, allowed = run.get("duration_ms"), between_ms(run["accepted_at"], run["deadline_at"])
    assert allowed is not None, "every run has a deadline"
    if took is not None:
        word = "before" if took <= allowed else "after"
        line.append(f" in {duration(took)}, {duration(abs(allowed - took))} {word} its deadline")
    else:
        line.append(f", deadline {duration(allowed)} after its start")
    if run.get("deadline_paused_at"):
        line.append(f", paused since {local(run['deadline_paused_at'])}")
    return [line, *_labels(run), *_origin(run)]


def held_back(flow: Sequence[Json]) -> list[Text]:
    """Return the limits by key at which a run waits before its first step."""
    lines = []
    for one in flow:
        line = Text.assemble(("waits for ", "yellow"), one["kind"])
        if one["key"]:
            line.append(f", key {one['key']}")
        line.append(f", position {count(one['position'])}, since {local(one['since'])}")
        lines.append(line)
    return lines


def kept_deadline(run: Json) -> str:
    """Return what became of a run's deadline, in a word; one that was cancelled before has none."""
    if run.get("deadline_paused_at"):
        return "paused"
    if run.get("status") == "cancelled":
        over_ms = between_ms(run["deadline_at"], run["finished_at"])
        return "missed" if over_ms is not None and over_ms > 0 else "-"
    return {True: "met", False: "missed", None: "-"}[run["met_deadline"]]


def _labels(run: Json) -> list[Text]:
    pairs = ", ".join(f"{key}={value}" for key, value in (run.get("labels") or {}).items())
    return [Text.assemble(("labels ", "dim"), pairs)] if pairs else []


def _origin(run: Json) -> list[Text]:
    origin = run.get("origin")
    if origin is None:
        return []
    how = "retry of" if origin["operation"] == "retry" else "repeats"
    line = Text.assemble((f"{how} ", "dim"), origin["run_id"])
    if origin["from_step"] is not None:
        edited = ", with the edited input of" if origin["operation"] == "retry" else " from"
        line.append(f"{edited} {origin['from_step']}")
    return [line]


def costs(cost: Json, *, width: int | None = None) -> list[Text]:
    """Return the cost of a run by node: calls, tokens and money, additional charges of steps, and what
    sub-runs cost; in `width` cells, if given."""
    saved = _saved(cost)
    if not any(cost.get(part) for part in ("nodes", "tools", "sub_runs")):
        return [Text("no model calls", "dim"), *saved]
    rows = _cost_rows(cost)
    widths = _widths(rows)
    if width is not None:
        widths = fitted(widths, dict.fromkeys(range(3), 6), width - 2 * (len(widths) - 1))
    lines = [
        Text(
            "  ".join(
                shortened(cell, cells).ljust(cells) if i < 3 else cell.rjust(cells)
                for i, (cell, cells) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
        )
        for row in rows
    ]
    lines[0].stylize("bold")
    lines[-1].stylize("bold")
    return lines + saved


def _cost_rows(cost: Json) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("NODE", "MODEL", "BACKEND", "CALLS", "TOKENS IN", "OUT", "COST")
    ]
    rows += [
        (
            node["node"] or "-",
            node["model"],
            node["backend"],
            count(node["calls"]),
            count(node["input_tokens"]),
            count(node["output_tokens"]),
            money(node["cost_usd"]),
        )
        for node in cost["nodes"]
    ]
    rows += [
        (tool["node"], tool["type"], "", "", "", "", money(tool["cost_usd"]))
        for tool in cost.get("tools", ())
    ]
    rows += [
        (
            part["node"],
            part["pipeline"],
            "1 sub-run" if part["runs"] == 1 else f"{count(part['runs'])} sub-runs",
            count(part["calls"]),
            count(part["input_tokens"]),
            count(part["output_tokens"]),
            money(part["cost_usd"]),
        )
        for part in cost.get("sub_runs", ())
    ]
    total = (count(cost[key]) for key in ("calls", "input_tokens", "output_tokens"))
    rows.append(("total", "", "", *total, money(cost["cost_usd"])))
    return rows


def _saved(cost: Json) -> list[Text]:
    hits = cost.get("cache_hits", 0)
    if not hits:
        return []
    steps = "1 step" if hits == 1 else f"{count(hits)} steps"
    return [Text(f"the cache served {steps} and saved {money(cost['cache_saved_usd'])}", "green")]


def faults(steps: Sequence[Json]) -> list[Text]:
    """Return the error of each failed step, and of each attempt that was retried. A step that failed
    by one inside it is not told again."""
    lines = []
    inside = {(one.get("parent"), one["error"]["message"]) for one in steps if one.get("error")}
    for step in steps:
        told = None
        for attempt in step.get("attempts", ()):
            if attempt.get("error"):
                told = attempt["error"]
                label = f"{step['step']} attempt {attempt['attempt']} {attempt['outcome']}: "
                lines.append(Text.assemble((label, "yellow"), told["message"]))
        was_retried = step["state"] == "succeeded" and step.get("error") == told
        if not step.get("error") or was_retried:
            continue
        if (step["step"], step["error"]["message"]) not in inside:
            label = f"{step['step']} {step['state']}: "
            lines.append(Text.assemble((label, "red"), step["error"]["message"]))
    return lines


def awaited(steps: Sequence[Json]) -> list[Text]:
    """Return what each step waits for if no worker currently takes it."""
    return [
        Text.assemble((f"{step['step']} waits: ", "yellow"), step["waits_for"]["reason"])
        for step in steps
        if step.get("waits_for")
    ]


def done(journal: Sequence[Json]) -> list[Text]:
    """Return what the handlers of steps have done, one line per entry."""
    lines = []
    for entry in journal:
        label = f"{entry['step']} did {entry['branch']}{entry['ordinal']} "
        line = Text.assemble((label, "dim"), f"{entry['kind']} {entry['name']}")
        line.append(f" in {duration(entry['duration_ms'])}, attempt {entry['attempt']}", "dim")
        if Decimal(entry["cost_usd"]):
            line.append(f", {money(entry['cost_usd'])}", "dim")
        if entry.get("error"):
            line.append(f": {entry['error']['message']}", "yellow")
        lines.append(line)
    return lines


HEAD = ("STEP", "STATE", "TRY", "TIME", "DEADLINE", "SLACK")
LEFT = 2
"""How many columns are left-aligned; the others are numbers."""
SPARE = (HEAD.index("DEADLINE"), HEAD.index("SLACK") - 1)
"""The columns that are left out of a narrow drawing, one after the other."""


def _fitted(table: list[tuple[str, ...]], cells: int) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return a table and the widths of its columns in that many cells: names of steps are shortened,
    and if that is not enough, columns are left out."""
    for spare in (*SPARE, None):
        natural = _widths(table)
        room = cells - 2 * len(natural)
        widths = fitted(natural, {0: MIN_STEP_CELLS}, room)
        if spare is None or sum(widths) <= room:
            break
        table = [row[:spare] + row[spare + 1 :] for row in table]
    return table, widths


def _widths(rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]


def _tree(steps: Sequence[Json]) -> tuple[list[Json], list[int]]:
    """Return the steps in tree order, nested ones right below their parent, and the depth of each."""
    known = {step["step"] for step in steps}
    inside: dict[str | None, list[Json]] = {}
    for step in sorted(steps, key=lambda step: (step["ready_at"], by_number(step["step"]))):
        parent = step.get("parent")
        inside.setdefault(parent if parent in known else None, []).append(step)
    ordered, depths = [], []
    stack = [(step, 0) for step in reversed(inside.get(None, ()))]
    while stack:
        step, depth = stack.pop()
        ordered.append(step)
        depths.append(depth)
        stack += [(child, depth + 1) for child in reversed(inside.get(step["step"], ()))]
    return ordered, depths


def _name(step: Json, depth: int) -> str:
    name: str = step["step"]
    if depth and step.get("parent"):
        name = "  " * depth + name.removeprefix(step["parent"]).lstrip("/")
    return shortened(name, MAX_STEP_CELLS)


def _tries(step: Json) -> str:
    """Return the number of the attempt, or what served the step instead."""
    source = step.get("source")
    if source is None:
        return str(step["attempt"])
    return "cache" if source["kind"] == "cache" else "kept"


def _columns(begun: str, steps: Sequence[Json], depths: Sequence[int]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [HEAD]
    for step, depth in zip(steps, depths, strict=True):
        rows.append(
            (
                _name(step, depth),
                step["state"],
                _tries(step),
                duration(step.get("duration_ms")),
                duration(between_ms(begun, step.get("deadline_at"))),
                duration(step.get("slack_ms")),
            )
        )
    return rows


def _head(row: tuple[str, ...], widths: list[int], cells: int, span_ms: float) -> Text:
    line = _cells(row, widths)
    end = duration(span_ms)
    line.append("0" + end.rjust(cells - 1))
    line.stylize("bold")
    return line


def _cells(row: tuple[str, ...], widths: list[int]) -> Text:
    return Text(
        "".join(
            (shortened(cell, width).ljust(width) if i < LEFT else cell.rjust(width)) + "  "
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
    )


def _bar(begun: str, step: Json, span_ms: float, cells: int, now: str | None) -> Text:
    def cell(moment: str | None) -> int | None:
        at_ms = between_ms(begun, moment)
        return None if at_ms is None else min(cells - 1, max(0, int(at_ms / span_ms * cells)))

    bar = [" "] * cells

    def draw(mark: str, first: int | None, last: int | None) -> None:
        for place in _span(first, last):
            bar[place] = mark

    ready, started = cell(step.get("ready_at")), cell(step.get("started_at"))
    ended = cell(step.get("finished_at"))
    if ended is None and step["state"] in _UNDER_WAY:
        ended = cell(now)
    if started is not None or step.get("finished_at") is None:
        draw(WAIT, ready, started if started is not None else ended)
    elif step["state"] not in ("skipped", "cancelled"):
        draw(WHOLE, ready, ended)
    for attempt in step.get("attempts", ()):
        finished = attempt["finished_at"]
        draw(EARLIER, cell(attempt.get("started_at") or finished), cell(finished))
    draw(WORK, started, ended)
    return Text("".join(bar), style(step["state"]))


_UNDER_WAY = ("dispatched", "open", "waiting", "backoff", "looking_up")


def _span(first: int | None, last: int | None) -> range:
    if first is None:
        return range(0)
    return range(first, max(first, last if last is not None else first) + 1)
