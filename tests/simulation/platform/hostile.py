"""Runs that must harm no other run: events that raise, bombs, and rows that are refused.

They have a random generator of their own, so that plays without them are unchanged. A run's input says
what is wrong with it: `raises` (the kind of event that no rule can apply, or `step`: dispatching one
raises), `gives` (what its handlers return), or a text that the database refuses to store. Bombs are
separate pipelines.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from hocket.coordinator.core.run import work as rules
from hocket.coordinator.core.run.constructs.result_checks import may_tell
from hocket.coordinator.core.run.state.messages import Command, Dispatch
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.partition.command_executor import CommandExecutor
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.events import event_application
from hocket.coordinator.partition.runs import run_acceptance
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import AttemptFinished
from simulation.engine.database import UNSTORABLE
from simulation.engine.swaps import swapped
from simulation.platform.compiled import compiled
from simulation.platform.handlers import GIVES
from simulation.platform.pipelines import CHILD
from simulation.platform.user import Task

BOMB = "bomb"
"""The pipeline with the bomb."""
SET_ASIDE = frozenset({"event_not_applicable", "run_not_storable", "run_not_restorable"})
"""Errors of runs that were set aside; no other run may have one of them."""
MAX_RUN_BYTES = 150_000
"""Maximum size of a run in a play."""
RAISES = (
    "accepted",
    "finished",
    "finished",
    "finished",
    "timer",
    "signal",
    "cancel",
    "step",
    "step",
)
EXPENSIVE = (
    "range(100000) | list",
    "'a' * 1000000000",
    "10 ** 1000",
    "(range(3000) | list) * 3000",
    "'x' | center(100000000)",
    "(range(90000) | map('string') | join) * 100",
    "input.xs.nothing.at.all",
    "input | tojson | tojson | replace('n', 'nnnnnnnnnn' * 100000)",
    "1 // 0",
)
ODD = ("'\\x00'", "'\\ud800'", f"'{UNSTORABLE}'", "'\\u202e'", "2 ** 62", "'x' * 200000")
BODIES = (
    b" ", b"nothing", b"[]", b"7", b"\xff\xfe\xfd", b'{"n": NaN}', b'{"n": 1e999}', b'{"n": 1, "n": 2}',
    b'{"n": 1, "xs": [], "t": "a\\u0000b"}', b'{"n": 1, "xs": [], "t": "\\ud800"}',
    b'{"n": 1180591620717411303424, "xs": []}', b'{"n": -1e308, "xs": [1e308]}',
    b'{"n": 1, "xs": ' + b"[" * 400 + b"]" * 400 + b"}",
    b'{"n": 1, "xs": ' + b"[" * 185 + b"]" * 185 + b"}",
    b'{"n": 1, "xs": [], "t": "' + b"x" * 150_000 + b'"}',
    b'{"n": 1, "xs": [], "\\u0000": 1}',
)  # fmt: skip


class PlantedFault(Exception):
    """An error that no rule expects."""


def drawn(seed: str, documents: list[dict[str, Any]], until_s: float) -> tuple[Any, list[Task]]:
    """Return the pipeline of bombs of a play, or None, and the hostile tasks."""
    dice = Random(f"{seed}:hostile")
    if dice.random() < 0.5:
        return None, []
    bomb = _bomb(dice) if dice.random() < 0.5 else None
    return bomb, [
        _task(dice, f"hostile{number}", documents, bomb, until_s)
        for number in range(dice.choice((1, 1, 2, 3)))
    ]


def _task(
    dice: Random, key: str, documents: list[dict[str, Any]], bomb: Any, until_s: float
) -> Task:
    task = Task(
        at_s=dice.uniform(0.3, until_s),
        pipeline=dice.choice(documents)["pipeline"],
        key=key,
        input={"n": dice.randint(0, 9), "xs": list(range(dice.randint(0, 4)))},
        headers={"Hocket-Reply-To": "_INBOX.reply.h"} if dice.random() < 0.3 else {},
        repeats_s=tuple(dice.choice((0.0, 0.3, 2.5)) for _ in range(dice.choice((0, 0, 1)))),
    )
    how = dice.random()
    if bomb is not None and how < 0.5:
        task.pipeline = BOMB
        task.again = "retry" if dice.random() < 0.2 else None
    elif how < 0.45:
        task.input["raises"] = dice.choice(RAISES)
        task.cancel_after_s = 1.0 if task.input["raises"] == "cancel" else None
        task.again = "retry" if dice.random() < 0.2 else None
    elif how < 0.65:
        task.input["text"] = UNSTORABLE
    elif how < 0.7:
        task.key = f"{key}-{UNSTORABLE}"
    elif how < 0.9:
        task.input["gives"] = dice.choice(GIVES)
    else:
        task.body = dice.choice(BODIES)
    return task


def _bomb(dice: Random) -> dict[str, Any]:
    """Return a pipeline that contains a bomb and compiles."""
    while True:
        document = _document(dice)
        try:
            compiled(document)
        except InvalidInput:
            continue
        return document


def _document(dice: Random) -> dict[str, Any]:
    bomb = dice.choice(EXPENSIVE if dice.random() < 0.6 else ODD)
    victim: dict[str, Any] = {"type": "python", "handler": "sim:quick", "needs": ["a"]}
    document: dict[str, Any] = {
        "pipeline": BOMB,
        "slo_ms": 600_000.0,
        "nodes": {"a": {"type": "python", "handler": "sim:quick"}, "b": victim},
    }
    place = dice.choice(("with", "with", "when", "over", "until", "output", "sub", "runs", "valid"))
    if place == "with":
        victim["with"] = {"x": f"{{{{ {bomb} }}}}"}
    elif place == "when":
        victim["when"] = f"({bomb}) is not none"
    elif place == "over":
        victim["map"] = {"over": dice.choice((bomb, "range(2000) | list", f"[{bomb}] * 4"))}
        victim["with"] = {"x": "{{ item }}"}
    elif place == "until":
        victim["loop"] = {"until": f"({bomb}) is none", "max_rounds": 3, "on_exhausted": "accept"}
        victim["with"] = {"x": "{{ round }}"}
    elif place == "output":
        document["output"] = {"x": f"{{{{ {bomb} }}}}"}
    elif place == "sub":
        document["nodes"]["b"] = {
            "type": "pipeline",
            "pipeline": CHILD,
            "needs": ["a"],
            "with": {"n": 1, "xs": [1], **dice.choice(_HANDED_ON), "y": f"{{{{ {bomb} }}}}"},
        }
    elif place == "runs":
        document["max_runs"] = dice.choice((1, 2, 5))
        document["nodes"]["b"] = {
            "type": "pipeline",
            "pipeline": CHILD,
            "needs": ["a"],
            "map": {"over": "range(5) | list"},
            "with": {"n": 1, "xs": [1], **dice.choice(_HANDED_ON)},
        }
    else:
        branch = {"type": "python", "handler": "sim:quick"}
        document["nodes"]["b"] = {
            "type": "race",
            "needs": ["a"],
            "branches": {"x": branch, "y": {**branch, "handler": "sim:slow"}},
            "valid": f"({bomb}) is none",
        }
    document["nodes"]["c"] = {"type": "python", "handler": "sim:quick"}
    return document


_HANDED_ON: tuple[dict[str, Any], ...] = (
    {}, {}, {"raises": "accepted"}, {"raises": "finished"}, {"raises": "step"}, {"text": UNSTORABLE},
    {"gives": "unstorable"},
)  # fmt: skip


# ---- rules that raise ----------------------------------------------------------------------------


def _wish(value: Any) -> Any:
    return value.get("raises") if isinstance(value, dict) else None


def look_at(event: Any, run_input: Any) -> None:
    """Raise if the run's input says that no rule can apply this kind of event."""
    if _wish(run_input) == event.kind:
        raise PlantedFault(f"{event.kind} of {event.run_id}")


def carry_out(command: Command, run: Run | None) -> None:
    """Raise if the run's input says that its steps cannot be dispatched."""
    if run is None or _wish(run.input.value) != "step" or not isinstance(command, Dispatch):
        return
    if not command.is_external and not command.again:
        raise PlantedFault(f"step {command.step} of {run.run_id}")


@contextmanager
def raising(raised: list[str]) -> Iterator[None]:
    """Make the rules of partitions raise; each run for which one did is appended to `raised`."""
    applying, accepting = event_application.apply, run_acceptance.accept
    carrying_out, executing = DecisionRecorder._carry_out, CommandExecutor.execute
    runs: list[Run] = []
    """The run whose decision is being carried out."""

    def apply_(run: Run, event: Any, *how: Any, **named: Any) -> Outcome:
        capabilities = run.owner.capabilities
        if isinstance(event, AttemptFinished) and not may_tell(run, event, capabilities):
            return applying(run, event, *how, **named)  # the product's own check comes first
        try:
            look_at(event, run.input.value)
        except PlantedFault:
            raised.append(run.run_id)
            applying(run, event, *how, **named)  # these changes of the run must not last
            raise
        return applying(run, event, *how, **named)

    def accept_(event: Any, *how: Any, **named: Any) -> Outcome:
        try:
            look_at(event, event.input)
        except PlantedFault:
            raised.append(event.run_id)
            raise
        return accepting(event, *how, **named)

    def carry_out_(self: Any, run: Run, command: Command, **how: Any) -> None:
        runs[:] = [run]
        carrying_out(self, run, command, **how)

    def execute(self: Any, command: Command) -> None:
        if isinstance(command, Dispatch) and not self._tenure.over:
            run_id = command.run.run_id
            try:
                carry_out(command, next((run for run in runs if run.run_id == run_id), None))
            except PlantedFault:
                raised.append(run_id)
                raise
        executing(self, command)

    with swapped(
        (event_application, "apply", apply_),
        (run_acceptance, "accept", accept_),
        (DecisionRecorder, "_carry_out", carry_out_),
        (CommandExecutor, "execute", execute),
        (rules, "MAX_RUN_STATE_BYTES", MAX_RUN_BYTES),
    ):
        yield
