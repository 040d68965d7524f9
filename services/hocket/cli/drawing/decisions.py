"""The explanation of a call: one block per attempt, with the replicas considered, best first.

The first line of a block gives the outcome of the attempt, the second the reason for its destination,
followed by one line per replica; `>` marks the chosen one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from hocket.cli.drawing.amounts import count, duration, local, money

MAX_NAME_CELLS = 40

Json = Mapping[str, Any]


def explained_lines(explained: Json) -> Iterator[Text]:
    """Yield the lines for the attempts of a call, or of a run's calls, or the reason why no backend was
    asked."""
    for attempt in explained.get("attempts", ()):
        yield from _attempt(attempt)
    for still_open in explained.get("open", ()):
        yield _open(still_open)
    refused = explained.get("refused")
    if refused:
        head = Text(
            f"{refused['call_id']}  {refused['model']}: no backend was called", style="bold"
        )
        head.append(f"  {refused['error_code']}", style="red")
        yield head
        yield Text(f"  {refused['reason']}  ({local(refused['refused_at'])})")


def _attempt(attempt: Json) -> Iterator[Text]:
    where = _key(attempt)
    head = Text(f"{attempt['call_id']}  {attempt['model']} -> {where}", style="bold")
    good = attempt["status"] == "ok"
    head.append(f"  {attempt['status']}", style="green" if good else "red")
    if attempt["error_code"]:
        head.append(f" ({attempt['error_code']})", style="red")
    if attempt["kind"] != "call":
        head.append(f"  {attempt['kind']}", style="yellow")
    if attempt["experiment"]:
        head.append(f"  {attempt['experiment']}: arm {attempt['arm']}", style="cyan")
    yield head
    tokens = f"{count(attempt['input_tokens'])} in, {count(attempt['output_tokens'])} out"
    spent = f"  {duration(attempt['latency_ms'])}, {tokens}, {money(attempt['cost_usd'])}"
    yield Text(f"{spent}, began {local(attempt['started_at'])}", style="dim")
    decision = attempt["decision"]
    if decision:
        yield from _decision(decision, where)


def _decision(decision: Json, chosen: str) -> Iterator[Text]:
    why = f"  {decision['reason']}"
    if decision["because"]:
        why += f"; {decision['because']}"
    if decision["queue_ms"] >= 1:
        why += f"; waited {duration(decision['queue_ms'])}"
    if decision["tried"]:
        why += f"; tried before: {', '.join(decision['tried'])}"
    yield Text(why)
    candidates = decision["candidates"]
    cells = min(max((len(one["backend"]) for one in candidates), default=0), MAX_NAME_CELLS)
    for one in candidates:
        taken = one["backend"] == chosen and not one["refused"]
        line = Text(f"  {'>' if taken else ' '} {one['backend']:<{cells}}  ")
        line.append(one["refused"] or f"score {_score(one['score'])}")
        line.stylize("" if taken else "dim")
        yield line
    if decision["left_out"]:
        yield Text(f"    and {decision['left_out']} more", style="dim")


def _open(still_open: Json) -> Text:
    line = Text(f"{still_open['call_id']}  {still_open['model']} -> {_key(still_open)}")
    since = f"since {local(still_open['started_at'])} at {still_open['gateway'] or '?'}"
    line.append(f"  not booked: in progress, or lost with its gateway ({since})", style="yellow")
    return line


def _key(attempt: Json) -> str:
    replica = attempt["replica"]
    return f"{attempt['backend']}/{replica}" if replica else str(attempt["backend"])


def _score(score: list[float]) -> str:
    return " ".join(f"{one:g}" for one in score)
