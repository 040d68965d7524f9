"""Parts of a node in a pipeline spec: how it is repeated, tried again and cached, what a planner may
emit, and what a model call requires."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hocket.schemas.checks.bounded import WrittenMoney
from hocket.schemas.errors import ErrorClass
from hocket.schemas.subjects import MAX_TYPE_CHARS, QUEUE, TOKEN

MAX_NODES = 1_000
MAX_MAP_ITEMS = 100_000
MAX_LOOP_ROUNDS = 10_000
MAX_WAIT_MS = 90 * 24 * 3_600_000
DEFAULT_HANDLER_CALLS = 100
MAX_HANDLER_CALLS = 1_000
"""Calls of other nodes that one step makes: as many as its journal has entries."""
MAX_NAMED = 200
"""Handlers, models and so on that a planner's policy names."""

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


class SpecPart(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )


class Retry(SpecPart):
    """Try a failed attempt again, after `backoff_ms * factor^(n-1)` plus up to 50 % jitter."""

    max_attempts: int = Field(3, ge=1, le=20)
    """Attempts in all, the first one included."""
    backoff_ms: float = Field(200, ge=0, le=3_600_000)
    """The pause before the second attempt, in ms."""
    factor: float = Field(2.0, ge=1, le=10)
    """By how much the pause grows with each further attempt."""
    max_backoff_ms: float = Field(30_000, ge=0, le=3_600_000)
    """The longest pause, in ms; jitter comes on top."""
    on: tuple[str, ...] = (
        ErrorClass.TRANSIENT,
        ErrorClass.TIMEOUT,
        ErrorClass.RATE_LIMITED,
        ErrorClass.UNAVAILABLE,
    )
    """Error classes or exact error codes."""


class Map(SpecPart):
    """Run the node once per item of a list known at run time; its output is the list of outputs.

    In `with`, the item is `item` (or `as`), its place `index`; without `with` these two are the
    whole input, so that a long list is not sent along with each of its items."""

    over: str
    """An expression that gives the list."""
    as_: Name = Field("item", alias="as")
    """The name of the item in expressions."""
    concurrency: int = Field(64, ge=1, le=10_000)
    """Items that run at the same time."""
    max_items: int = Field(1_000, ge=1, le=MAX_MAP_ITEMS)
    """A longer list fails the node."""
    on_item_error: Literal["fail", "skip"] = "fail"
    """`skip` puts null in the failed item's place and the run ends `degraded`."""


class Loop(SpecPart):
    """Run the node until `until` holds; in `with` and `until`, `round` counts from 1, `previous` is
    the output of the round before (null in the first); in `until`, `output` is this round's."""

    until: str
    """An expression; where it is true after a round, the node has ended."""
    max_rounds: int = Field(10, ge=1, le=MAX_LOOP_ROUNDS)
    """Rounds in all."""
    on_exhausted: Literal["accept", "fail"] = "fail"
    """What becomes of the node where `until` was never true: its last output counts, or it fails."""


class Expect(SpecPart):
    """What a step takes while there are no measurements yet."""

    mean_ms: float = Field(gt=0)
    """The mean of an attempt's duration, in ms."""
    sd_ms: float = Field(0, ge=0)
    """Its standard deviation, in ms."""


class Cache(SpecPart):
    """Keep the step's output, and serve it to any step of the tenant, in any pipeline, that has the
    same type, the same own fields and the same input (or `key`) within `ttl_ms`."""

    ttl_ms: float = Field(gt=0, le=MAX_WAIT_MS)
    """How long an output is served, in ms."""
    key: str | None = None
    """An expression that stands for the input: equal values are one entry, whatever the input is."""
    scope: Literal["tenant"] = "tenant"
    """Who shares the outputs: the steps of one tenant."""


class PlanPolicy(SpecPart):
    """Bounds for the steps that a planner emits: they use nothing but what is named here."""

    types: tuple[str, ...] = Field(min_length=1)
    """Node types that may be emitted."""
    handlers: tuple[HandlerName, ...] = Field((), max_length=MAX_NAMED)
    """Functions that `python` nodes may run, of those that the workers allow."""
    models: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """Models that `llm` and `planning` nodes may call."""
    databases: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """Databases that `sql` and `planning` nodes may read."""
    collections: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """Collections that `retrieval` nodes may search."""
    services: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """HTTP services that `http` nodes may ask."""
    mcp_servers: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """MCP servers whose tools `mcp` nodes may call."""
    nats_services: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """Services that `nats` nodes may ask."""
    pipelines: tuple[Name, ...] = Field((), max_length=MAX_NAMED)
    """Pipelines that `pipeline` nodes may run."""
    max_steps: int = Field(20, ge=1, le=MAX_NODES)
    """Steps in all, both as they are written and as they run: every item of a map, round of a loop and
    step of a nested planner counts."""
    max_items: int = Field(20, ge=1, le=MAX_MAP_ITEMS)
    """Items of one map."""
    max_attempts: int = Field(3, ge=1, le=20)
    """Attempts of one step."""
    max_depth: int = Field(1, ge=1, le=5)
    """How deep planners may nest that emit steps themselves."""
    budget_usd: WrittenMoney | None = None
    """What the emitted steps may spend in all."""


class CatalogParam(SpecPart):
    """A parameter of a catalog query; `values` is a SELECT whose one column lists what it may be."""

    type: Literal["text", "integer", "number", "boolean", "date"] = "text"
    """What its value is."""
    description: str = ""
    """What it means, for the planner."""
    values: str | None = None
    """A SELECT with one column that lists the allowed values."""
    default: Any = None
    """Its value where the planner gives none."""


class CatalogQuery(SpecPart):
    """A query that its author wrote and a planner may choose."""

    name: Name
    """The name by which the planner chooses it."""
    description: str
    """What it answers, for the planner."""
    sql: str
    """The SELECT, with `:name` parameters."""
    params: dict[str, CatalogParam] = Field(default_factory=dict)
    """Its parameters by name."""


class Requires(SpecPart):
    """What a backend must be to get a call."""

    min_quality: float = Field(0.0, ge=0, le=1)
    """The least quality of the backend, as its configuration states it (0 to 1)."""
    labels: dict[str, str] = Field(default_factory=dict, max_length=16)
    """Labels that the backend must have, such as `precision: fp16`."""
    residency: str | None = None
    """The residency tag that the backend must have: where data may go."""
