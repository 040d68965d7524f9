"""The fields of a schedule's form: to the body of the REST API, and from a stored schedule. Pure."""

from decimal import Decimal
from typing import Any

from hocket.admin.console.creation.form import Reading, filled
from hocket.admin.console.creation.posted import Typed
from hocket.admin.console.rendering import is_cut, pretty
from hocket.schemas.administration.schedules import Schedule, ScheduleBody, Timing
from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import InvalidInput
from hocket.schemas.labels import header_of

LABELS = {
    "name": "Name",
    "description": "Description",
    "task.pipeline": "Pipeline",
    "cron": "Times, as a cron expression",
    "time_zone": "Time zone",
    "task.input": "Input, JSON",
    "overlap": "On overlap",
    "catch_up": "After an outage",
    "catch_up_window_s": "Catch-up window, s",
    "jitter_s": "Jitter, s",
    "time_field": "Field for the time",
    "task.version": "Version",
    "task.class": "Class",
    "task.deadline_ms": "Deadline, ms",
    "task.budget_usd": "Budget, $",
    "task.labels": "Labels",
    "paused": "Paused",
}
"""The fields in the order of the form, named as in the REST API, with what people read."""
NEW = {
    "time_zone": "UTC",
    "task.input": "{}",
    "overlap": "skip",
    "catch_up": "one",
    "catch_up_window_s": "86400",
    "jitter_s": "0",
}
"""What an empty form says: the API's defaults."""
OVERLAPS = {
    "skip": "skip: leave the time out",
    "allow": "allow: begin another run",
    "buffer_one": "buffer one: begin when the run ends",
    "cancel_running": "cancel running: cancel the run, then begin",
}
CATCH_UPS = {
    "one": "one: submit the latest missed time",
    "all": "all: submit every missed time",
    "none": "none: leave missed times out",
}
"""What can be chosen, as in the REST API, and what it does."""
MORE = (
    "catch_up_window_s", "jitter_s", "time_field", "task.version", "task.class", "task.deadline_ms",
    "task.budget_usd", "task.labels",
)  # fmt: skip
"""The fields that are folded up."""


def new_schedule(pipeline: str) -> Typed:
    """Return the form of a new schedule of a pipeline, or of one still to be chosen."""
    return Typed({name: (text,) for name, text in {**NEW, "task.pipeline": pipeline}.items()})


def read_schedule(typed: Typed, *, is_new: bool) -> tuple[str, ScheduleBody]:
    """Return the name, if it is new, and the body that a form stands for; raise InvalidInput with all
    that is wrong."""
    reading = Reading(typed)
    name = reading.name() if is_new else ""
    task = {
        "pipeline": typed.text("task.pipeline"),
        "input": _input(typed, reading),
        "version": reading.whole("task.version"),
        "class": typed.text("task.class"),
        "deadline_ms": reading.number("task.deadline_ms"),
        "budget_usd": typed.text("task.budget_usd").removeprefix("$"),
        "labels": reading.labels("task.labels"),
    }
    body = {
        **_timing(typed, reading),
        "description": typed.text("description"),
        "time_field": typed.text("time_field"),
        "catch_up": typed.text("catch_up"),
        "catch_up_window_s": reading.number("catch_up_window_s"),
        "overlap": typed.text("overlap"),
        "paused": True if typed.text("paused") else None,
        "task": filled(task),
    }
    made = reading.model(ScheduleBody, body)
    reading.check()
    assert made is not None, "nothing is wrong"
    return name, made


def read_timing(typed: Typed) -> Timing:
    """Return the times that a form stands for; raise InvalidInput with what is wrong with them."""
    reading = Reading(typed)
    made = reading.model(Timing, _timing(typed, reading))
    reading.check()
    assert made is not None, "nothing is wrong"
    return made


def typed_of(schedule: Schedule) -> Typed | None:
    """Return the form of a stored schedule; None if its input is too long for a form."""
    task, shown = schedule.task, pretty(schedule.task.input or {})
    if is_cut(shown):
        return None
    texts = {
        "description": schedule.description,
        "task.pipeline": task.pipeline,
        "cron": schedule.cron,
        "time_zone": schedule.time_zone,
        "task.input": shown,
        "overlap": schedule.overlap,
        "catch_up": schedule.catch_up,
        "catch_up_window_s": _digits(schedule.catch_up_window_s),
        "jitter_s": _digits(schedule.jitter_s),
        "time_field": schedule.time_field or "",
        "task.version": "" if task.version is None else str(task.version),
        "task.class": task.priority or "",
        "task.deadline_ms": _digits(task.deadline_ms),
        "task.budget_usd": "" if task.budget_usd is None else format(task.budget_usd, "f"),
        "task.labels": header_of(task.labels),
    }
    return Typed({name: (text,) for name, text in texts.items()})


def has_more(typed: Typed) -> bool:
    """Tell whether a field that is folded up says something else than by default."""
    return any(typed.text(name) != NEW.get(name, "") for name in MORE)


def _timing(typed: Typed, reading: Reading) -> dict[str, Any]:
    return {
        "cron": " ".join(typed.text("cron").split()),
        "time_zone": typed.text("time_zone"),
        "jitter_s": reading.number("jitter_s"),
    }


def _input(typed: Typed, reading: Reading) -> Any:
    text = typed.text("task.input")
    if not text:
        return {}
    try:
        return parse_json(text, "task.input")
    except InvalidInput as error:
        reading.add(error.fields["field"], error.fields["reason"], error.fields["cure"])
        return {}


def _digits(number: float | None) -> str:
    """Return a number as people write it: exactly, but without `.0`."""
    return "" if number is None else format(Decimal(repr(number)).normalize(), "f")
