"""Bodies of the REST API.

Times are RFC 3339 in UTC (`*_at`), durations are milliseconds (`*_ms`), money is decimal strings of US
dollars (`*_usd`). Unknown fields in a request are refused, so that a misspelt one is not ignored.
"""

import re
from datetime import date, datetime
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    WithJsonSchema,
)

from hocket.schemas.checks.bounded import MAX_STEP_CHARS, Name, StepKey
from hocket.schemas.checks.plain_json import check_plain
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.labels import (
    MAX_LABELS_HEADER_CHARS,
    Labels,
    header_of,
    reserved_among,
    reserved_reason,
)
from hocket.schemas.messages import CallDecision, ExperimentState, Priority
from hocket.schemas.pipeline.node_parts import MAX_WAIT_MS
from hocket.schemas.subjects import TOKEN

MAX_KEY_CHARS = 200
MAX_REPLY_WAIT_MS = 60_000
"""The longest that `POST /v1/runs` waits for the run's end."""
MAX_PAGE = 500
DEFAULT_PAGE = 50
MAX_VERSION = 2**31 - 1
MAX_BUDGET_USD = 999_999_999
USD = re.compile(r"^[0-9]{1,9}(\.[0-9]{1,9})?$", re.ASCII)
_NANO = Decimal("1e-9")


def _checked(value: Any) -> Any:
    check_plain(value)
    return value


def _of_a_task(labels: dict[str, str]) -> dict[str, str]:
    """Refuse labels that only the platform sets, and those that the header of a task cannot hold."""
    if key := reserved_among(labels):
        raise ValueError(reserved_reason(key))
    if (chars := len(header_of(labels))) > MAX_LABELS_HEADER_CHARS:
        raise ValueError(
            f"they have {chars} characters when percent-encoded; the most is "
            f"{MAX_LABELS_HEADER_CHARS}"
        )
    return labels


def _number(value: Any) -> Any:
    """Accept a JSON number, but no text or boolean that could be read as one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("it is not a number")
    return value


def _budget(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, str):
        if not USD.fullmatch(value):
            raise ValueError("it is not an amount of dollars with at most 9 places, as in 0.25")
        return Decimal(value)
    number = _number(value)
    if not 0 <= number <= MAX_BUDGET_USD:
        raise ValueError(f"it is not between 0 and {MAX_BUDGET_USD}")
    return Decimal(repr(number)).quantize(_NANO, rounding=ROUND_CEILING)


PlainJson = Annotated[Any, AfterValidator(_checked)]
PlainObject = Annotated[dict[str, Any], AfterValidator(_checked)]
TaskLabels = Annotated[Labels, AfterValidator(_of_a_task)]
Token = Annotated[str, Field(pattern=f"^{TOKEN.pattern}$")]
STORABLE = r"^[^\x00]*$"
"""Text that Postgres can store."""
Text = Annotated[str, Field(max_length=1_000, pattern=STORABLE)]
NUMBER = BeforeValidator(_number)
"""For use beside `int` or `float`, after its bounds, which the OpenAPI document would lose otherwise.
`51.0` counts as whole."""
Version = Annotated[int, Field(ge=1, le=MAX_VERSION), NUMBER]
DeadlineMs = Annotated[float, Field(gt=0, le=MAX_WAIT_MS), NUMBER]
ReplyWaitMs = Annotated[float, Field(ge=0, le=MAX_REPLY_WAIT_MS), NUMBER]
BudgetUsd = Annotated[
    Decimal,
    BeforeValidator(_budget),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": USD.pattern},
                {"type": "number", "minimum": 0, "maximum": MAX_BUDGET_USD},
            ]
        }
    ),
]
"""US dollars: a decimal string with at most nine decimal places, or a number, which is rounded up to
nine."""
Usd = Annotated[
    Decimal,
    PlainSerializer(lambda amount: format(amount, "f"), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}, mode="serialization"),
]
"""US dollars as a plain decimal string, never with an exponent."""
Key = Annotated[str, Field(min_length=1, max_length=MAX_KEY_CHARS, pattern=r"^[\x21-\x7e]+$")]
"""An idempotency key: printable ASCII without spaces, because it is carried in headers."""


class Request(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )


class Reply(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class ErrorReply(Reply):
    """Body of every response other than 2xx: a problem (RFC 9457) of type `application/problem+json`.
    `field` names what is wrong in the request, `cure` says what to do; `error` is the full typed
    error."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    cure: str | None = None
    error: ErrorInfo


# ---- pipelines ------------------------------------------------------------------------------


class PipelineApplied(Reply):
    """`created` is false if the latest version already has the same spec."""

    pipeline: str
    version: int
    created: bool
    warnings: tuple[str, ...] = ()


class PipelineValid(Reply):
    pipeline: str
    nodes: int
    warnings: tuple[str, ...] = ()


class PipelineSummary(Reply):
    pipeline: str
    version: int
    active_version: int
    """The version used by runs that do not name one."""
    archived_at: datetime | None = None
    description: str = ""
    priority: Priority = Field(alias="class")
    slo_ms: float
    nodes: int
    created_at: datetime


class PipelineList(Reply):
    pipelines: tuple[PipelineSummary, ...]


class PipelineDetail(Reply):
    pipeline: str
    version: int
    versions: tuple[int, ...]
    """Existing versions, newest first; at most 500."""
    spec: dict[str, Any]
    spec_hash: str
    created_at: datetime
    created_by: str


# ---- node types -----------------------------------------------------------------------------


class QueueSlots(Reply):
    """The workers that take the steps of a type in a queue (`default` is the type's own), and how many
    steps they can run at once."""

    queue: str
    workers: int
    slots: int


class NodeTypeSummary(Reply):
    """A node type: built-in, or as described by the workers that run it or last ran it."""

    type: str
    built_in: bool
    version: str | None = None
    description: str = ""
    is_served: bool
    """Whether a worker is running it now: one that has been silent for 7 s does not count."""
    queues: tuple[QueueSlots, ...] = ()
    last_seen_at: datetime | None = None


class NodeTypeList(Reply):
    """Node types by name; `next` is the `after` of the next page, null on the last."""

    types: tuple[NodeTypeSummary, ...]
    next: str | None = None


class NodeTypeVersion(Reply):
    """What its workers say about a version; a schema is null if anything is allowed. `faults`: what
    they say that is not used, and why."""

    version: str
    description: str = ""
    config: dict[str, Any] | None = None
    input: dict[str, Any] | None = None
    output: dict[str, Any] | None = None
    concurrency: int
    timeout_ms: float | None = None
    effects: str
    usd_per_second: Usd | None = None
    faults: tuple[str, ...] = ()
    workers: int
    first_seen_at: datetime
    last_seen_at: datetime


class NodeTypeDetail(NodeTypeSummary):
    """A node type with its versions; pipelines are checked against the first of them."""

    versions: tuple[NodeTypeVersion, ...] = ()


# ---- runs -----------------------------------------------------------------------------------


class RunSubmission(Request):
    """A task. The same `idempotency_key` always means the same run; without a key, each submission
    starts a new run. With `wait_ms`, the response waits up to that long for the run to end."""

    pipeline: Token
    input: PlainObject = Field(default_factory=dict)
    idempotency_key: Key | None = None
    deadline_ms: DeadlineMs | None = None
    """Milliseconds from now; defaults to the pipeline's SLO."""
    priority: Priority | None = Field(None, alias="class")
    budget_usd: BudgetUsd | None = None
    version: Version | None = None
    labels: TaskLabels = Field(default_factory=dict)
    """What the task is charged to, such as `{"customer": "acme"}`; inherited by its sub-runs and calls.
    Names that begin with `hocket.` are reserved for the platform."""
    wait_ms: ReplyWaitMs = 0


class RetryBody(Request):
    """How to retry a run. Labels are those of the original run, and so are class and budget unless
    given; the deadline defaults to the pipeline's SLO from now. Without `idempotency_key`, the same
    request always means the same new run."""

    idempotency_key: Key | None = None
    deadline_ms: DeadlineMs | None = None
    priority: Priority | None = Field(None, alias="class")
    budget_usd: BudgetUsd | None = None
    wait_ms: ReplyWaitMs = 0


class RerunBody(RetryBody):
    """How to rerun a run. `from_step` and all steps after it always run; other steps run only if a
    new input or version changes what they do."""

    from_step: str | None = Field(
        None, min_length=1, max_length=MAX_STEP_CHARS, pattern=r"^[\x21-\x7e]+$"
    )
    """Name of a step, as listed by `hocket runs show`."""
    step_input: PlainObject | None = None
    """Input for that step, instead of its own."""
    input: PlainObject | None = None
    """Input of the run; defaults to the original input."""
    version: Version | None = None
    """Version of the pipeline; defaults to the version that the original run started with."""


class RunReceipt(Reply):
    """A task was accepted. `status` is `accepted` until the run is in the database, then the run's own
    status; `known` is true if the key belongs to an existing run."""

    run_id: str
    pipeline: str
    status: str
    known: bool = False
    url: str


class RunResult(Reply):
    """The result of a run that has ended."""

    run_id: str
    pipeline: str
    version: int
    status: str
    output: Any = None
    error: ErrorInfo | None = None
    accepted_at: datetime
    finished_at: datetime
    deadline_at: datetime
    duration_ms: float
    met_deadline: bool
    """Whether the run returned its result by its deadline; false for one that failed or was
    cancelled."""
    spent_usd: Usd | None = None
    """Cost of its steps' calls and of calls at the HTTP door that refer to it; null if coordinators
    run a release that does not report it."""
    withheld: bool = False
    """Whether content was omitted because the key lacks the permission `content.read`."""


class RunSummary(Reply):
    run_id: str
    tenant: str
    pipeline: str
    version: int
    status: str
    priority: Priority = Field(alias="class")
    accepted_at: datetime
    deadline_at: datetime
    deadline_paused_at: datetime | None = None
    """Since when the deadline of an open run is paused, because a step waits for an answer; once it has
    come, `deadline_at` moves by the time waited."""
    finished_at: datetime | None = None
    duration_ms: float | None = None
    met_deadline: bool | None = None
    """Whether an ended run returned its result by its deadline; false for one that failed or was
    cancelled."""
    degraded: bool = False
    spent_usd: Usd
    """Cost of its steps' calls and of calls at the HTTP door that refer to it."""
    budget_usd: Usd | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class RunRepeats(Reply):
    """The run that this run repeats, and how."""

    run_id: str
    operation: Literal["retry", "rerun"]
    from_step: str | None = None
    step_input: dict[str, Any] | None = None


class PathSegment(Reply):
    """A segment of a critical path: `ms` milliseconds, starting `from_ms` after acceptance, that one
    step spent in one way. `pieces` is more than 1 if the beginning of a very long path was merged by
    node and kind."""

    step: str
    node: str
    attempt: int
    kind: str
    from_ms: float
    ms: float
    pieces: int = 1


class CriticalPath(Reply):
    """What the end of the run waited for: consecutive segments without gaps, which add up to the
    duration of the run. `by_kind` has the totals: `coordinator`, `queue`, `execution`,
    `gateway_queue`, `model`, `backoff`, `cache`, `waiting`."""

    by_kind: dict[str, float]
    segments: tuple[PathSegment, ...]


class RunDetail(RunSummary):
    """A run with its input and result; `critical_path` is present once the run has ended."""

    idempotency_key: str | None = None
    input: dict[str, Any]
    output: Any = None
    error: ErrorInfo | None = None
    parent: dict[str, Any] | None = None
    """The step of another run that waits for this one: `run_id`, `step`, `attempt`, and `depth` (how
    many runs are above this one)."""
    origin: RunRepeats | None = None
    critical_path: CriticalPath | None = None
    withheld: bool = False
    """Whether content was omitted because the key lacks the permission `content.read`."""


class RunList(Reply):
    """A page of runs; `next` is the `after` of the next page, null on the last."""

    runs: tuple[RunSummary, ...]
    next: str | None = None


class FailedAttempt(Reply):
    """An attempt that did not produce the step's result: it `failed`, `timed_out`, was `cancelled` or
    `late`, or was `suspended` because its handler waited."""

    attempt: int
    outcome: str
    error: ErrorInfo | None = None
    started_at: datetime | None = None
    finished_at: datetime
    worker: str | None = None


class StepSource(Reply):
    """Where a step's output comes from if this run did not compute it: `cache` (computed by a step with
    `cache`, here or in another pipeline; `saved_usd` is what its calls cost there), or `run` (the run
    that this one repeats, or an earlier one)."""

    kind: Literal["cache", "run"]
    run_id: str
    step: str
    saved_usd: Usd | None = None


class StepWaits(Reply):
    """Why a step does not proceed: no worker takes it now, or none knows its handler; or it waits
    without occupying a worker, for one of the `signals`, the time `until`, or one of the `steps` that
    its handler called."""

    type: str
    queue: str | None = None
    reason: str
    signals: tuple[str, ...] = ()
    until: datetime | None = None
    steps: tuple[str, ...] = ()


class StepDetail(Reply):
    """A step. `step` is its path in the run; `slack_ms` is the time that was left beyond the expected
    remainder of the run when the step was dispatched."""

    step: str
    node: str
    type: str
    role: str
    parent: str | None = None
    state: str
    attempt: int
    ready_at: datetime
    dispatched_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    deadline_at: datetime | None = None
    slack_ms: float | None = None
    duration_ms: float | None = None
    worker: str | None = None
    input: Any = None
    output: Any = None
    error: ErrorInfo | None = None
    source: StepSource | None = None
    attempts: tuple[FailedAttempt, ...] = ()
    waits_for: StepWaits | None = None
    """For a step that no worker can take now, or that waits for something external: what it waits
    for."""


class StepList(Reply):
    """The steps of a run, in the order in which they became ready; `next` as in RunList."""

    run_id: str
    steps: tuple[StepDetail, ...]
    next: str | None = None


class JournalStep(Reply):
    """An action of a step's handler, recorded in the step's journal. `branch` is its place in the
    handler, `ordinal` its number there; `attempt` and `worker` tell who performed it."""

    step: str
    attempt: int
    worker: str
    kind: str
    name: str
    branch: str
    ordinal: int
    started_at: datetime
    finished_at: datetime
    duration_ms: float
    cost_usd: Usd
    error: ErrorInfo | None = None


class RunJournal(Reply):
    """What the handlers of a run's steps did, for as long as their journals are kept; `truncated` if
    there is more."""

    run_id: str
    entries: tuple[JournalStep, ...]
    truncated: bool = False


class NodeCost(Reply):
    node: str | None = None
    model: str
    backend: str
    calls: int
    failed_calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: Usd
    mean_latency_ms: float


class ToolCost(Reply):
    """Charges of a node's steps other than model calls: requests with a price, seconds of a node type
    with a price, and costs reported by handlers."""

    node: str
    type: str
    steps: int
    seconds: float
    """Seconds spent in workers."""
    cost_usd: Usd


class SubRunCost(Reply):
    """What the sub-runs of a pipeline that a node started cost, with all sub-runs below them: model
    calls, and charges of steps."""

    node: str
    pipeline: str
    runs: int
    """Sub-runs that the node started, without those below them."""
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Usd


class RunCost(Reply):
    """What a run cost, with its sub-runs: the model calls of its own nodes by node, model and backend,
    from the ledger; its own `tools`; and its `sub_runs`. The sums, and what the cache saved, are those
    of all of them."""

    run_id: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Usd
    cache_hits: int = 0
    cache_saved_usd: Usd = Decimal(0)
    nodes: tuple[NodeCost, ...]
    tools: tuple[ToolCost, ...] = ()
    sub_runs: tuple[SubRunCost, ...] = ()


class CancelBody(Request):
    reason: Text = ""


class SignalBody(Request):
    """A signal for a run: `name` is the `signal` of the waiting node, or the approval's step."""

    name: Annotated[StepKey, Field(min_length=1)]
    payload: PlainJson = None
    signal_id: Key | None = None
    """The same ID always means the same signal; without an ID, each request sends a new one."""


class Sent(Reply):
    """The request was written to the log of the run's partition, which is processed in order."""

    run_id: str
    log_seq: int


# ---- costs ----------------------------------------------------------------------------------


class PipelineDayCost(Reply):
    pipeline: str | None = None
    day: date
    calls: int
    runs: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: Usd


class PipelineCosts(Reply):
    """One row per pipeline and day (UTC), from `report.cost_by_pipeline_day`."""

    costs: tuple[PipelineDayCost, ...]
    truncated: bool = False


class PipelineNodeCost(Reply):
    """What a node cost at a model and backend. What its steps charged besides has neither, no latency
    and no tokens; its `calls` are those steps."""

    pipeline: str | None = None
    version: int | None = None
    node: str | None = None
    model: str | None = None
    backend: str | None = None
    calls: int
    failed_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Usd
    mean_latency_ms: float | None = None


class NodeCosts(Reply):
    """One row per pipeline version, node, model and backend, from `report.cost_by_node`."""

    costs: tuple[PipelineNodeCost, ...]
    truncated: bool = False


class KindCost(Reply):
    pipeline: str | None
    version: int | None
    node: str | None
    day: date
    kind: str
    calls: int
    runs: int
    input_tokens: int
    output_tokens: int
    cost_usd: Usd


class KindCosts(Reply):
    """One row per pipeline version, node, day (UTC) and kind, from `report.cost_by_kind`. Kinds:
    `call`; `retry`, a repeated attempt; `speculation`, a branch or hedge that lost its race;
    `cascade`, a cheaper answer that was not accepted; `tool`, steps that charged without a model."""

    costs: tuple[KindCost, ...]
    truncated: bool = False


class CacheSaving(Reply):
    pipeline: str
    version: int
    node: str
    day: date
    hits: int
    runs: int
    saved_usd: Usd


class CacheSavings(Reply):
    """One row per pipeline version, node and day (UTC), from `report.cache_savings`."""

    savings: tuple[CacheSaving, ...]
    truncated: bool = False


class RunCostRow(Reply):
    run_id: str
    pipeline: str | None = None
    version: int | None = None
    status: str
    """Status of the run; `external` if calls at the HTTP door refer to a run that Hocket did not run,
    `deleted` if the run is no longer stored."""
    accepted_at: datetime
    """For an external or deleted run, the start of its first call."""
    duration_ms: float | None = None
    met_deadline: bool | None = None
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Usd


class RunCosts(Reply):
    """Costs of runs, most expensive first, from `report.cost_by_run`."""

    costs: tuple[RunCostRow, ...]
    truncated: bool = False


# ---- calls ----------------------------------------------------------------------------------


class CallAttempt(Reply):
    """One attempt of a model call at a replica, and how it was routed there."""

    call_id: str
    kind: str
    tenant: str
    pipeline: str | None
    run_id: str | None
    node: str | None
    step: str | None
    attempt: int | None
    model: str
    backend: str
    replica: str
    status: str
    error_code: str | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: Usd
    started_at: datetime
    latency_ms: float
    experiment: str | None = None
    arm: str | None = None
    decision: CallDecision | None = None
    """Null for calls that were booked before decisions were stored."""


class OpenAttempt(Reply):
    """An attempt that was announced but is not booked: it is in progress, or its gateway was killed."""

    call_id: str
    model: str
    backend: str
    replica: str
    gateway: str
    started_at: datetime
    deadline_at: datetime


class RefusedCall(Reply):
    """Why no backend was called for a call, the last time it was requested."""

    call_id: str
    model: str
    error_code: str
    reason: str
    gateway: str
    refused_at: datetime


class CallExplained(Reply):
    call_id: str
    attempts: tuple[CallAttempt, ...] = ()
    open: tuple[OpenAttempt, ...] = ()
    refused: RefusedCall | None = None


class CallList(Reply):
    """The attempts of all calls of a run, oldest first; `next` as in RunList, and `truncated` if there
    is one."""

    calls: tuple[CallAttempt, ...]
    truncated: bool = False
    next: str | None = None


class OutcomeBody(Request):
    """Whether the result of a run was good, as its caller knows: for experiments, which judge arms by
    it."""

    run_id: Annotated[Name, Field(min_length=1)]
    """The run that the calls named: one of Hocket's, or any name that the HTTP door was given."""
    good: StrictBool


class OutcomeSent(Reply):
    """What was sent to all gateways. Those through which the run made no calls ignore it."""

    tenant: str
    run_id: str
    good: bool


class ExperimentList(Reply):
    """Experiments as known to one of the gateways, including what the others reported to it."""

    experiments: tuple[ExperimentState, ...]


# ---- dead letters ---------------------------------------------------------------------------


class DeadLetter(Reply):
    """A message that could not be processed. `context` says what it belonged to (run, step, attempt
    ...) and what happened to it (deliveries, the worker that gave up); `payload` is its text;
    `payload_truncated` means that only the beginning is shown. `tenant` is null if the message does
    not name one."""

    seq: int
    source: str
    tenant: str | None = None
    subject: str
    error: ErrorInfo
    context: dict[str, Any] = Field(default_factory=dict)
    buried_at: datetime | None = None
    payload: str = ""
    payload_bytes: int = 0
    payload_truncated: bool = False
    headers: dict[str, str] = Field(default_factory=dict)
    withheld: bool = False
    """Whether content was omitted because the key lacks the permission `content.read`."""


class DeadLetterList(Reply):
    dead_letters: tuple[DeadLetter, ...]
    next: str | None = None


class Redriven(Reply):
    """A dead letter was published again on its original subject and removed."""

    seq: int
    subject: str


# ---- health ---------------------------------------------------------------------------------


class Part(Reply):
    """A part of the platform; `detail` says what is wrong, or what was found."""

    name: str
    ok: bool
    detail: str = ""


class SystemHealth(Reply):
    """The platform's state as seen by the API process."""

    status: Literal["ok", "impaired"]
    version: str
    parts: tuple[Part, ...]
