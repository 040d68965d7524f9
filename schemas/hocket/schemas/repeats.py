"""The rules for repeating a run, which every door checks before it accepts a retry or re-run."""

from dataclasses import dataclass

from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.schemas.messages import RunOrigin
from hocket.schemas.pipeline.plan import Plan

MAX_STEP_KEY_CHARS = 1_000
MAX_STEP_INPUT_CHARS = 65_536
"""The limit on a step's edited input, which is carried in a header."""


class RunOpen(HocketError):
    """Run `{run_id}` has not ended, so it cannot be repeated yet. Wait until it ends, or cancel it:
    `hocket runs cancel {run_id}`."""

    code = "run_open"
    error_class = ErrorClass.INVALID


class NothingToRetry(HocketError):
    """Run `{run_id}` succeeded, so there is nothing to retry. Run it again from a step or with another
    input: `hocket runs rerun {run_id}`."""

    code = "nothing_to_retry"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class StepPlace:
    """The place of a step of the origin: its node's path, its role, and the key of the planning step
    that emitted its node ("" for nodes of the spec)."""

    path: str
    role: str
    home: str


def check_repeat(
    asked: RunOrigin, *, status: str, from_step: StepPlace | None, plan: Plan, version: int
) -> None:
    """Raise RunOpen, NothingToRetry or InvalidInput if a run that ended with `status` cannot be repeated
    in this way with this version; `from_step` is the place of the step of that name, if any."""
    if status == "running":
        raise RunOpen(run_id=asked.run_id)
    if asked.operation == "retry":
        if asked.from_step is not None:
            raise InvalidInput(
                field="from_step",
                reason="a retry starts where the run failed",
                cure="Leave it out, or re-run the run from that step.",
            )
        if status == "succeeded":
            raise NothingToRetry(run_id=asked.run_id)
    if asked.from_step is None:
        if asked.step_input is not None:
            raise InvalidInput(
                field="step_input",
                reason="it has an input but no step",
                cure="Name the step in `from_step`; `input` is that of the run.",
            )
        return
    _check_step(asked, from_step, plan, version)


def _check_step(asked: RunOrigin, place: StepPlace | None, plan: Plan, version: int) -> None:
    if place is None:
        raise InvalidInput(
            field="from_step",
            reason=f"run `{asked.run_id}` has no step `{asked.from_step}`",
            cure=f"Use one that `hocket runs show {asked.run_id}` lists.",
        )
    if not place.home and place.path not in plan.by_path:
        raise InvalidInput(
            field="from_step",
            reason=f"version {version} of `{plan.pipeline.pipeline}` has no node `{place.path}`",
            cure="Choose a step that both versions have.",
        )
    if asked.step_input is not None and place.role in ("map", "loop"):
        raise InvalidInput(
            field="step_input",
            reason=f"`{asked.from_step}` is a {place.role}, whose steps have their own inputs",
            cure=f"Choose one of its steps, such as `{asked.from_step}"
            f"{'[0]' if place.role == 'map' else '#1'}`.",
        )
