"""The trace of a play: a line for each thing that happened, and the model calls."""

from dataclasses import dataclass

from hocket.schemas.messages import AttemptFinished, CallReply, CallRequest
from hocket.schemas.structs.steps import RequestedStep
from hocket.testing.stand_ins.clock import PlayLoop


@dataclass(frozen=True, slots=True)
class PlayedCall:
    """A model call and its start (ms since the run was accepted). `prompt` is its last message."""

    step: str
    attempt: int
    model: str
    prompt: str
    request: CallRequest
    reply: CallReply
    at_ms: float


class Trace:
    """The lines of one play, whose run is `top`; the lines of sub-runs name their pipeline."""

    def __init__(self, loop: PlayLoop, top: str) -> None:
        self.lines: list[str] = []
        self.calls: list[PlayedCall] = []
        self._loop = loop
        self._top = top
        self._pipelines: dict[str, str] = {}

    def accepted(self, run_id: str, pipeline: str) -> None:
        """Record that a run starts."""
        self._pipelines[run_id] = pipeline
        self.note(run_id, "", f"accepted, pipeline {pipeline}")

    def note(self, run_id: str, step: str, text: str) -> None:
        """Add a line about a run, or one of its steps."""
        where = "" if run_id == self._top else f"[{self._pipelines.get(run_id, run_id)}] "
        at_ms = self._loop.time() * 1000
        self.lines.append(f"{at_ms:>10.1f} ms  {where}{step or 'run'}: {text}")

    def finished(self, event: AttemptFinished) -> None:
        """Record the result of an attempt."""
        error = event.error
        came_to = "finished" if error is None else f"failed: {error.code} ({error.error_class})"
        if event.waits:
            came_to = "suspended"
        self.note(event.run_id, event.step, f"attempt {event.attempt} {came_to}")

    def died(self, step: RequestedStep) -> None:
        """Record that the worker of an attempt died."""
        self.note(step.run_id, step.step, f"attempt {step.attempt} lost its worker")

    def called(self, call: PlayedCall) -> None:
        """Record a model call."""
        error, cost = call.reply.error, call.reply.cost_usd
        came_to = f"answered for {cost} USD" if error is None else f"failed: {error.code}"
        run_id = call.request.attribution.run_id or self._top
        self.note(run_id, call.step, f"attempt {call.attempt} asked {call.model}, {came_to}")
        self.calls.append(call)
