"""The messages that every run sends, spliced from existing texts: steps for workers, the run's end.

A step's message is what all steps of the run share, what all steps of the node share, its numbers
and its input. The contract is `StepRequested` and `RunFinished` in `hocket.schemas.messages`.
"""

from decimal import Decimal

from pydantic_core import to_json

from hocket.coordinator.core.run.commands import (
    Announce,
    CancelAttempt,
    CancelSubRun,
    ExpectPrompt,
    FillCache,
    LookUpCache,
    RecordAttempt,
    ReleaseCache,
    StartSubRun,
    WaitForFlow,
    Wake,
)
from hocket.coordinator.core.run.plan.step_deadlines import NodeForecast
from hocket.coordinator.core.run.state.run import Run, Step
from hocket.coordinator.core.run.suspension.resumption import resumption_of
from hocket.schemas import ids
from hocket.schemas.messages import (
    RootBudget,
    TaskRejected,
    encoded_without_defaults,
)


class Dispatch:
    """Publish a step to its workers when it is its turn; after the commit if `is_external`.

    Its turn depends on when it must start to keep the run's deadline (`latest_start_at_ms`) or to
    just make it (`latest_feasible_start_at_ms`), on how long it is expected to run, and on how many
    steps, including this one, the next join still waits for. `again`: it may have been published
    before, by this owner or a former one.
    """

    __slots__ = (
        "_head",
        "_input",
        "_static",
        "_text",
        "again",
        "attempt",
        "attempt_id",
        "capability",
        "dispatched_at_ms",
        "expected_ms",
        "is_external",
        "join_left",
        "latest_feasible_start_at_ms",
        "latest_start_at_ms",
        "node",
        "pool",
        "run",
        "slack_ms",
        "start_by_at_ms",
        "step",
        "type",
    )

    def __init__(
        self,
        run: Run,
        step: Step,
        forecast: NodeForecast,
        *,
        join_left: int,
        start_by_at_ms: float | None,
        again: bool,
    ) -> None:
        node = step.node
        dispatched_at_ms, slack_ms = step.dispatched_at_ms, step.slack_ms
        assert dispatched_at_ms is not None
        deadline_at_ms = run.deadline_seen_at_ms(dispatched_at_ms)
        assert slack_ms is not None
        key, attempt = step.key, step.attempt
        self.run = run
        self.step = key
        self.node = node.spec
        self.type = node.type
        self.pool = node.pool
        self.attempt = attempt
        self.attempt_id = ids.attempt_id(run.run_id, key, attempt)
        self.again = again
        self.is_external = node.is_external
        self.join_left = join_left
        self.slack_ms = slack_ms
        self.start_by_at_ms = start_by_at_ms
        self.dispatched_at_ms = dispatched_at_ms
        self.expected_ms = forecast.mean_ms
        self.latest_start_at_ms = dispatched_at_ms + slack_ms
        self.latest_feasible_start_at_ms = forecast.latest_feasible_start_at_ms(deadline_at_ms)
        self.capability: str | None = None
        capabilities = run.owner.capabilities
        if capabilities is not None and step.capable:
            self.capability = capabilities.of_attempt(
                run.tenant, run.run_id, key, attempt, dispatched_at_ms
            )
        self._input = step.input
        timeout_ms = min(node.timeout_ms, max(1.0, run.latest_deadline_at_ms - dispatched_at_ms))
        more = ""
        if run.budget_usd is not None:
            more = _budgets(run, run.budget_usd, is_capable=step.capable)
        if start_by_at_ms is not None:
            more += f'"start_by_at_ms":{start_by_at_ms!r},'
        if self.capability is not None:
            more += f'"capability":"{self.capability}",'
        if node.keeps_journal:
            more += '"journal":true,"suspends":true,'
        if step.suspensions:
            going_on = resumption_of(run, step)
            more += f'"resumption":{encoded_without_defaults(going_on).decode()},'
        # shared with the other steps: thousands may be held back, and a node may have 1 MB of its own
        self._head = _head(run)
        self._static: str = node.static
        self._text = (
            f'"step":"{key}","attempt":{attempt},'
            f'"deadline_at_ms":{step.deadline_at_ms!r},"timeout_ms":{timeout_ms!r},'
            f'"dispatched_at_ms":{dispatched_at_ms!r},{more}'
        )

    @property
    def msg_id(self) -> str:
        """The id under which it is published."""
        return ids.capable(ids.dispatch_id(self.attempt_id, self.dispatched_at_ms), self.capability)

    def body(self, slack_ms: float, held_ms: float) -> bytes:
        """Return the message, given the step's present slack and how long it was held back (ms);
        raises ValueError for an input that JSON cannot represent."""
        return (
            f'{self._head}{self._static}{self._text}"slack_ms":{slack_ms!r},'
            f'"held_ms":{held_ms!r},"input":{self._input.text}}}'
        ).encode()


class EndRun:
    """After the commit, publish the public fact, answer the caller and notify the parent run."""

    __slots__ = ("run",)

    def __init__(self, run: Run) -> None:
        self.run = run

    def body(self) -> bytes:
        """Return the public fact; raises ValueError for an output that JSON cannot represent."""
        return end_message(self.run)


class TellSpending:
    """After the commit, tell the step above an ended run that the run has spent more than it told."""

    __slots__ = ("run",)

    def __init__(self, run: Run) -> None:
        self.run = run


def end_message(run: Run, *, with_output: bool = True, too_large: bool = False) -> bytes:
    """Return the public fact of a run that has ended; raises ValueError for an output that JSON
    cannot represent. `too_large` says that the output is left out for its size."""
    error = "null" if run.error is None else to_json(run.error).decode()
    output = "null" if too_large or not with_output else run.output.text
    left_out = ',"output_left_out":true' if too_large else ""
    labels = f',"labels":{to_json(run.labels).decode()}' if run.labels else ""
    return (
        f'{{"run_id":{_text(run.run_id)},"tenant":{_text(run.tenant)},'
        f'"pipeline":{_text(run.pipeline)},"version":{run.version},"status":"{run.status}",'
        f'"output":{output},"error":{error},"accepted_at_ms":{run.accepted_at_ms!r},'
        f'"finished_at_ms":{run.finished_at_ms!r},"deadline_at_ms":{run.deadline_at_ms!r},'
        f'"cost_usd":"{run.cost_usd:f}"{left_out}{labels}}}'
    ).encode()


def rejection_of(run: Run) -> TaskRejected:
    """Return the public fact of a task that was rejected."""
    assert run.error is not None, run.run_id
    return TaskRejected(
        tenant=run.tenant, pipeline=run.pipeline, error=run.error, task_id=run.run_id
    )


Command = (
    Dispatch
    | CancelAttempt
    | StartSubRun
    | CancelSubRun
    | Wake
    | RecordAttempt
    | Announce
    | ExpectPrompt
    | LookUpCache
    | FillCache
    | ReleaseCache
    | WaitForFlow
    | EndRun
    | TellSpending
)


def cancel_attempt(run: Run, step: Step, reason: str) -> CancelAttempt:
    """Return the command that cancels a step's present attempt."""
    dispatched = (run.tenant, step.dispatched_at_ms) if step.capable else None
    return CancelAttempt(run.run_id, step.key, step.attempt, reason, dispatched)


def _head(run: Run) -> str:
    """Return what the messages of all steps of a run share as long as its deadline is the same. Its
    owner keeps the one that was made last, for steps that are dispatched together; kept by each
    run, it would take a twentieth of its memory."""
    owner, labels, deadline_at_ms = run.owner, run.labels, run.latest_deadline_at_ms
    of = (run.run_id, run.accepted_at_ms, deadline_at_ms)
    if owner.latest_head is not None and owner.latest_head[0] == of:
        return owner.latest_head[1]
    text = (
        f'{{"run_id":{_text(run.run_id)},"run_deadline_at_ms":{deadline_at_ms!r},'
        f'"tenant":{_text(run.tenant)},"pipeline":{_text(run.pipeline)},"version":{run.version},'
        f'"priority":"{run.priority.value}","partition":{owner.partition},"epoch":{owner.epoch},'
    )
    if labels is not None:
        text += f'"labels":{to_json(labels).decode()},'
    owner.latest_head = (of, text)
    return text


def _budgets(run: Run, budget_usd: Decimal, *, is_capable: bool) -> str:
    """Return the fields for a run's budget and, in a sub-run, for the budget at the top of its tree."""
    left_usd = max(Decimal(0), budget_usd - run.cost_usd)
    own = f'"budget_usd":"{budget_usd}","budget_left_usd":"{left_usd}",'
    root = root_budget_of(run)
    return own if root is None else own + _root_budget(run, root, is_capable=is_capable)


def root_budget_of(run: Run) -> RootBudget | None:
    """Return the budget at the top of a sub-run's tree; None if there is none, or if the run is at
    the top."""
    return None if run.parent is None else run.parent.root_budget


def _root_budget(run: Run, root: RootBudget, *, is_capable: bool) -> str:
    """Return the field for the budget at the top of a run's tree, sealed so that no other run can
    name it."""
    capabilities = run.owner.capabilities
    if capabilities is not None and is_capable:
        seal = capabilities.of_root_budget(run.tenant, run.run_id, root.run_id, root.budget_usd)
        root = root.model_copy(update={"seal": seal})
    return f'"root_budget":{encoded_without_defaults(root).decode()},'


def _text(value: str) -> str:
    return to_json(value).decode()
