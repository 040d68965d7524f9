"""Messages between Hocket's processes: log events, step requests, results, model calls, usage.

All are frozen pydantic models sent as JSON. Times are milliseconds since the Unix epoch (`*_at_ms`),
durations are milliseconds (`*_ms`), money is decimal strings of US dollars (`*_usd`). The last token of
its subject (`kind`) says which event a log message holds.
"""

from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from hocket.schemas.checks.bounded import (
    Balance,
    Count,
    Int32,
    Milliseconds,
    Moment,
    Money,
    Name,
    Number,
    StepKey,
    StoredText,
    Subject,
    TaskKey,
)
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.labels import Labels

MAX_DESCRIPTION_CHARS = 2_000
"""The limit on the description of a node type."""
MAX_UNREAD_SIGNALS = 1_000
"""The most signals of one run that no step has read; the API refuses more."""
MAX_SIGNALS_BYTES = 1024 * 1024
"""The limit on their total JSON: they are kept in the run's row, which many events rewrite."""
MAX_BUNDLED = 8
"""The most steps in one message."""
MAX_CANCELLED = 1_000
"""The most further runs that one message may ask to end."""
MAX_WAITS = 100
"""The most things that one handler may wait for at once."""
MAX_JOURNALED = 1_000
"""The same as the most entries of a journal."""
MAX_TOLD_BUDGETS = 1_000
"""The most configured budgets that a gateway reports."""
MAX_WAITS_BYTES = 384 * 1024
"""The limit on the inputs of calls in one result; calls that do not fit are made in a later one."""


class Message(BaseModel):
    """Base of all messages: frozen; unknown fields are ignored, so that releases can meet."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null")


def encoded(message: Message) -> bytes:
    """Return a message's JSON as bytes, like `model_dump_json` but without the detour over `str`."""
    return message.__pydantic_serializer__.to_json(message)


def encoded_without_defaults(message: Message) -> bytes:
    """Return a message's JSON without the fields that have their default value."""
    return message.__pydantic_serializer__.to_json(message, exclude_defaults=True)


class Priority(StrEnum):
    """A run's class: decides which runs wait under overload."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


# ---- the log of a partition -----------------------------------------------------------------


class RootBudget(Message):
    """The budget of the topmost run that has one in a tree of sub-runs. Each call below it spends from
    it, too, so that sub-runs side by side spend no more than it together."""

    run_id: Name
    budget_usd: Money
    seal: Name | None = None
    """That of the run whose step was handed out (`capabilities.py`): no other run can name this one."""
    spent_usd: Money | None = None
    """What had been spent from it, as far as the run knew that began the sub-run. None from a release
    that gave each sub-run all that was left of it."""


class RunParent(Message):
    """The step of another run that waits for this one. `depth` counts the runs above this one."""

    run_id: Name
    step: StepKey
    attempt: Int32
    partition: Int32
    depth: Int32 = 1
    dispatched_at_ms: Moment | None = None
    """When the step was handed out; goes back with the result."""
    capability: Name | None = None
    """That of the step's attempt; likewise."""
    runs_left: Int32 | None = None
    """How many runs this one may begin in all (`max_runs` of the run at the top, shared out)."""
    root_budget: RootBudget | None = None
    """That of the run at the top, where it has one."""
    input_digest: Name = ""
    """That of the input that the step gave (`ids.input_digest`), to which the run's pipeline may have
    added defaults; goes back with the result."""
    times_out_at_ms: Moment | None = None
    """When the `timeout_ms` of the step is over, where it has one. Waits of the run do not move its
    deadline beyond that."""


class RunOrigin(Message):
    """The ended run that a new one repeats, taking over the outputs of steps that would do the same
    again. `retry` repeats what failed; `rerun` repeats from `from_step` (a step of the origin, which
    then gets `step_input`, where given, instead of its own), or all that a new input or another
    version changes. A `retry` has both only if the run that it repeats gave that step this input."""

    run_id: Name
    operation: Literal["retry", "rerun"]
    from_step: StepKey | None = None
    step_input: dict[str, Any] | None = None


class RunAccepted(Message):
    """A task was admitted, or `rejected` for want of workers: then its run ends before it begins.
    `task_ack` is the ack subject of its TASKS message: the coordinator acks
    it after the commit that holds the run. `checked_at_ms`: when intake looked in Postgres and found
    no such run (its clock); none where no other task can be the same run. `reply_to` gets the run's
    end (and, with `progress`, its steps) as core NATS messages."""

    kind: ClassVar[str] = "accepted"

    run_id: Name
    tenant: Name
    pipeline: Name
    version: Int32
    input: dict[str, Any]
    priority: Priority
    deadline_at_ms: Moment
    budget_usd: Money | None = None
    idempotency_key: TaskKey | None = None
    rejected: ErrorInfo | None = None
    probe: bool = False
    """The run is not given up as infeasible: it measures a pipeline whose runs are."""
    task_ack: Subject | None = None
    checked_at_ms: Moment | None = None
    reply_to: Subject | None = None
    progress: bool = False
    traceparent: Name | None = None
    parent: RunParent | None = None
    origin: RunOrigin | None = None
    labels: Labels | None = None


class RunsAccepted(Message):
    """Several tasks of one partition were admitted at the same moment: one message for all of them."""

    kind: ClassVar[str] = "acceptances"

    runs: tuple[RunAccepted, ...]


class Spend(Message):
    """What an attempt used in sum: its model calls, and what else had a price (`charged_usd`, which is
    in `cost_usd` too)."""

    calls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Money = Decimal(0)
    charged_usd: Money = Decimal(0)


class Timing(Message):
    """Where an attempt's time went, by kind, as far as whoever ran it knows.

    A worker tells of its model calls: `gateway_queue_ms` at the gateway before a backend had the call,
    `model_ms` the rest until the reply; of calls side by side each moment counts once. The end of a
    sub-run tells every kind of its critical path.
    """

    coordinator_ms: Milliseconds = 0.0
    queue_ms: Milliseconds = 0.0
    execution_ms: Milliseconds = 0.0
    gateway_queue_ms: Milliseconds = 0.0
    model_ms: Milliseconds = 0.0
    backoff_ms: Milliseconds = 0.0
    cache_ms: Milliseconds = 0.0
    waiting_ms: Milliseconds = 0.0


class HandlerPlace(Message):
    """A place in the journal of a step (`journals.py`): what a handler asks for there, it asks for in
    every attempt."""

    scope: StepKey = ""
    ordinal: Int32

    @property
    def key(self) -> tuple[str, int]:
        """The key that identifies a place."""
        return self.scope, self.ordinal


class NodeCall(Message):
    """A call of a node that the step's node names under `calls`. `digest` is that of its input, as its
    worker makes it, and tells one call from another. The input is said by the worker that asks for the
    call first, and by nobody else. `number` counts the calls of the step from 1: the step
    `STEP/NAME-NUMBER` carries the call out."""

    name: Name
    digest: Name
    input: Any = None
    number: Int32 = 0


class HandlerWait(HandlerPlace):
    """What a handler waits for: a call of another node, a signal of its run, a moment, or whichever of
    the latter two comes first."""

    signal: Name | None = None
    until_ms: Moment | None = None
    call: NodeCall | None = None


class WaitEnded(HandlerPlace):
    """What a handler waited for has come: the signal with this payload, or (`timed_out`) the moment; or
    the `call` has ended, with this output, or with an error."""

    signal: Name | None = None
    """That which the handler waited for."""
    timed_out: bool = False
    signal_id: Name = ""
    payload: Any = None
    by: Name = ""
    call: NodeCall | None = None
    output: Any = None
    error: ErrorInfo | None = None


class Resumption(Message):
    """What a step goes on with that was suspended: waits that have ended, of which its journal need not
    know yet, and those that have not."""

    ended: tuple[WaitEnded, ...] = ()
    waits: tuple[HandlerWait, ...] = ()


class AttemptFinished(Message):
    """An attempt ended in a worker: with `output`, with `error`, or because its handler waits.

    `started_at_ms` and `finished_at_ms` are the worker's clock; the log's own timestamp decides.
    `queued_at_ms` is since when it waited for a worker (the server's clock), 0 where it did not come
    from the stream of steps. `dispatched_at_ms` is that of the request, and `input_digest` of its input
    (`ids.input_digest`): they tell what was executed from what is asked for now, where the end of the
    log was lost and its events came to be others.
    """

    kind: ClassVar[str] = "finished"

    run_id: Name
    step: StepKey
    attempt: Int32
    output: Any = None
    error: ErrorInfo | None = None
    started_at_ms: Milliseconds = 0.0
    finished_at_ms: Milliseconds = 0.0
    queued_at_ms: Milliseconds = 0.0
    delivery: Int32 = 0
    """How often the attempt had come to a worker when this one had it; part of its calls' ids."""
    worker: Name = ""
    spend: Spend = Spend()
    timing: Timing | None = None
    """None where all of it was execution."""
    degraded: bool = False
    """Of a sub-run: it ended `degraded`."""
    outside_usd: Money = Decimal(0)
    """Of a sub-run: what calls cost that named it and of which none of its steps tells (`RunCharged`);
    beside `spend`."""
    retold: bool = False
    """Of a sub-run whose end was told before: since then it has spent more."""
    dispatched_at_ms: Moment | None = None
    input_digest: Name = ""
    capability: Name | None = None
    """That of the request: without it the result counts for nothing."""
    waits: tuple[HandlerWait, ...] = Field((), max_length=MAX_WAITS)
    """What its handler waits for: the step is suspended, and is handed out again when that comes. Only
    of a request that `suspends`, and with the error `retryable`, as a release reads it that knows no
    `waits`."""
    journaled: tuple[HandlerPlace, ...] = Field((), max_length=MAX_JOURNALED)
    """Of such a result: places of the request's `resumption` whose value the journal has by now."""
    took: Int32 = 0
    """Of a step that came in a bundle: how many steps the worker took from that message. Where the first
    step's result says 0, the others are handed out again."""


class AttemptsFinished(Message):
    """Several attempts ended that one worker had, for one partition: one message for all of them."""

    kind: ClassVar[str] = "results"

    results: tuple[AttemptFinished, ...]


class AttemptReturned(Message):
    """A worker gives back an attempt that came to it in a bundle (`StepRequested.more`): it did not end
    there, and is handed out again, in a message of its own."""

    kind: ClassVar[str] = "returned"

    run_id: Name
    step: StepKey
    attempt: Int32
    dispatched_at_ms: Moment | None = None
    capability: Name | None = None
    """That of the request: without it nothing is handed out again."""


class SignalReceived(Message):
    """Somebody answered an approval, or an event that a `signal` node waits for came."""

    kind: ClassVar[str] = "signal"

    run_id: Name
    signal_id: Name
    name: StepKey
    payload: Any = None
    by: Name = ""


class CancelRequested(Message):
    """Somebody asked to end a run, and `others` of the same partition for the same reason."""

    kind: ClassVar[str] = "cancel"

    run_id: Name
    reason: StoredText = ""
    by: Name = ""
    others: tuple[Name, ...] = Field((), max_length=MAX_CANCELLED)

    def each(self) -> "tuple[CancelRequested, ...]":
        """Return one request for each of its runs."""
        if not self.others:
            return (self,)
        return tuple(
            CancelRequested(run_id=run_id, reason=self.reason, by=self.by)
            for run_id in (self.run_id, *self.others)
        )


class TimerFired(Message):
    """A time that the run's state waits for has come: timeouts, backoff, deadline."""

    kind: ClassVar[str] = "timer"

    run_id: Name
    due_at_ms: Moment


class NodeDuration(Message):
    """How long a node takes: decayed mean and variance (ms, ms^2), and the weight they rest on."""

    path: StepKey
    mean_ms: Milliseconds
    variance: Number
    weight: Number


class OutlookChanged(Message):
    """What was measured of a pipeline's nodes; from here on the partition decides with it."""

    kind: ClassVar[str] = "outlook"

    tenant: Name
    pipeline: Name
    nodes: tuple[NodeDuration, ...]


class CacheAnswered(Message):
    """The cache's answer to a step that asked: with `hit` the output that another step computed,
    else the step's own turn to compute it, for itself and for those who wait."""

    kind: ClassVar[str] = "cache"

    run_id: Name
    step: StepKey
    key: Name
    hit: bool
    output: Any = None
    computed_by_run: Name = ""
    computed_by_step: StepKey = ""
    saved_usd: Money = Decimal(0)


class RunCharged(Message):
    """What calls that named a run cost by now of which no step tells: those of the gateway's HTTP door,
    or, `untold`, the run's own of which no reply told the cost.

    `total_usd` is the sum that `source` knows of, which only grows, so that a repeat changes nothing.
    A run has spent the sum over its sources beside what its steps tell (`Spend`). A source is one
    gateway process, for as long as it remembers the run. An event of another tenant's run counts for
    nothing.
    """

    kind: ClassVar[str] = "charged"

    run_id: Name
    tenant: Name
    source: Name
    total_usd: Money
    step: StepKey | None = None
    """The step that the latest of these calls named: what is new of the total counts for the agents and
    planners that it works for, too."""
    untold: bool = False
    """They were stopped, lost a hedge, or were prefills: what they cost counts as if steps told it. A
    source tells of such calls only, or of none."""


class FlowDecided(Message):
    """What flow control by key decided of a run that waits to start: it starts, or it ends `refused`."""

    kind: ClassVar[str] = "flow"

    run_id: Name
    refused: ErrorInfo | None = None


RunEvent = (
    RunAccepted
    | AttemptFinished
    | AttemptReturned
    | SignalReceived
    | CancelRequested
    | TimerFired
    | CacheAnswered
    | RunCharged
    | FlowDecided
)
"""The events that happen to one run."""
LogEvent = RunEvent | OutlookChanged
LOG_EVENTS: dict[str, type[LogEvent]] = {
    model.kind: model
    for model in (
        RunAccepted,
        AttemptFinished,
        AttemptReturned,
        SignalReceived,
        CancelRequested,
        TimerFired,
        CacheAnswered,
        RunCharged,
        FlowDecided,
        OutlookChanged,
    )
}


def read_log(kind: str, body: bytes) -> tuple[LogEvent, ...]:
    """Return the events in one message of a log, in order; raise ValueError if none can be read."""
    if kind == AttemptsFinished.kind:
        return AttemptsFinished.model_validate_json(body).results
    if kind == RunsAccepted.kind:
        return RunsAccepted.model_validate_json(body).runs
    if kind == CancelRequested.kind:
        return CancelRequested.model_validate_json(body).each()
    model = LOG_EVENTS.get(kind)
    if model is None:
        raise ValueError(f"`{kind}` is not a kind of log event")
    return (model.model_validate_json(body),)


# ---- steps ----------------------------------------------------------------------------------


class StepRequested(Message):
    """One attempt of a step, for a worker.

    `config` holds the node's own fields (a prompt, a query ...), whose templates the worker renders
    with `input`. `deadline_at_ms` is the latest useful finish; the attempt may run beyond it, up to
    `run_deadline_at_ms` (without it, up to `deadline_at_ms`). `slack_ms` is what was left of the former
    beyond the expected duration when the step was handed out, `timeout_ms` the time this attempt may
    take.
    `held_ms` is how long the coordinator kept it because no worker had a slot. Where it cannot begin by
    `start_by_at_ms` the run is asked what becomes of it (`HeldTooLong`). `dispatched_at_ms` (the
    log's clock) goes back with the result.
    """

    run_id: Name
    tenant: Name
    pipeline: Name
    version: Int32
    step: StepKey
    node: StepKey
    type: Name
    attempt: Int32
    input: Any
    config: dict[str, Any]
    deadline_at_ms: Moment
    run_deadline_at_ms: Moment | None = None
    slack_ms: Milliseconds
    timeout_ms: Milliseconds
    priority: Priority
    partition: Int32
    epoch: Count
    budget_usd: Money | None = None
    budget_left_usd: Balance | None = None
    effects_external: bool = False
    held_ms: Milliseconds = 0.0
    start_by_at_ms: Moment | None = None
    dispatched_at_ms: Moment | None = None
    capability: Name | None = None
    """What shows that this was dispatched (`capabilities.py`); goes back with the result, and with the
    attempt's model calls."""
    queue: Name | None = None
    """The queue that its node names; None is the type's own."""
    labels: Labels | None = None
    """The run's; its model calls bring them to the ledger."""
    journal: bool = False
    """What its handler does can be kept (`journals.py`): another attempt does not do it again."""
    suspends: bool = False
    """Its result may say what its handler waits for (`AttemptFinished.waits`)."""
    calls: tuple[Name, ...] = ()
    """Nodes that its handler may call (`HandlerWait.call`), by the names that its node gives them."""
    resumption: Resumption | None = None
    """What it goes on with, where an earlier attempt was suspended."""
    root_budget: RootBudget | None = None
    """Of a step of a sub-run: the budget at the top of its tree; goes with the attempt's model calls."""
    more: tuple[dict[str, Any], ...] = Field((), max_length=MAX_BUNDLED - 1)
    """Further steps of the message, each a StepRequested: it is a bundle, for workers that announce
    `bundles`. Whoever does not know the field runs the first step alone, and the others come again."""
    traceparent: Name | None = None
    """Of a step in `more`: what the message's header says of the first one."""


class StepCancelled(Message):
    """Stop an attempt (or with `step` None every attempt of the run) wherever it runs."""

    run_id: Name
    step: StepKey | None = None
    attempt: Int32 | None = None
    reason: StoredText = ""
    capability_sha256: Name | None = None
    """The SHA-256, in hexadecimal, of the attempt's capability; an attempt that has one is stopped by
    nobody else. All workers get this message, and the capability itself would let them act for the
    attempt."""


class WorkerAnnounced(Message):
    """A worker lives and can run so many steps of each type at once; none, where it stops. `slots` has
    a type's name, with `@` and a queue where it is of a queue's steps that the worker speaks."""

    worker: Name
    slots: dict[str, int]
    bundles: bool = False
    """It takes several steps in one message (`StepRequested.more`)."""


class TypeDescribed(Message):
    """What a worker says of a node type of somebody's own that it runs: as it starts, when it is asked,
    and every half minute. `config`, `input` and `output` are JSON Schemas (2020-12), None where
    anything goes."""

    worker: Name
    type: Name
    version: Name = "1"
    description: str = Field("", max_length=MAX_DESCRIPTION_CHARS)
    config: dict[str, Any] | None = None
    input: dict[str, Any] | None = None
    output: dict[str, Any] | None = None
    concurrency: Int32 = 1
    timeout_ms: Milliseconds | None = Field(None, gt=0)
    """The time of an attempt whose node does not say it."""
    effects: Literal["none", "external"] = "none"
    """That of nodes which do not say it."""
    usd_per_second: Money | None = None
    """What a second of an attempt costs, where it costs anything."""


# ---- public facts ---------------------------------------------------------------------------


class StepChanged(Message):
    """A step was dispatched or ended; published for runs with `progress`."""

    kind: ClassVar[str] = "step-changed"

    run_id: Name
    step: StepKey
    node: StepKey
    type: Name
    state: Name
    attempt: Int32
    at_ms: Moment
    deadline_at_ms: Moment | None = None
    slack_ms: Milliseconds | None = None
    duration_ms: Milliseconds | None = None
    error: ErrorInfo | None = None


class RunFinished(Message):
    """A run reached its end and Postgres holds it."""

    kind: ClassVar[str] = "run-finished"

    run_id: Name
    tenant: Name
    pipeline: Name
    version: Int32
    status: Name
    output: Any = None
    output_left_out: bool = False
    """The output is too large for a message; the REST API and Postgres have it."""
    error: ErrorInfo | None = None
    accepted_at_ms: Moment
    finished_at_ms: Moment
    deadline_at_ms: Moment
    labels: Labels | None = None
    cost_usd: Money | None = None
    """What was spent in it and its sub-runs: by its steps, and by calls of the HTTP door that named it.
    None: an earlier release told of the end."""


class TaskRejected(Message):
    """A task was refused at intake; sent to its `reply_to` and published as a public fact."""

    kind: ClassVar[str] = "task-rejected"

    tenant: Name
    pipeline: Name
    error: ErrorInfo
    task_id: Name | None = None
    status: Literal["rejected"] = "rejected"


# ---- model calls ----------------------------------------------------------------------------


class Attribution(Message):
    """Who a call is for; every field stands in the usage record."""

    tenant: Name = "default"
    pipeline: Name | None = None
    version: Int32 | None = None
    run_id: Name | None = None
    node: StepKey | None = None
    step: StepKey | None = None
    attempt: Int32 | None = None
    labels: Labels | None = None


class ChatMessage(Message):
    """One turn of a conversation. `tool_calls` of an assistant are OpenAI's objects; a tool's answer
    names the call that it is for."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_call_id: str | None = None


class OpenAIBody(Message):
    """A call as a client of OpenAI's API made it: the endpoint below `/v1/` and the body, which must be
    one that the HTTP door takes."""

    path: Literal["chat/completions", "completions", "embeddings"]
    body: dict[str, Any]


class Document(Message):
    """Evidence given to a model beside the messages: a passage or a table.

    `id` is the citation marker (`P1`, `S1`); a passage has `text`, a table `columns` and `rows`.
    """

    id: Name
    kind: Literal["passage", "table"] = "passage"
    title: str = ""
    source: str = ""
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()


class Requirements(Message):
    """What a backend must be to get a call: at least this good (0 to 1), with these labels (for example
    `precision: fp16`), and keeping the data where it may be (a residency tag of the configuration)."""

    min_quality: float = Field(0.0, ge=0, le=1)
    labels: dict[str, str] = Field(default_factory=dict)
    residency: str | None = None


NO_REQUIREMENTS = Requirements()


class CallRequest(Message):
    """One model call for the gateway. `task` tells built-in models what is wanted (`answer`, `plan`);
    `context` holds further plain JSON for them. HTTP backends get `messages`, with `documents`
    rendered into the last user message. `tools` and `tool_choice` are OpenAI's.

    A call with `openai` has its messages, texts and parameters there and nowhere else: backends that
    speak OpenAI's API send it on as it is. `chunks_to` is an inbox of the caller's that gets a CallChunk
    for each piece of the answer as it is made."""

    call_id: StepKey
    model: Name
    messages: tuple[ChatMessage, ...] = ()
    documents: tuple[Document, ...] = ()
    task: str = "chat"
    context: dict[str, Any] = Field(default_factory=dict)
    embed: tuple[str, ...] = ()
    max_tokens: Count | None = None
    temperature: Number | None = None
    response_schema: dict[str, Any] | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | dict[str, Any] | None = None
    openai: OpenAIBody | None = None
    chunks_to: Name | None = None
    deadline_at_ms: Moment
    useful_until_ms: Moment | None = None
    """When the answer is of use at the latest; the call's place in queues goes by it. Without it, the
    deadline."""
    priority: Priority = Priority.STANDARD
    requires: Requirements = Field(default_factory=lambda: NO_REQUIREMENTS)
    budget_usd: Money | None = None
    """What the run may spend in all, and what was left of it when the caller last heard."""
    budget_left_usd: Balance | None = None
    root_budget: RootBudget | None = None
    """Of a sub-run's call: that of its step's request. The call is held to this budget as well."""
    capability: Name | None = None
    """That of the attempt which makes the call, and when the attempt was dispatched."""
    dispatched_at_ms: Moment | None = None
    attribution: Attribution = Attribution()


QUESTION_FIELDS = frozenset(
    """
    model messages documents task context embed max_tokens temperature response_schema tools
    tool_choice openai requires
    """.split()
)
"""The fields of a call that make up its question. The others say who asks, how urgent it is, and what
it may cost."""


class Completion(Message):
    """What one backend made of one call. An in-process model is an async function from CallRequest
    to Completion. `input_tokens` counts `cached_tokens`, read from a prompt cache, and
    `cache_write_tokens`, written to one, too; `data` is the JSON value in `text` where
    a `response_schema` asked for one. `tool_calls` are OpenAI's objects; `openai` is the whole reply
    of a backend that speaks OpenAI's API to a call that came so. `estimated`: nobody metered the
    tokens."""

    text: str = ""
    data: Any = None
    embeddings: tuple[tuple[float, ...], ...] = ()
    tool_calls: tuple[dict[str, Any], ...] = ()
    openai: dict[str, Any] | None = None
    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0
    cache_write_tokens: Count = 0
    finish_reason: str = ""
    estimated: bool = False


class HeldCall(Message):
    """Who holds this call? Whoever does answers `reply_to` when it is made, and says so at once without
    a word; where `counts`, the others say their names."""

    tenant: Name = "default"
    call_id: StepKey
    run_id: Name | None = None
    step: StepKey | None = None
    """Whose call it is: an id alone would give one step's reply to another."""
    dispatched_at_ms: Moment | None = None
    """That of the call."""
    question: Name | None = None
    """A digest of what the call asks; None: an earlier release asks."""
    reply_to: Name
    counts: bool = False


class CallCancelled(Message):
    """Stop a model call of a tenant wherever it runs; what it used is booked all the same."""

    tenant: Name = "default"
    call_id: StepKey
    capability: Name | None = None
    """That of the call."""


class CallReply(Message):
    """The gateway's answer: text (or `embeddings`) with its usage, or a typed error. `latency_ms` is
    the gateway's time for the call, of which it waited `queue_ms` for a backend to have room."""

    call_id: StepKey
    text: str = ""
    data: Any = None
    embeddings: tuple[tuple[float, ...], ...] = ()
    tool_calls: tuple[dict[str, Any], ...] = ()
    openai: dict[str, Any] | None = None
    model: Name = ""
    backend: Name = ""
    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0
    cache_write_tokens: Count = 0
    cost_usd: Money = Decimal(0)
    latency_ms: Milliseconds = 0.0
    queue_ms: Milliseconds = 0.0
    finish_reason: str = ""
    error: ErrorInfo | None = None


class CallChunk(Message):
    """A piece of a call's answer while it is made, numbered from 0. The CallReply has the whole; a
    piece that is missed is missed (core NATS)."""

    call_id: StepKey
    number: Int32
    text: str


class BackendControl(Message):
    """Do something to one replica of a backend whose server can load and unload models.

    `backend` is a replica's key: the backend's name, with `/replica` where it has several.
    """

    action: Literal["load", "unload", "status"]
    backend: Name
    timeout_ms: Milliseconds = Field(60_000, gt=0, le=3_600_000)


class BackendControlled(Message):
    """What came of it: whether the model is ready, and for `status` what its server counted."""

    backend: Name
    ready: bool | None = None
    statistics: dict[str, Any] | None = None
    error: ErrorInfo | None = None


class NodeExpected(Message):
    """A node that will need a model: which one (None where its handler decides), and how long after its
    run's acceptance it is expected to begin."""

    node: StepKey
    model: Name | None = None
    after_ms: Milliseconds


class RunsExpected(Message):
    """So many runs of a pipeline were accepted; the models of their nodes can be made ready."""

    tenant: Name
    pipeline: Name
    version: Int32
    runs: Int32 = 1
    accepted_at_ms: Moment
    nodes: tuple[NodeExpected, ...]


class PromptExpected(Message):
    """A node of a run is next, and the beginning of its prompt is known: its server may read that while
    the steps before it still run."""

    tenant: Name
    pipeline: Name
    version: Int32
    run_id: Name
    node: StepKey
    model: Name
    messages: tuple[ChatMessage, ...]
    requires: Requirements = NO_REQUIREMENTS
    deadline_at_ms: Moment
    budget_usd: Money | None = None
    budget_left_usd: Balance | None = None
    root_budget: RootBudget | None = None


class ReplicasUsed(Message):
    """What one gateway did with replicas that are started and stopped: for how long each had calls since
    the last time (those that have one now are `in_use`), and which cold ones its calls wait for."""

    gateway: Name
    busy_ms: dict[str, float] = Field(default_factory=dict)
    in_use: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


class WarmRecord(Message):
    """The time that one replica was held, from one moment to another, by what it was good for: starting,
    busy with calls, idle, or provisioned without the model; and what it cost. `reason`: why it was
    warm at the end of it."""

    call_id: StepKey
    """The record's own id; the ledger keeps one row for each."""
    kind: Literal["warm"] = "warm"
    backend: Name
    replica: Name = ""
    model: Name
    reason: StoredText = ""
    from_at_ms: Moment
    to_at_ms: Moment
    starting_ms: Milliseconds = 0.0
    busy_ms: Milliseconds = 0.0
    idle_ms: Milliseconds = 0.0
    provisioned_ms: Milliseconds = 0.0
    usd_per_hour: Money = Decimal(0)
    cost_usd: Money = Decimal(0)
    wasted_usd: Money = Decimal(0)


class CallOpened(Message):
    """A call is about to be made: stored before its backend is asked, so that a call whose gateway is
    killed is known. `expected_usd` is what such a call is expected to cost."""

    call_id: StepKey
    kind: Literal["opened"] = "opened"
    attribution: Attribution
    model: Name
    backend: Name
    replica: Name = ""
    gateway: Name = ""
    expected_usd: Money = Decimal(0)
    started_at_ms: Moment
    deadline_at_ms: Moment


class SpentAsked(Message):
    """What have the calls of a tenant cost since a moment: those of one run, of one pipeline, with some
    labels, or all of them?"""

    tenant: Name
    run_id: Name | None = None
    pipeline: Name | None = None
    labels: Labels | None = None
    since_ms: Moment = 0.0
    tools: bool = False
    """What tools charged is asked for, and not what calls cost."""
    nonce: Name = ""
    """Of this question alone, so that an old answer is none to it."""


class SpentTold(Message):
    """What the ledger has of it by now; whether Hocket runs the run, and its pipeline, budget and labels
    if there are any."""

    spent_usd: Money
    run_known: bool = False
    pipeline: Name | None = None
    budget_usd: Money | None = None
    labels: Labels | None = None
    root_budget: RootBudget | None = None
    """Of a sub-run: the budget at the top of its tree."""
    accepted_at_ms: Moment | None = None
    """Of a run that Hocket runs. Another moment than before is that of another run, which has the id of
    a deleted one."""
    tools_usd: Money | None = None
    """What tools charged, where that was asked for; unless it is of a run, `spent_usd` is 0 then."""
    busy: bool = False
    """Whether it is no answer, because the ledger can give none now."""


class ReplicaControl(Message):
    """What is to become of a backend's replicas, of one or of all: no more calls (`drain`) or calls
    again (`resume`), be ready for `for_ms` from now on (`warm`; 0 ends that), breakers closed and rests
    over (`reset`). Gateways keep it until it is changed."""

    action: Literal["drain", "resume", "warm", "reset"]
    backend: Name
    replica: Name = ""
    """As its key says: `backend/replica`. Nothing: all of the backend."""
    for_ms: Milliseconds = 0.0
    reason: StoredText = ""
    by: Name = ""


class ReplicaState(Message):
    """A replica as one gateway sees it."""

    replica: Name
    backend: Name
    kind: Name = ""
    models: tuple[Name, ...] = ()
    """The logical models that it serves."""
    breaker: Name = "closed"
    openings: Count = 0
    in_flight: Count = 0
    waiting: Count = 0
    """Calls that wait for a slot in its pool."""
    waiting_by_class: dict[Name, Count] = Field(default_factory=dict)
    """The same by their class; without classes of which none waits."""
    limit: Count = 0
    """How many calls it takes at once, from all gateways together."""
    rests_ms: Milliseconds = 0.0
    level: Literal["", "cold", "provisioned", "ready"] = ""
    """How warm it is; nothing where gateways do not start and stop it."""
    ready_at_ms: Moment | None = None
    """When the start that is under way should be done."""
    drained: bool = False
    warm_until_ms: Moment | None = None
    """Until when an operator wants it ready."""
    reason: StoredText = ""
    by: Name = ""
    changed_at_ms: Moment | None = None
    """When an operator changed something last, who that was (`by`), and why."""


class ModelRateState(Message):
    """How much of a rate one gateway has used in the last minute, and how many calls wait there; the
    rate is shared by so many `gateways`. Without a tenant, or model, it is of all of them together."""

    tenant: Name | None
    model: Name | None
    requests_per_min: int | None
    tokens_per_min: int | None
    beyond: Literal["wait", "refuse"]
    requests: int
    tokens: int
    waiting: int
    gateways: int


class BudgetRule(Message):
    """A budget of the gateways' configuration: US dollars in each `per` (UTC), for a tenant (`acme`), a
    pipeline (`report`, or `acme/report`) or a label (`team=search`, or `acme/team=search`). `*` is for
    each that is not named."""

    level: Literal["tenant", "pipeline", "label"]
    name: StoredText
    usd: Money
    per: Literal["hour", "day", "month"]


class ReplicasTold(Message):
    """A gateway's replicas, after what was asked for was done; `gateways` are all that live, as it sees
    them. `rates` are those of tenants and models that it knows, `budgets` the first MAX_TOLD_BUDGETS of
    its configuration."""

    gateway: Name = ""
    gateways: tuple[Name, ...] = ()
    replicas: tuple[ReplicaState, ...] = ()
    rates: tuple[ModelRateState, ...] = ()
    budgets: tuple[BudgetRule, ...] = ()
    error: ErrorInfo | None = None


class ExperimentControl(Message):
    """Look at the experiments, or switch an arm off (`rollback`) or on again (`restore`) by hand. With a
    `tenant` other tenants' experiments are as if they were not there; those of all tenants are."""

    action: Literal["list", "rollback", "restore"]
    tenant: Name | None = None
    experiment: Name = ""
    arm: Name = ""
    by: Name = ""


class ArmState(Message):
    """An arm of an experiment as a gateway knows it: calls in all, and of the last ones how many failed,
    were slow, or belonged to runs that did not succeed, each with their number."""

    arm: Name
    model: Name
    weight: Number
    control: bool = False
    off: bool = False
    reason: StoredText = ""
    since_ms: Moment | None = None
    by: Name = ""
    calls: Count = 0
    errors: tuple[int, int] = (0, 0)
    slow: tuple[int, int] = (0, 0)
    outcomes: tuple[int, int] = (0, 0)


class ExperimentState(Message):
    """An experiment with its arms, the control first."""

    experiment: Name
    model: Name
    tenant: Name | None = None
    pipeline: Name | None = None
    node: StepKey | None = None
    judged: bool = True
    """Whether a bad arm is rolled back without a hand."""
    arms: tuple[ArmState, ...] = ()


class ExperimentsTold(Message):
    """The experiments, after what was asked for was done."""

    experiments: tuple[ExperimentState, ...] = ()
    error: ErrorInfo | None = None


class ArmRolledBack(Message):
    """An arm was switched off: its runs go to the control. `cause` is `errors`, `latency`, `outcome` or
    `operator`."""

    kind: ClassVar[str] = "arm-rolled-back"

    experiment: Name
    arm: Name
    model: Name
    cause: Name
    reason: StoredText
    by: Name = ""
    at_ms: Moment


class OutcomeTold(Message):
    """Somebody judges a run: whether its result was good. For callers whose runs are not Hocket's, or
    who know better than the run's status."""

    tenant: Name = "default"
    run_id: Name
    good: bool


class CandidateSeen(Message):
    """A replica that routing looked at: the lower score wins; `refused` says why it could not take the
    call."""

    backend: Name
    score: tuple[float, ...] = ()
    refused: str = ""


class CallDecision(Message):
    """How an attempt came to its replica: what was looked at (the best first, the others counted in
    `left_out`), why the first one won, what had been tried before, and why the attempt was made at all
    (`because`: a retry, a stage of a cascade, a hedge)."""

    model: Name
    reason: StoredText
    because: StoredText = ""
    queue_ms: Milliseconds = 0.0
    tried: tuple[str, ...] = ()
    candidates: tuple[CandidateSeen, ...] = ()
    left_out: Int32 = 0
    operation: StoredText = ""
    """What was asked for, as OpenTelemetry names it: `chat`, `text_completion` or `embeddings`."""
    provider: StoredText = ""
    """The kind of the backend."""
    target: StoredText = ""
    """The model's name at its server."""


class CallRefused(Message):
    """A call that no backend was asked for, and why: nothing was spent. Told as well as can be, and
    kept for a week."""

    call_id: StepKey
    kind: Literal["refused"] = "refused"
    attribution: Attribution
    model: Name
    error_code: Name
    reason: StoredText
    gateway: Name = ""
    refused_at_ms: Moment


class UsageRecord(Message):
    """What one call used and cost; the ledger keeps one row per `call_id`.

    `input_usd_per_mtok` and the like are the prices that were in force for this call. `kind` tells what
    was not of use: a `cascade`'s cheaper answer that was not accepted, the `speculation` of a hedge that
    lost. `experiment` and `arm` stand where the call was part of one. `estimated`: the backend did not
    say what it used (docs/reference/costs.md).
    """

    call_id: StepKey
    kind: Literal["call", "cascade", "speculation"] = "call"
    attribution: Attribution
    model: Name
    backend: Name
    replica: Name = ""
    status: Literal["ok", "error", "cancelled"]
    error_code: Name | None = None
    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0
    cache_write_tokens: Count = 0
    input_usd_per_mtok: Money = Decimal(0)
    output_usd_per_mtok: Money = Decimal(0)
    cached_usd_per_mtok: Money | None = None
    cache_write_usd_per_mtok: Money | None = None
    request_usd: Money = Decimal(0)
    cost_usd: Money = Decimal(0)
    estimated: bool = False
    unpriced: bool = False
    """No price of the backend is known; the cost of 0 stands for an unknown one."""
    started_at_ms: Moment
    latency_ms: Milliseconds
    experiment: Name | None = None
    arm: Name | None = None
    decision: CallDecision | None = None
