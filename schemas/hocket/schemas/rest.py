"""Bodies of the REST API.

Times are RFC 3339 in UTC (`*_at`), durations milliseconds (`*_ms`), money decimal strings of US
dollars (`*_usd`). Unknown fields in a request are refused, so that a misspelt one is not lost.
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
    WithJsonSchema,
)

from hocket.schemas.checks.plain_json import check_plain
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.labels import Labels, reserved_among, reserved_reason
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


def _unreserved(labels: dict[str, str]) -> dict[str, str]:
    if key := reserved_among(labels):
        raise ValueError(reserved_reason(key))
    return labels


def _number(value: Any) -> Any:
    """Let a JSON number in, and no text or boolean that could be read as one."""
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
TaskLabels = Annotated[Labels, AfterValidator(_unreserved)]
Token = Annotated[str, Field(pattern=f"^{TOKEN.pattern}$")]
STORABLE = r"^[^\x00]*$"
"""Text that Postgres can store."""
Text = Annotated[str, Field(max_length=1_000, pattern=STORABLE)]
NUMBER = BeforeValidator(_number)
"""Beside `int` or `float`, after its bounds, which documents lose otherwise. `51.0` is whole."""
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
"""US dollars: a decimal string with at most nine places, or a number, which is rounded up to that."""
Usd = Annotated[
    Decimal,
    PlainSerializer(lambda amount: format(amount, "f"), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}, mode="serialization"),
]
"""US dollars as a plain decimal string, never with an exponent."""
Key = Annotated[str, Field(min_length=1, max_length=MAX_KEY_CHARS, pattern=r"^[\x21-\x7e]+$")]
"""An idempotency key: printable ASCII without spaces, since it travels in headers."""


class Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Reply(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True)


class ErrorReply(Reply):
    """Every answer that is not 2xx: a problem (RFC 9457), of type `application/problem+json`. `field`
    names what is wrong in the request, `cure` what to do; `error` is the typed error, whole."""

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
    """`created` is false where the latest version already says the same."""

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
    """That which runs take that name none."""
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
    """All versions there are, the latest first; at most 500."""
    spec: dict[str, Any]
    spec_hash: str
    created_at: datetime
    created_by: str


# ---- node types -----------------------------------------------------------------------------


class QueueSlots(Reply):
    """The workers that take the steps of a type in a queue (`default` is the type's own), and how many
    steps they run at once."""

    queue: str
    workers: int
    slots: int


class NodeTypeSummary(Reply):
    """A node type: built-in, or as the workers describe it that run it, or ran it last."""

    type: str
    built_in: bool
    version: str | None = None
    description: str = ""
    is_served: bool
    """Whether a worker runs it now: one that has been silent for 7 s does not count."""
    queues: tuple[QueueSlots, ...] = ()
    last_seen_at: datetime | None = None


class NodeTypeList(Reply):
    """By name; `next` is the `after` of the page that follows, null on the last one."""

    types: tuple[NodeTypeSummary, ...]
    next: str | None = None


class NodeTypeVersion(Reply):
    """What its workers say of a version; a schema is null where anything goes."""

    version: str
    description: str = ""
    config: dict[str, Any] | None = None
    input: dict[str, Any] | None = None
    output: dict[str, Any] | None = None
    concurrency: int
    timeout_ms: float | None = None
    effects: str
    usd_per_second: Usd | None = None
    workers: int
    first_seen_at: datetime
    last_seen_at: datetime


class NodeTypeDetail(NodeTypeSummary):
    """With its versions; pipelines are checked against the first of them."""

    versions: tuple[NodeTypeVersion, ...] = ()


# ---- runs -----------------------------------------------------------------------------------


class RunSubmission(Request):
    """A task. The same `idempotency_key` is the same run, for ever; without one each submission is
    a run of its own. With `wait_ms` the answer waits for the run's end, up to that long."""

    pipeline: Token
    input: PlainObject = Field(default_factory=dict)
    idempotency_key: Key | None = None
    deadline_ms: DeadlineMs | None = None
    """From now; without it the pipeline's SLO."""
    priority: Priority | None = Field(None, alias="class")
    budget_usd: BudgetUsd | None = None
    version: Version | None = None
    labels: TaskLabels = Field(default_factory=dict)
    """What the task is charged to, like `{"customer": "acme"}`; its sub-runs and calls inherit them.
    Names that begin with `hocket.` are the platform's."""
    wait_ms: ReplyWaitMs = 0


class RetryBody(Request):
    """How to retry a run. Its labels are the run's own; class and budget, too, where none are named; the
    deadline is the pipeline's SLO from now. Without `idempotency_key` the same request is the same new
    run."""

    idempotency_key: Key | None = None
    deadline_ms: DeadlineMs | None = None
    priority: Priority | None = Field(None, alias="class")
    budget_usd: BudgetUsd | None = None
    wait_ms: ReplyWaitMs = 0


class RerunBody(RetryBody):
    """How to run a run again. `from_step` and what comes after it run in any case; other steps only
    where a new input or version makes them do something else."""

    from_step: str | None = Field(None, min_length=1, max_length=1_000, pattern=r"^[\x21-\x7e]+$")
    """The name of a step, as `hocket runs show` lists it."""
    step_input: PlainObject | None = None
    """What that step gets instead of its own input."""
    input: PlainObject | None = None
    """The run's input; without it the old one."""
    version: Version | None = None
    """The pipeline's version; without it the one that the old run began with."""


class RunReceipt(Reply):
    """A task was taken. `status` is `accepted` until the run is in the database, then the run's own;
    `known` says that the key named a run that was there before."""

    run_id: str
    pipeline: str
    status: str
    known: bool = False
    url: str


class RunResult(Reply):
    """The end of a run."""

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
    """Whether the run gave its result by its deadline: one that failed did not."""
    spent_usd: Usd | None = None
    """What its steps' calls and those of the HTTP door that name it cost; null while coordinators are of
    a release that does not tell."""
    withheld: bool = False
    """Whether what the key may not see was left out: it has no permission `content.read`."""


class RunSummary(Reply):
    run_id: str
    tenant: str
    pipeline: str
    version: int
    status: str
    priority: Priority = Field(alias="class")
    accepted_at: datetime
    deadline_at: datetime
    finished_at: datetime | None = None
    duration_ms: float | None = None
    met_deadline: bool | None = None
    """Whether an ended run gave its result by its deadline: one that failed did not."""
    degraded: bool = False
    spent_usd: Usd
    """What its steps' calls and those of the HTTP door that name it cost."""
    budget_usd: Usd | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class RunRepeats(Reply):
    """The run that this one repeats, and how."""

    run_id: str
    operation: Literal["retry", "rerun"]
    from_step: str | None = None
    step_input: dict[str, Any] | None = None


class PathSegment(Reply):
    """A piece of a critical path: `ms` from `from_ms` after the acceptance on, at a step, in one way.
    `pieces` is more than 1 where the beginning of a very long path is folded by node and kind."""

    step: str
    node: str
    attempt: int
    kind: str
    from_ms: float
    ms: float
    pieces: int = 1


class CriticalPath(Reply):
    """What a run's end waited for: the pieces follow each other without gap and sum to the run's time.
    `by_kind` sums them: `coordinator`, `queue`, `execution`, `gateway_queue`, `model`, `backoff`,
    `cache`, `waiting`."""

    by_kind: dict[str, float]
    segments: tuple[PathSegment, ...]


class RunDetail(RunSummary):
    """`critical_path` is there once the run has ended."""

    idempotency_key: str | None = None
    input: dict[str, Any]
    output: Any = None
    error: ErrorInfo | None = None
    parent: dict[str, Any] | None = None
    origin: RunRepeats | None = None
    critical_path: CriticalPath | None = None
    withheld: bool = False
    """Whether what the key may not see was left out: it has no permission `content.read`."""


class RunList(Reply):
    """`next` is the `after` of the next page; null on the last."""

    runs: tuple[RunSummary, ...]
    next: str | None = None


class FailedAttempt(Reply):
    """An attempt that did not give its step the result: it `failed`, `timed_out`, was `cancelled` or
    `late`, or was `suspended`, as its handler waited."""

    attempt: int
    outcome: str
    error: ErrorInfo | None = None
    started_at: datetime | None = None
    finished_at: datetime
    worker: str | None = None


class StepSource(Reply):
    """Where the output of a step comes from that its run did not compute: `cache` (a step with
    `cache` did, here or in another pipeline; `saved_usd` is what its calls cost there), or `run` (the
    run that this one repeats, or one before it)."""

    kind: Literal["cache", "run"]
    run_id: str
    step: str
    saved_usd: Usd | None = None


class StepWaits(Reply):
    """Why a step does not go on: no worker takes it now, or none knows its handler; or it waits for
    something that holds no worker: one of the `signals`, the time `until`, or one of the `steps` that
    its handler called."""

    type: str
    queue: str | None = None
    reason: str
    signals: tuple[str, ...] = ()
    until: datetime | None = None
    steps: tuple[str, ...] = ()


class StepDetail(Reply):
    """`step` is its path in the run; `slack_ms` what was left beyond the expected rest of the run
    when it was dispatched."""

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
    """Of a step that no worker can take now, or that waits for something outside: what it waits for."""


class StepList(Reply):
    """The steps of a run in the order they became ready; `next` as in RunList."""

    run_id: str
    steps: tuple[StepDetail, ...]
    next: str | None = None


class JournalStep(Reply):
    """One thing that a step's handler did, and kept in the step's journal. `branch` is where in the
    handler, `ordinal` its number there; `attempt` and `worker` did it."""

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
    """What handlers of a run's steps did, as long as their journals are kept; `truncated` where there
    is more."""

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
    """What steps of one node charged that are no model's calls: requests that have a price, seconds of a
    node type that has one, and what handlers say."""

    node: str
    type: str
    steps: int
    seconds: float
    """In workers."""
    cost_usd: Usd


class RunCost(Reply):
    """What a run cost: its model calls by node, model and backend, from the ledger, and its `tools`,
    which are in `cost_usd` too; and what the cache spared it."""

    run_id: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Usd
    cache_hits: int = 0
    cache_saved_usd: Usd = Decimal(0)
    nodes: tuple[NodeCost, ...]
    tools: tuple[ToolCost, ...] = ()


class CancelBody(Request):
    reason: Text = ""


class SignalBody(Request):
    """An event for a run: `name` is the `signal` of the node that waits, or the approval's step."""

    name: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")
    payload: PlainJson = None
    signal_id: Key | None = None
    """The same id is the same signal; without it each is a new one."""


class Sent(Reply):
    """A request was written to the log of the run's partition, which acts on it in order."""

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
    pipeline: str | None = None
    version: int | None = None
    node: str | None = None
    model: str
    backend: str
    calls: int
    failed_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Usd
    mean_latency_ms: float


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
    """One row per pipeline version, node, day (UTC) and kind (`call`, `retry`: the attempt was made
    again, `speculation`: the branch lost its race, or a hedge, `cascade`: a cheaper answer was not
    accepted), from `report.cost_by_kind`."""

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
    """That of the run; `external` where calls of the HTTP door name a run that Hocket did not run,
    `deleted` where the run is not kept any more."""
    accepted_at: datetime
    """Of an external or deleted run: the start of its first call."""
    duration_ms: float | None = None
    met_deadline: bool | None = None
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Usd


class RunCosts(Reply):
    """The dearest runs first, from `report.cost_by_run`."""

    costs: tuple[RunCostRow, ...]
    truncated: bool = False


# ---- calls ----------------------------------------------------------------------------------


class CallAttempt(Reply):
    """One attempt of a model call at a replica, and how it came there."""

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
    """None for calls that were booked before decisions were kept."""


class OpenAttempt(Reply):
    """An attempt that was announced and is not booked: it is under way, or its gateway was killed."""

    call_id: str
    model: str
    backend: str
    replica: str
    gateway: str
    started_at: datetime
    deadline_at: datetime


class RefusedCall(Reply):
    """Why no backend was asked for a call, the last time that somebody wanted it."""

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
    """The attempts of all calls of a run, the earliest first."""

    calls: tuple[CallAttempt, ...]
    truncated: bool = False


class ExperimentList(Reply):
    """As one of the gateways knows them, with what the others told it."""

    experiments: tuple[ExperimentState, ...]


# ---- dead letters ---------------------------------------------------------------------------


class DeadLetter(Reply):
    """A message that could not be handled. `context` says whose it was (run, step, attempt ...) and what
    became of it (deliveries, the worker that gave up); `payload` is its text; `payload_truncated` says
    that only its beginning is shown. `tenant` is null where the message does not say whose it was."""

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
    """Whether what the key may not see was left out: it has no permission `content.read`."""


class DeadLetterList(Reply):
    dead_letters: tuple[DeadLetter, ...]


class Redriven(Reply):
    """A dead letter was published again on its own subject and removed."""

    seq: int
    subject: str


# ---- health ---------------------------------------------------------------------------------


class Part(Reply):
    """`detail` says what is wrong, or what was found."""

    name: str
    ok: bool
    detail: str = ""


class SystemHealth(Reply):
    """What the API's process can see of the platform."""

    status: Literal["ok", "impaired"]
    version: str
    parts: tuple[Part, ...]
