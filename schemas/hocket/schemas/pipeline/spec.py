"""The pipeline spec as users write it, in YAML or JSON: shapes and bounds of single fields.

What concerns several nodes at once (cycles, references) is checked in `plan`. `pipeline_schema()`
is published as `pipeline.schema.json` for editors.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from hocket.schemas.bounded import Money
from hocket.schemas.errors import ErrorClass, InvalidInput
from hocket.schemas.messages import Priority
from hocket.schemas.pipeline.faults import fault_of, misuse
from hocket.schemas.subjects import TOKEN

MAX_NODES = 1_000
MAX_NESTING = 32
MAX_MAP_ITEMS = 100_000
MAX_LOOP_ROUNDS = 10_000
MAX_TIMEOUT_MS = 24 * 3_600_000
DEFAULT_TREE_RUNS = 10_000
MAX_TREE_RUNS = 100_000
MAX_WAIT_MS = 90 * 24 * 3_600_000

MAX_NAMED = 200
"""Handlers, models and so on that a planner's policy names."""

Name = Annotated[str, Field(pattern=f"^{TOKEN.pattern}$")]
HandlerName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Retry(_Spec):
    """Try a failed attempt again, after `backoff_ms * factor^(n-1)` plus up to 50 % jitter."""

    max_attempts: int = Field(3, ge=1, le=20)
    backoff_ms: float = Field(200, ge=0, le=3_600_000)
    factor: float = Field(2.0, ge=1, le=10)
    max_backoff_ms: float = Field(30_000, ge=0, le=3_600_000)
    on: tuple[str, ...] = (
        ErrorClass.TRANSIENT,
        ErrorClass.TIMEOUT,
        ErrorClass.RATE_LIMITED,
        ErrorClass.UNAVAILABLE,
    )
    """Error classes or exact error codes."""


class Map(_Spec):
    """Run the node once per item of a list known at run time; its output is the list of outputs.

    In `with`, the item is `item` (or `as`), its place `index`; without `with` these two are the
    whole input, so that a long list is not sent along with each of its items."""

    over: str
    as_: Name = Field("item", alias="as")
    concurrency: int = Field(64, ge=1, le=10_000)
    max_items: int = Field(1_000, ge=1, le=MAX_MAP_ITEMS)
    on_item_error: Literal["fail", "skip"] = "fail"
    """`skip` puts null in the failed item's place and the run ends `degraded`."""


class Loop(_Spec):
    """Run the node until `until` holds; in `with` and `until`, `round` counts from 1, `previous` is
    the output of the round before (null in the first); in `until`, `output` is this round's."""

    until: str
    max_rounds: int = Field(10, ge=1, le=MAX_LOOP_ROUNDS)
    on_exhausted: Literal["accept", "fail"] = "fail"


class Expect(_Spec):
    """What a step takes while there are no measurements yet."""

    mean_ms: float = Field(gt=0)
    sd_ms: float = Field(0, ge=0)


class Cache(_Spec):
    """Keep the step's output, and serve it to any step of the tenant, in any pipeline, that has the
    same type, the same own fields and the same input (or `key`) within `ttl_ms`."""

    ttl_ms: float = Field(gt=0, le=MAX_WAIT_MS)
    key: str | None = None
    """An expression that stands for the input: equal values are one entry, whatever the input is."""
    scope: Literal["tenant"] = "tenant"


class NodeBase(_Spec):
    """Fields that every node may have."""

    needs: tuple[Name, ...] = ()
    """Nodes that end before this one starts; nodes named in `with`, `when` and `map.over` count too."""
    when: str | None = None
    """An expression; where it is false the node is skipped, and so is what needs only skipped nodes."""
    with_: dict[str, Any] | None = Field(None, alias="with")
    """The step's input: values or expressions. Without it: `{"input": run input, NEED: output ...}`
    (with `map`: `{item, index}`)."""
    map: Map | None = None
    loop: Loop | None = None
    retry: Retry | None = None
    timeout_ms: float | None = Field(None, gt=0, le=MAX_TIMEOUT_MS)
    """The time of one attempt; without it 60 s, and never beyond the run's deadline. Of a `graph` or
    `race`: of the whole of it, anew for each item and round."""
    optional: bool = False
    """Where it fails the run goes on (its output is null) and ends `degraded`."""
    fallback: tuple["Fallback", ...] = ()
    fast: "Node | None" = None
    """What runs instead, with the same input, where the run could not make its deadline with the node
    itself (`on_infeasible: degrade`); the run ends `degraded` then."""
    cache: Cache | None = None
    """For nodes that workers run, and for `pipeline` nodes that name their version."""
    expect: Expect | None = None
    effects: Literal["none", "external"] = "none"
    """`external`: the step writes to the outside; it is dispatched only after its commit."""
    description: str = ""


class PlanPolicy(_Spec):
    """Bounds for the steps that a planner emits: they use nothing but what is named here."""

    types: tuple[str, ...] = Field(min_length=1)
    handlers: tuple[HandlerName, ...] = Field((), max_length=MAX_NAMED)
    """Functions that `python` nodes may run, of those that the workers allow."""
    models: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """Models that `llm` and `planning` nodes may call."""
    databases: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """Databases that `sql` and `planning` nodes may read."""
    collections: tuple[str, ...] = Field((), max_length=MAX_NAMED)
    """Collections that `retrieval` nodes may search."""
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
    budget_usd: Money | None = None
    """What the emitted steps may spend in all."""


class CatalogParam(_Spec):
    """A parameter of a catalog query; `values` is a SELECT whose one column lists what it may be."""

    type: Literal["text", "integer", "number", "boolean", "date"] = "text"
    description: str = ""
    values: str | None = None
    default: Any = None


class CatalogQuery(_Spec):
    """A query that its author wrote and a planner may choose."""

    name: Name
    description: str
    sql: str
    params: dict[str, CatalogParam] = Field(default_factory=dict)


class PlanningNode(NodeBase):
    """Decompose a question; output `{questions, searches, queries}`, or with `emit` a sub-graph
    (`{nodes, output}`) that is checked against the policy and spliced in under this node."""

    type: Literal["planning"]
    model: str
    prompt: str | None = None
    database: str | None = None
    catalog: tuple[CatalogQuery, ...] = Field((), max_length=200)
    max_queries: int = Field(4, ge=0, le=50)
    emit: PlanPolicy | None = None


class RetrievalNode(NodeBase):
    """Search an indexed collection; output `{passages: [...]}`."""

    type: Literal["retrieval"]
    collection: str
    query: str | None = None
    """A template over `input`; without it, `input.query` or `input.queries`."""
    top_k: int = Field(6, ge=1, le=200)


class SqlNode(NodeBase):
    """Run one read-only SELECT; output `{columns, rows, truncated, ...}`."""

    type: Literal["sql"]
    database: str
    query: str | None = None
    """The SELECT, with `:name` parameters; without it `input.sql`. Never a template."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Bound parameters, templates over `input`; `input.params` are added."""
    tables: tuple[str, ...] = ()
    """Allowed tables (`schema.table`, `schema.*`); without it what the database's settings allow."""
    max_rows: int = Field(200, ge=1, le=100_000)


class Requires(_Spec):
    """What a backend must be to get a call: at least this good (0 to 1), with these labels (for
    example `precision: fp16`), and keeping data where it may be (a residency tag)."""

    min_quality: float = Field(0.0, ge=0, le=1)
    labels: dict[str, str] = Field(default_factory=dict, max_length=16)
    residency: str | None = None


class LlmNode(NodeBase):
    """Call a model through the gateway; output `{text, citations?, data?, model, usage}`."""

    type: Literal["llm"]
    model: str
    prompt: str
    """A template over `input`."""
    system: str | None = None
    documents: tuple[str, ...] = ()
    """Fields of `input` that hold passages or query results, given to the model as evidence."""
    task: Literal["chat", "answer"] = "chat"
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    temperature: float | None = Field(None, ge=0, le=2)
    response_schema: dict[str, Any] | None = None
    requires: Requires | None = None
    prefill: bool = False
    """Have the beginning of the prompt that is known before the node begins read by the model's server
    while the steps before it run; for long prompts that begin with the run's own input."""


class PythonNode(NodeBase):
    """Run an async function of the user's: `module:function`, called with the step's input."""

    type: Literal["python"]
    handler: HandlerName


class GraphNode(NodeBase):
    """Nodes inside a node; in them `input` is this node's input."""

    type: Literal["graph"]
    nodes: dict[Name, "Node"] = Field(min_length=1, max_length=MAX_NODES)
    output: Any = None


class RaceNode(NodeBase):
    """Run branches side by side with the same input; the first valid one (or the best of all) wins,
    the others are cancelled and what they cost is booked as speculation."""

    type: Literal["race"]
    branches: dict[Name, "Node"] = Field(min_length=2, max_length=16)
    pick: Literal["first_valid", "best"] = "first_valid"
    valid: str | None = None
    """An expression over `output`; a branch that ends without it being true has lost."""
    score: str | None = None
    """An expression over `output` giving a number; the highest wins (`pick: best`)."""


class PipelineNode(NodeBase):
    """Run another pipeline as a sub-run; output is its output."""

    type: Literal["pipeline"]
    pipeline: Name
    version: int | None = Field(None, ge=1)


class ApprovalNode(NodeBase):
    """Wait for a person's answer (`{approved, by, note}`); holds no worker."""

    type: Literal["approval"]
    prompt: str = ""
    wait_ms: float = Field(7 * 24 * 3_600_000, gt=0, le=MAX_WAIT_MS)
    pause_deadline: bool = True
    """The run's deadline moves by the time waited."""


class SignalNode(NodeBase):
    """Wait for a named event sent to the run; output is its payload; holds no worker."""

    type: Literal["signal"]
    signal: Name
    wait_ms: float = Field(3_600_000, gt=0, le=MAX_WAIT_MS)
    pause_deadline: bool = False


Node = Annotated[
    PlanningNode
    | RetrievalNode
    | SqlNode
    | LlmNode
    | PythonNode
    | GraphNode
    | RaceNode
    | PipelineNode
    | ApprovalNode
    | SignalNode,
    Field(discriminator="type"),
]

WORKER_TYPES = ("planning", "retrieval", "sql", "llm", "python")
"""Node types that workers run; the coordinator runs the others itself."""
WAIT_TYPES = ("approval", "signal")
NODE_TYPES = (*WORKER_TYPES, *WAIT_TYPES, "graph", "race", "pipeline")


class Fallback(_Spec):
    """What runs with the same input where the node failed with one of `on` (all, when empty)."""

    on: tuple[str, ...] = ()
    node: Node


class Pipeline(_Spec):
    """A pipeline: a graph of nodes with an SLO, a class and a budget."""

    pipeline: Name
    description: str = ""
    priority: Priority = Field(Priority.STANDARD, alias="class")
    slo_ms: float = Field(60_000, gt=0, le=MAX_WAIT_MS)
    budget_usd: Money | None = None
    max_runs: int = Field(DEFAULT_TREE_RUNS, ge=1, le=MAX_TREE_RUNS)
    """How many runs one of this pipeline may begin in all, those that its sub-runs begin included."""
    on_infeasible: Literal["continue", "degrade", "fail"] = "continue"
    on_overload: Literal["admit", "queue", "reject"] | None = None
    """What becomes of a task that cannot make its deadline because of the present load; without it
    interactive tasks are rejected, others wait until they can or their deadline is lost."""
    input: dict[str, Any] = Field(default_factory=dict)
    """A JSON Schema (2020-12) that the task's body must satisfy."""
    nodes: dict[Name, Node] = Field(min_length=1, max_length=MAX_NODES)
    output: Any = None
    """A value or expression; without it the output of the last node, or all last nodes by name."""

    @field_validator("input")
    @classmethod
    def _is_object_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if schema.get("type", "object") != "object":
            raise misuse("the input of a pipeline is an object", "Use `type: object`.")
        return schema


for _model in (NodeBase, GraphNode, RaceNode, Fallback, Pipeline):
    _model.model_rebuild()


def parse_pipeline(document: Any) -> Pipeline:
    """Return the pipeline of a parsed YAML or JSON document, or raise InvalidInput for its first
    fault, naming the field and the cure."""
    if not isinstance(document, Mapping):
        raise InvalidInput(
            field="(document)",
            reason="a pipeline is a mapping",
            cure="Start with `pipeline: NAME`.",
        )
    try:
        return Pipeline.model_validate(document)
    except ValidationError as error:
        raise fault(error) from None


def pipeline_schema() -> dict[str, Any]:
    """Return the JSON Schema of a pipeline document."""
    schema = Pipeline.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Hocket pipeline"
    return schema


def fault(error: ValidationError) -> InvalidInput:
    """Return what is wrong with a document that pydantic refused."""
    return fault_of(error, tags=NODE_TYPES, fields=_fields())


@cache
def _fields() -> Mapping[str, tuple[str, ...]]:
    """Return the fields there are, as they are written, by the field that holds them; "" has all."""
    held: dict[str, type[_Spec]] = {
        "map": Map,
        "loop": Loop,
        "retry": Retry,
        "cache": Cache,
        "emit": PlanPolicy,
    }
    names = {field: _names_of(model) for field, model in held.items()}
    models: list[type[_Spec]] = [_Spec]
    every: set[str] = set()
    for model in models:
        models += model.__subclasses__()
        every |= set(_names_of(model))
    return names | {"": tuple(sorted(every))}


def _names_of(model: type[_Spec]) -> tuple[str, ...]:
    return tuple(sorted(field.alias or name for name, field in model.model_fields.items()))
