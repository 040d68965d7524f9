"""`Play`: a pipeline, the answers of its models, the faults to inject, and the run that results."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hocket.schemas.errors import ErrorClass
from hocket.schemas.messages import Priority, RunAccepted
from hocket.testing.attempts import Attempts, Told
from hocket.testing.errors import PlayStuck
from hocket.testing.faults import Fault, Injected, check_time, check_whole, class_of
from hocket.testing.functions import Functions, StandIn, stand_in
from hocket.testing.pipelines import (
    Source,
    Versioned,
    catalog_of,
    check_node,
    check_signal,
    check_step,
    deadline_of,
    input_of,
)
from hocket.testing.played import Played, come_to
from hocket.testing.stand_ins.answers import Answering, PlayedModels, Reply, Script
from hocket.testing.stand_ins.clock import START_S, PlayLoop, run_in_play_time
from hocket.testing.stand_ins.door import name_taken, value_taken
from hocket.testing.stand_ins.recorded import RecordedAnswers
from hocket.testing.trace import Trace
from hocket.testing.world import Signal, World
from hocket.worker.worker import Worker

RUN_ID = "play"
TENANT = "default"


class Play:
    """A pipeline under test. `worker` has the custom node types; `pipelines` are the pipelines that it
    calls: `SOURCE`, or `(SOURCE, 3)` for version 3. Each `run` starts afresh, with all answers and
    faults."""

    def __init__(
        self,
        pipeline: Source,
        *,
        worker: Worker | Sequence[Worker] = (),
        pipelines: Sequence[Versioned] = (),
    ) -> None:
        workers = (worker,) if isinstance(worker, Worker) else tuple(worker)
        self._types = tuple(one for each in workers for one in each.types)
        self._catalog = catalog_of((pipeline, *pipelines), self._types)
        self._plan = self._catalog.plans[0]
        self._stand_ins: dict[str, StandIn] = {}
        self._scripts: dict[str, Script] = {}
        self._recorded: RecordedAnswers | None = None
        self._faults: list[Fault] = []
        self._signals: list[Signal] = []

    # ---- setting up -------------------------------------------------------------------------

    def node(self, name: str, function: Callable[..., Any]) -> None:
        """Have a function run the steps of a node (by its path) or of a type, in place of the real one.

        It is called as `f()`, `f(input)` or `f(input, context)`; a parameter named `config` receives the
        node's `config`. A mock of `unittest.mock` is called with the input, as is `f(*args)`. Raises
        UnknownStep if no pipeline of the play can have such steps, NoAttempts if no worker runs them,
        and NotPlayable if the function cannot be called so, or for the key of a single step."""
        check_node(self._catalog.plans, name)
        self._stand_ins[name] = stand_in(name, function)

    def model(self, name: str, *answers: Reply, by: Answering | None = None) -> None:
        """Set a model's answers: one per call, in order, or made by a function from each call."""
        script = self._scripts.setdefault(name, Script())
        script.answers += answers
        script.function = by or script.function

    def recorded(self, file: str | Path, *, check_prompts: bool = True) -> None:
        """Have models answer as they did in a recorded run (`hocket runs record`), except those whose
        answers `model` sets.

        With `check_prompts`, a recorded answer is given only to the same prompt as in the recording.
        Raises RecordingInvalid."""
        self._recorded = RecordedAnswers.read(Path(file), check_prompts=check_prompts)

    def fails(
        self,
        step: str,
        *,
        error_class: ErrorClass | str = ErrorClass.TRANSIENT,
        code: str = "injected",
        message: str = "The test made the attempt fail.",
        attempt: int | None = 1,
        after_ms: float = 0.0,
    ) -> None:
        """Make an attempt of a step fail without calling its function, `after_ms` after it starts.
        `attempt` counts from 1; None means all attempts."""
        check_time("after_ms", after_ms)
        error = Injected(code, message, class_of(error_class))
        self._fault(Fault(step, attempt, after_ms, error))

    def hangs(self, step: str, *, attempt: int | None = 1) -> None:
        """Make an attempt give no answer, so that it times out."""
        self._fault(Fault(step, attempt, None))

    def takes(self, step: str, ms: float, *, attempt: int | None = 1) -> None:
        """Let `ms` pass before an attempt's function is called; if that is too long, it times out."""
        check_time("ms", ms)
        self._fault(Fault(step, attempt, ms))

    def dies(self, step: str, *, after: int = 0, attempt: int = 1) -> None:
        """Make the worker die when an attempt's journal has `after` more entries. Another worker gets
        the step once the server has noticed."""
        check_whole("after", after, least=0)
        self._fault(Fault(step, attempt, dies_after=after))

    def approves(
        self, step: str, *, note: str = "", by: str = "test", after_ms: float = 0.0
    ) -> None:
        """Grant an approval, `after_ms` after it starts waiting."""
        self._signal(step, {"approved": True, "note": note}, by, after_ms)

    def refuses(
        self, step: str, *, note: str = "", by: str = "test", after_ms: float = 0.0
    ) -> None:
        """Refuse an approval, `after_ms` after it starts waiting."""
        self._signal(step, {"approved": False, "note": note}, by, after_ms)

    def signals(
        self, name: str, payload: Any = None, *, by: str = "test", after_ms: float = 0.0
    ) -> None:
        """Send a signal, `after_ms` after a step starts waiting for it. Raises InvalidInput if the
        platform refuses the payload or the name in `by`."""
        self._signal(name, payload, by, after_ms)

    # ---- the run ----------------------------------------------------------------------------

    def run(
        self,
        given: Mapping[str, Any] | None = None,
        *,
        deadline_ms: float | None = None,
        priority: Priority | str | None = None,
    ) -> Played:
        """Play a run with this input and return its outcome. `deadline_ms` (from the start of the run)
        defaults to the pipeline's `slo_ms`. Raises InvalidInput if the platform or the pipeline's schema
        refuses the input, or if no run can have the deadline, and the errors of a faulty test
        (`PlayStuck`, `ScriptExhausted`, ...)."""
        spec = self._plan.pipeline
        accepted = RunAccepted(
            run_id=RUN_ID,
            tenant=TENANT,
            pipeline=spec.pipeline,
            version=1,
            input=input_of(self._plan, given),
            priority=Priority(priority or spec.priority),
            deadline_at_ms=START_S * 1000 + deadline_of(self._plan, deadline_ms),
            budget_usd=spec.budget_usd,
        )
        return run_in_play_time(lambda loop: self._play(loop, accepted))

    async def _play(self, loop: PlayLoop, accepted: RunAccepted) -> Played:
        trace = Trace(loop, accepted.run_id)
        world = World(loop, trace, self._catalog, tuple(self._signals))
        loop.idle = lambda: world.breaks(PlayStuck(waiting=", ".join(world.waiting)))
        loop.set_exception_handler(lambda _, told: world.breaks(_raised(told)))
        answers = self._recorded.anew() if self._recorded is not None else None
        models = PlayedModels(self._scripts, answers, trace.called, world.breaks)
        functions = Functions(self._stand_ins, self._types)
        told = Told(world.finished, trace.died, world.breaks)
        attempts = Attempts(functions, models, tuple(self._faults), told)
        world.start(accepted, attempts)
        try:
            await world.ended
        finally:
            await attempts.close()
        return come_to(world.run, trace)

    def _fault(self, fault: Fault) -> None:
        check_step(self._catalog.plans, fault.step)
        if fault.attempt is not None:
            check_whole("attempt", fault.attempt, least=1)
        self._faults.insert(0, fault)

    def _signal(self, name: str, payload: Any, by: str, after_ms: float) -> None:
        check_signal(self._catalog.plans, name)
        check_time("after_ms", after_ms)
        given = value_taken("payload", payload)
        self._signals.append(Signal(name, given, name_taken("by", by), after_ms))


def _raised(told: dict[str, Any]) -> BaseException:
    error = told.get("exception")
    return error if isinstance(error, BaseException) else RuntimeError(str(told.get("message")))
