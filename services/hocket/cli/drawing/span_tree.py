"""The tree of a trace: one row per span, indented below its parent, with its time as a bar and a
note."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich.text import Text

from hocket.cli.drawing.amounts import between_ms, count, duration, money
from hocket.cli.drawing.columns import fitted, shortened
from hocket.cli.drawing.states import style
from hocket.schemas.tracing import attributes as names

MAX_NAME_CELLS = 46
MIN_BAR_CELLS = 12
MAX_NOTE_CELLS = 44
WAIT, WORK, HOLDS = "·", "█", "─"
SHORTEST_WAIT_MS = 1.0
"""Shorter waits are not drawn, unless all spans are requested."""

Json = Mapping[str, Any]


def span_tree(trace: Json, *, width: int, now: str, every: bool = False) -> list[Text]:
    """Return the lines of a trace in `width` cells. Unfinished spans are drawn until `now`. Negligible
    waits, and requests that are the only one of their call, are left out unless `every`."""
    spans = trace["spans"]
    begun = spans[0]["started_at"]
    drawn, depths, left_out = _chosen(spans, every=every)
    end_ms = max(1.0, *(between_ms(begun, span["ended_at"] or now) or 0.0 for span in spans))
    requests = _requests(spans)
    rows = [HEAD] + [
        (
            label,
            _from(begun, span),
            duration(span["duration_ms"]) if span["ended_at"] else "goes on",
            shortened(_note(span, requests), MAX_NOTE_CELLS),
        )
        for span, label in zip(drawn, _labels(drawn, depths), strict=True)
    ]
    widths = _widths(rows, width - 2 * len(HEAD) - MIN_BAR_CELLS)
    cells = max(MIN_BAR_CELLS, width - sum(widths) - 2 * len(widths))
    head = _cells(HEAD, widths, "0" + duration(end_ms).rjust(cells - 1))
    head.stylize("bold")
    lines = [head]
    for row, span in zip(rows[1:], drawn, strict=True):
        line = _cells(row, widths, _bar(begun, span, end_ms, cells, now))
        line.stylize(_style(span), 0, widths[0])
        line.rstrip()
        lines.append(line)
    if left_out:
        lines.append(Text(f"{count(left_out)} spans are not shown: --all shows all of them", "dim"))
    if trace["truncated"]:
        lines.append(Text("The trace is longer; only its first spans are shown.", "dim"))
    return lines


def trace_summary(trace: Json) -> list[Text]:
    """Return the lines about a trace as a whole."""
    top = trace["spans"][0]
    said = top["attributes"]
    status = said.get(names.STATUS, "")
    line = Text.assemble(
        ("run ", "dim"),
        (trace["run_id"], "bold"),
        f"  {said.get(names.PIPELINE, '')} v{said.get(names.VERSION, '')}  ",
        (status, style(status)),
    )
    if top["ended_at"]:
        line.append(f" in {duration(top['duration_ms'])}")
    calls = [_usd(span) for span in trace["spans"] if _is_call(span)]
    # the run's has what tools charged, but not yet the calls of steps under way
    cost = max(_usd(top), sum(calls, Decimal(0)))
    line.append(f", {_counted(len(calls), 'model call')}, {money(cost)}")
    return [line, Text.assemble(("trace ", "dim"), trace["trace_id"])]


def _usd(span: Json) -> Decimal:
    return Decimal(str(span["attributes"].get(names.COST, 0)))


HEAD = ("SPAN", "FROM", "TIME", "")


def _widths(rows: Sequence[Sequence[str]], cells: int) -> list[int]:
    """Return the widths of the columns in that many cells: notes are shortened first, then labels."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    for least in ({3: 12}, {0: 20}, {0: 12, 3: 6}):
        widths = fitted(widths, least, cells)
    return widths


def _chosen(spans: Sequence[Json], *, every: bool) -> tuple[list[Json], list[int], int]:
    """Return the spans to draw, the depth of each, and how many are left out."""
    depth: dict[str, int] = {}
    shown: list[Json] = []
    depths: list[int] = []
    alone = _alone(spans)
    for span in spans:
        depth[span["span_id"]] = depth.get(span["parent_id"], -1) + 1
        too_short = span["name"] == "queue" and (span["duration_ms"] or 0) < SHORTEST_WAIT_MS
        if every or not (too_short or span["span_id"] in alone):
            shown.append(span)
            depths.append(depth[span["span_id"]])
    return shown, depths, len(spans) - len(shown)


def _alone(spans: Sequence[Json]) -> set[str]:
    """Return the requests that are the only one of their call; the call's row shows the same."""
    by_call: dict[str, list[str]] = {}
    for span in spans:
        if span["kind"] == "client" and names.CALL in span["attributes"]:
            by_call.setdefault(span["attributes"][names.CALL], []).append(span["span_id"])
    return {found[0] for found in by_call.values() if len(found) == 1}


def _requests(spans: Sequence[Json]) -> Mapping[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for span in spans:
        if span["kind"] == "client" and names.CALL in span["attributes"]:
            found.setdefault(span["attributes"][names.CALL], []).append(span)
    return found


def _labels(spans: Sequence[Json], depths: Sequence[int]) -> Iterator[str]:
    """Yield the name of each span with the lines that lead to it."""
    for span, goes_on in zip(spans, _followed(depths), strict=True):
        marks = ["│  " if follows else "   " for follows in goes_on[:-1]]
        marks += ["├─ " if follows else "└─ " for follows in goes_on[-1:]]
        yield shortened("".join(marks) + _name(span), MAX_NAME_CELLS)


def _followed(depths: Sequence[int]) -> list[list[bool]]:
    """Return, for each span and each level from 1 to its depth, whether another span of that level
    follows under the same parent."""
    found: list[list[bool]] = []
    follows: list[bool] = []  # by level, as seen from the span
    for depth in reversed(depths):
        follows += [False] * (depth + 1 - len(follows))
        found.append(follows[1 : depth + 1])
        follows[depth:] = [True]
    return found[::-1]


def _name(span: Json) -> str:
    said = span["attributes"]
    if span["name"].startswith("step "):
        return str(said.get(names.STEP, span["name"]))
    if names.OUTCOME in said or (int(said.get(names.ATTEMPT, 1)) > 1 and names.NODE in said):
        return f"{span['name']}, attempt {said[names.ATTEMPT]}"
    return str(span["name"])


def _note(span: Json, requests: Mapping[str, list[Json]]) -> str:
    """Return what is worth knowing about a span besides its time."""
    said = span["attributes"]
    parts: list[str] = []
    if _is_call(span):
        mine = requests.get(said[names.CALL], [])
        if len(mine) == 1:
            parts.append(_tokens(mine[0]["attributes"]))
        parts += _cost(said)
    elif names.GEN_AI_INPUT_TOKENS in said:
        parts += [_tokens(said), *_cost(said)]
    elif names.STATE in said:
        if said[names.STATE] not in ("succeeded", "open"):
            parts.append(said[names.STATE])
        if names.SOURCE in said:
            parts.append(f"from the {said[names.SOURCE]}")
    if names.ERROR_TYPE in said:
        parts.append(said[names.ERROR_TYPE])
    return " ".join(parts)


def _cost(said: Json) -> list[str]:
    usd = Decimal(str(said.get(names.COST, 0)))
    return [money(usd)] if usd else []


def _tokens(said: Json) -> str:
    used = f"{count(said[names.GEN_AI_INPUT_TOKENS])}→{count(said[names.GEN_AI_OUTPUT_TOKENS])} tok"
    return f"{said.get(names.BACKEND, '')} {used}"


def _is_call(span: Json) -> bool:
    return span["name"].startswith("call ") and names.CALL in span["attributes"]


def _style(span: Json) -> str:
    if span["status"] == "error":
        return "red"
    if span["ended_at"] is None:
        return "cyan"
    return "dim" if span["name"] == "queue" else ""


def _from(begun: str, span: Json) -> str:
    return duration(between_ms(begun, span["started_at"]))


def _bar(begun: str, span: Json, end_ms: float, cells: int, now: str) -> str:
    first_ms = between_ms(begun, span["started_at"]) or 0.0
    last_ms = between_ms(begun, span["ended_at"] or now) or 0.0
    first = min(cells - 1, max(0, int(first_ms / end_ms * cells)))
    last = min(cells, max(first + 1, round(last_ms / end_ms * cells)))
    holds = span["name"].startswith(("invoke_workflow ", "step "))
    mark = WAIT if span["name"] == "queue" else HOLDS if holds else WORK
    return " " * first + mark * (last - first)


def _cells(row: Sequence[str], widths: Sequence[int], bar: str) -> Text:
    label, begun, took, note = row
    label, note = shortened(label, widths[0]), shortened(note, widths[3])
    return Text(
        f"{label.ljust(widths[0])}  {begun.rjust(widths[1])}  {took.rjust(widths[2])}  "
        f"{note.ljust(widths[3])}  {bar}"
    )


def _counted(number: int, what: str) -> str:
    return f"{count(number)} {what}{'' if number == 1 else 's'}"
