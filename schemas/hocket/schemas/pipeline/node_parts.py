"""Parts of a node in a pipeline spec: maps, loops, retries and caching, a planner's policy, and the
requirements of a model call."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from hocket.schemas.checks.bounded import WrittenMoney
from hocket.schemas.checks.faults import shown
from hocket.schemas.errors import ErrorClass
from hocket.schemas.pipeline.faults import misuse
from hocket.schemas.subjects import MAX_TYPE_CHARS, QUEUE, TOKEN

MAX_NODES = 1_000
MAX_MAP_ITEMS = 100_000
MAX_LOOP_ROUNDS = 10_000
MAX_WAIT_MS = 90 * 24 * 3_600_000
DEFAULT_HANDLER_CALLS = 100
MAX_HANDLER_CALLS = 1_000
"""The most calls of other nodes by one step: the same as the entries of its journal."""
MAX_NAMED = 200
"""The most handlers, models and so on that a planner's policy names."""

Name = Annotated[str, Field(pattern=f"^{TOKEN.pattern}$")]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,47}$")]
QueueName = Annotated[str, Field(pattern=f"^{QUEUE.pattern}$")]
OwnTypeName = Annotated[
    str,
    Field(
        pattern=r"^[a-z][a-z0-9_]{0,30}(\.[a-z][a-z0-9_]{0,30}){1,3}$", max_length=MAX_TYPE_CHARS
    ),
]
HandlerName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]


NUMBERS: tuple[Any, ...] = (int, float, int | None, float | None)
"""The annotations of fields that hold a number."""


class SpecPart(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_boolean(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a boolean for a number, which pydantic would take for 1 or 0."""
        if (
            isinstance(value, bool)
            and cls.model_fields[info.field_name or ""].annotation in NUMBERS
        ):
            raise misuse(f"{shown(value)} is not a number", "Use a number.")
        return value


class Retry(SpecPart):
    """Retry a failed attempt after `backoff_ms * factor^(n-1)`, plus up to 50 % jitter."""

    max_attempts: int = Field(3, ge=1, le=20)
    """Maximum number of attempts, including the first."""
    backoff_ms: float = Field(200, ge=0, le=3_600_000)
    """Delay before the second attempt, in ms."""
    factor: float = Field(2.0, ge=1, le=10)
    """Factor by which the delay grows with each further attempt."""
    max_backoff_ms: float = Field(30_000, ge=0, le=3_600_000)
    """Maximum delay, in ms; jitter is added to it."""
    on: tuple[str, ...] = (
        ErrorClass.TRANSIENT,
        ErrorClass.TIMEOUT,
        ErrorClass.RATE_LIMITED,
        ErrorClass.UNAVAILABLE,
    )
    """Error classes or exact error codes."""


class Map(SpecPart):
    """Run the node once per item of a list known only at run time; its output is the list of outputs.

    In `with`, the item is `item` (or `as`) and its position `index`; without `with`, these two are the
    whole input, so that a long list is not sent along with each of its items.
    """

    over: str
    """An expression that returns the list."""
    as_: Name = Field("item", alias="as")
    """Name of the item in expressions."""
    concurrency: int = Field(64, ge=1, le=10_000)
    """Maximum number of items that run at the same time."""
    max_items: int = Field(1_000, ge=1, le=MAX_MAP_ITEMS)
    """If the list is longer, the node fails."""
    on_item_error: Literal["fail", "skip"] = "fail"
    """With `skip`, a failed item's output is null and the run ends `degraded`."""


class Loop(SpecPart):
    """Repeat the node until `until` holds. In `with` and `until`, `round` counts from 1 and
    `previous` is the output of the previous round (null in the first); in `until`, `output` is the
    current round's output."""

    until: str
    """An expression; if it is true after a round, the node is done."""
    max_rounds: int = Field(10, ge=1, le=MAX_LOOP_ROUNDS)
    """Maximum number of rounds."""
    on_exhausted: Literal["accept", "fail"] = "fail"
    """What to do if `until` was never true: use the last output, or fail."""


class Expect(SpecPart):
    """How long a step is expected to take until there are measurements."""

    mean_ms: float = Field(gt=0)
    """Mean duration of an attempt, in ms."""
    sd_ms: float = Field(0, ge=0)
    """Standard deviation of the duration, in ms."""


class Cache(SpecPart):
    """Store the step's output and reuse it for any step of the tenant, in any pipeline, that has the
    same type, the same own fields and the same input (or `key`) within `ttl_ms`."""

    ttl_ms: float = Field(gt=0, le=MAX_WAIT_MS)
    """How long an output is reused, in ms."""
    key: str | None = None
    """An expression used as the key instead of the input: equal values share one entry, whatever the
    input."""
    scope: Literal["tenant"] = "tenant"
    """Who shares the outputs: the steps of one tenant."""


class PlanPolicy(SpecPart):
    """Limits for the steps that a planner emits: they may use only what is listed here."""

    types: tuple[str, ...] = Field(min_length=1)
    """Node types that may be emitted."""
    handlers: tuple[HandlerName, ...] = Field((), max_length=MAX_NAMED)
    """Functions that `python` nodes may run, out of those allowed by the workers."""
    models: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """Models that `llm` and `planning` nodes may call."""
    databases: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """Databases that `sql` and `planning` nodes may read."""
    collections: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """Collections that `retrieval` nodes may search."""
    services: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """HTTP services that `http` nodes may call."""
    mcp_servers: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """MCP servers whose tools `mcp` nodes may call."""
    nats_services: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """Services that `nats` nodes may call."""
    pipelines: tuple[Name, ...] = Field((), max_length=MAX_NAMED)
    """Pipelines that `pipeline` nodes may run."""
    max_steps: int = Field(20, ge=1, le=MAX_NODES)
    """Maximum number of steps, both as written and as run: every item of a map, round of a loop and
    step of a nested planner counts."""
    max_items: int = Field(20, ge=1, le=MAX_MAP_ITEMS)
    """Maximum number of items in one map."""
    max_attempts: int = Field(3, ge=1, le=20)
    """Maximum number of attempts of one step."""
    max_depth: int = Field(1, ge=1, le=5)
    """Maximum nesting depth of planners that emit steps themselves."""
    budget_usd: WrittenMoney | None = None
    """Budget of the emitted steps together."""


class CatalogParam(SpecPart):
    """A parameter of a catalog query; `values` is a SELECT with a single column that lists allowed
    values."""

    type: Literal["text", "integer", "number", "boolean", "date"] = "text"
    """Type of the value."""
    description: str = ""
    """What the parameter means, for the planner."""
    values: str | None = None
    """A SELECT with one column that lists the allowed values."""
    default: Any = None
    """Value if the planner provides none."""


class CatalogQuery(SpecPart):
    """A predefined query that a planner may choose."""

    name: Name
    """Name by which the planner chooses it."""
    description: str
    """What the query answers, for the planner."""
    sql: str
    """The SELECT, with `:name` parameters."""
    params: dict[str, CatalogParam] = Field(default_factory=dict)
    """Parameters of the query, by name."""


class Requires(SpecPart):
    """Requirements that a backend must meet to get a call."""

    min_quality: float = Field(0.0, ge=0, le=1)
    """Minimum quality of the backend, as stated in its configuration (0 to 1)."""
    labels: dict[str, str] = Field(default_factory=dict, max_length=16)
    """Labels that the backend must have, such as `precision: fp16`."""
    residency: str | None = None
    """Residency tag that the backend must have: where data may go."""
