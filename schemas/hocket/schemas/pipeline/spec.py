"""The pipeline spec as users write it, in YAML or JSON: shapes and bounds of single fields.

What concerns several nodes at once (cycles, references) is checked in `plan`. `pipeline_schema()`
is published as `pipeline.schema.json` for editors.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationError, field_validator

from hocket.schemas.checks.bounded import MAX_INT32, WrittenMoney
from hocket.schemas.checks.faults import refusal
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import Priority
from hocket.schemas.pipeline.faults import faults_of_document, misuse
from hocket.schemas.pipeline.flow.spec import Flow
from hocket.schemas.pipeline.node_parts import (
    DEFAULT_HANDLER_CALLS,
    MAX_HANDLER_CALLS,
    MAX_NODES,
    MAX_WAIT_MS,
    Cache,
    CatalogQuery,
    Expect,
    HandlerName,
    Loop,
    Map,
    Name,
    OwnTypeName,
    PlanPolicy,
    QueueName,
    Requires,
    Retry,
    SpecPart,
    ToolName,
)
from hocket.schemas.subjects import pool

MAX_NESTING = 32
MAX_TIMEOUT_MS = 24 * 3_600_000
DEFAULT_TREE_RUNS = 10_000
MAX_TREE_RUNS = 100_000


class NodeBase(SpecPart):
    """Fields that every node may have."""

    needs: tuple[Name, ...] = ()
    """Nodes that end before this one starts; nodes named in `with`, `when` and `map.over` count too."""
    when: str | None = None
    """An expression; where it is false the node is skipped, and so is what needs only skipped nodes."""
    with_: dict[str, Any] | None = Field(None, alias="with")
    """The step's input: values or expressions. Without it: `{"input": run input, NEED: output ...}`
    (with `map`: `{item, index}`)."""
    map: Map | None = None
    """Run the node once for each item of a list."""
    loop: Loop | None = None
    """Run the node again until a condition holds."""
    retry: Retry | None = None
    """When a failed attempt is made again; without it, only where the handler asks for it."""
    timeout_ms: float | None = Field(None, gt=0, le=MAX_TIMEOUT_MS)
    """The time of one attempt; without it 60 s, and never beyond the run's deadline. Of a `graph` or
    `race`: of the whole of it, anew for each item and round."""
    optional: bool = False
    """Where it fails the run goes on (its output is null) and ends `degraded`."""
    fallback: tuple["Fallback", ...] = ()
    """What runs instead where the node has failed; the first that fits its error."""
    fast: "Node | None" = None
    """What runs instead, with the same input, where the run could not make its deadline with the node
    itself (`on_infeasible: degrade`); the run ends `degraded` then."""
    cache: Cache | None = None
    """Serve equal steps from one output; for nodes that workers run, and for `pipeline` nodes that name
    their version."""
    expect: Expect | None = None
    """How long the node takes, as long as nothing has been measured."""
    effects: Literal["none", "external"] = "none"
    """`external`: the step writes to the outside; it is dispatched only after its commit."""
    queue: QueueName | None = Field(None, exclude_if=lambda queue: queue is None)
    """Only workers that serve this queue run it (a team's, a kind of GPU, a region); for nodes that
    workers run. Without it workers that serve the type's own queue do."""
    description: str = ""
    """What the node is for; shown with it."""


class PlanningNode(NodeBase):
    """Decompose a question; output `{questions, searches, queries}`, or with `emit` a sub-graph
    (`{nodes, output}`) that is checked against the policy and spliced in under this node."""

    type: Literal["planning"]
    """The node's type."""
    model: str
    """The model that plans, by its name in the routing configuration."""
    prompt: str | None = None
    """A template over `input` that gives the question; without it `input.question`."""
    database: str | None = None
    """The database from which the values of the catalog's parameters are read."""
    catalog: tuple[CatalogQuery, ...] = Field((), max_length=200)
    """Queries that the planner may choose."""
    max_queries: int = Field(4, ge=0, le=50)
    """At most so many queries."""
    emit: PlanPolicy | None = None
    """Let the planner emit steps, within this policy."""


class RetrievalNode(NodeBase):
    """Search an indexed collection; output `{passages: [...]}`."""

    type: Literal["retrieval"]
    """The node's type."""
    collection: str
    """The indexed collection (`hocket index`)."""
    query: str | None = None
    """A template over `input`; without it, `input.query` or `input.queries`."""
    top_k: int = Field(6, ge=1, le=200)
    """Passages in the output, the best first."""


class SqlNode(NodeBase):
    """Run one read-only SELECT; output `{columns, rows, truncated, ...}`."""

    type: Literal["sql"]
    """The node's type."""
    database: str
    """A database of the configuration's section `databases`."""
    query: str | None = None
    """The SELECT, with `:name` parameters; without it `input.sql`. Never a template."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Bound parameters, templates over `input`; `input.params` are added."""
    tables: tuple[str, ...] = ()
    """Allowed tables (`schema.table`, `schema.*`); without it what the database's settings allow."""
    max_rows: int = Field(200, ge=1, le=100_000)
    """Rows in the output; `truncated` says that there were more."""


class LlmNode(NodeBase):
    """Call a model through the gateway; output `{text, citations?, data?, model, usage}`."""

    type: Literal["llm"]
    """The node's type."""
    model: str
    """A model's name in the routing configuration."""
    prompt: str
    """A template over `input`."""
    system: str | None = None
    """The system message; a template over `input`."""
    documents: tuple[str, ...] = ()
    """Fields of `input` that hold passages or query results, given to the model as evidence."""
    task: Literal["chat", "answer"] = "chat"
    """`answer`: answer from the `documents`, with citations."""
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    """The longest answer, in tokens."""
    temperature: float | None = Field(None, ge=0, le=2)
    """Sampling temperature; without it the model's own."""
    response_schema: dict[str, Any] | None = None
    """A JSON Schema (2020-12) of the answer; the parsed answer is `data` in the output."""
    requires: Requires | None = None
    """What the backend must be."""
    prefill: bool = False
    """Have the beginning of the prompt that is known before the node begins read by the model's server
    while the steps before it run; for long prompts that begin with the run's own input."""


class AgentTool(SpecPart):
    """What an agent's model may call: a node, whose input are the arguments of the call."""

    description: str = Field("", max_length=10_000)
    """What the tool does, for the model."""
    parameters: dict[str, Any] | None = None
    """A JSON Schema (2020-12) of the arguments, which are an object; the tool of an `mcp` node has its
    server's, unless it is said here."""
    node: "Node"
    """What runs; `mcp` nodes without `arguments` get the call's. For more than one node, a `graph`."""


class AgentNode(NodeBase):
    """Ask a model that may call tools, again and again until it answers; output
    `{text, data?, rounds, tool_calls, usage, model, backend, done}`."""

    type: Literal["agent"]
    """The node's type."""
    model: str
    """A model's name in the routing configuration."""
    prompt: str | None = None
    """A template over `input` that gives the task; without it `input.question`."""
    system: str | None = None
    """The system message of every round; a template over `input`."""
    tools: dict[ToolName, AgentTool] = Field(min_length=1, max_length=64)
    """What the model may call, by name."""
    max_rounds: int = Field(8, ge=1, le=50)
    """How often the model is asked; in the last round it gets no tools."""
    max_calls: int = Field(8, ge=1, le=32)
    """Tool calls of one round that are carried out."""
    max_steps: int = Field(20, ge=1, le=MAX_NODES)
    """Steps that the calls of one round may begin in all; inside of a `graph`, every step counts."""
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    """The longest answer of one round, in tokens."""
    max_total_tokens: int | None = Field(None, ge=1, le=1_000_000_000)
    """Tokens of all rounds, prompts and answers together."""
    budget_usd: WrittenMoney | None = None
    """What the model and the tools may spend in all; without it the run's budget holds alone."""
    max_result_chars: int = Field(20_000, ge=100, le=1_000_000)
    """How much of what a tool gave the model is told, in characters."""
    temperature: float | None = Field(None, ge=0, le=2)
    """Sampling temperature; without it the model's own."""
    response_schema: dict[str, Any] | None = None
    """A JSON Schema (2020-12) of the answer; the parsed answer is `data` in the output."""
    requires: Requires | None = None
    """What the backend must be."""


class CallingNode(NodeBase):
    """What nodes may have whose handlers call other nodes."""

    calls: dict[ToolName, "Node"] = Field(
        default_factory=dict, max_length=64, exclude_if=lambda calls: not calls
    )
    """What the handler may call (`context.call_node`), by name: nodes whose input is what it says. Each
    call is a step of the run."""
    max_calls: int = Field(
        DEFAULT_HANDLER_CALLS,
        ge=1,
        le=MAX_HANDLER_CALLS,
        exclude_if=lambda most: most == DEFAULT_HANDLER_CALLS,
    )
    """How many calls one step makes at most, in all its attempts."""


class PythonNode(CallingNode):
    """Run an async function of the user's: `module:function`, called with the step's input."""

    type: Literal["python"]
    """The node's type."""
    handler: HandlerName
    """The function, `module:function`, of a package that the worker was started for."""


class HttpNode(NodeBase):
    """Send one request to an HTTP service; output `{status, headers, body}`."""

    type: Literal["http"]
    """The node's type."""
    service: str = Field(min_length=1, max_length=200)
    """A service of the configuration's section `http_services`."""
    path: str = Field("/", max_length=2_048, pattern=r"^/[!-\"$&->@-\[\]-~]*$")
    """The path below the service's URL; each `:name` in it is filled from `params`. Never a template."""
    params: dict[str, Any] = Field(default_factory=dict, max_length=100)
    """The values of `:name` in the path, templates over `input`."""
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] | None = None
    """The method; without it `POST` where there is a `body`, otherwise `GET`."""
    query: dict[str, Any] = Field(default_factory=dict, max_length=100)
    """The query's values, templates over `input`; a list stands for several, null for none."""
    headers: dict[str, str] = Field(default_factory=dict, max_length=50)
    """Headers beside those of the service, templates over `input`."""
    body: Any = None
    """What is sent as JSON: a value with templates over `input`."""
    accept: tuple[Annotated[int, Field(ge=300, le=599)], ...] = Field((), max_length=50)
    """Statuses beside 2xx whose answer is an output and no error."""


class McpNode(NodeBase):
    """Call a tool of an MCP server; output `{text, data, content}`."""

    type: Literal["mcp"]
    """The node's type."""
    server: str = Field(min_length=1, max_length=200)
    """A server of the configuration's section `mcp_servers`."""
    tool: str = Field(min_length=1, max_length=200)
    """The tool's name. Never a template."""
    arguments: dict[str, Any] = Field(default_factory=dict, max_length=100)
    """The tool's arguments: values with templates over `input`."""


class NatsNode(NodeBase):
    """Send one request to a service over NATS; output `{headers, body}`."""

    type: Literal["nats"]
    """The node's type."""
    service: str = Field(min_length=1, max_length=200)
    """A service of the configuration's section `nats_services`."""
    endpoint: str | None = Field(
        None, max_length=200, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
    )
    """One of the service's `endpoints`: what follows its subject. Never a template."""
    headers: dict[str, str] = Field(default_factory=dict, max_length=50)
    """Headers of the request, templates over `input`."""
    body: Any = None
    """What is sent as JSON: a value with templates over `input`."""


class OwnNode(CallingNode):
    """A node type of your own, which your workers announce: `type: crm.lookup`."""

    type: OwnTypeName
    """The node's type, as a worker announces it: two to four labels with dots between them."""
    config: dict[str, Any] = Field(default_factory=dict)
    """What the handler is told besides its input; never a template. Checked against the type's schema
    where the type is known."""


class GraphNode(NodeBase):
    """Nodes inside a node; in them `input` is this node's input."""

    type: Literal["graph"]
    """The node's type."""
    nodes: dict[Name, "Node"] = Field(min_length=1, max_length=MAX_NODES)
    """The nodes inside, by name."""
    output: Any = None
    """A value or expression over the nodes inside; without it the output of the last node, or all last
    nodes by name."""


class RaceNode(NodeBase):
    """Run branches side by side with the same input; the first valid one (or the best of all) wins,
    the others are cancelled and what they cost is booked as speculation."""

    type: Literal["race"]
    """The node's type."""
    branches: dict[Name, "Node"] = Field(min_length=2, max_length=16)
    """The branches by name."""
    pick: Literal["first_valid", "best"] = "first_valid"
    """`first_valid`: the first branch that is `valid` wins; `best`: the one with the highest `score`."""
    valid: str | None = None
    """An expression over `output`; a branch that ends without it being true has lost."""
    score: str | None = None
    """An expression over `output` giving a number; the highest wins (`pick: best`)."""


class PipelineNode(NodeBase):
    """Run another pipeline as a sub-run; output is its output."""

    type: Literal["pipeline"]
    """The node's type."""
    pipeline: Name
    """The pipeline that is run."""
    version: int | None = Field(None, ge=1, le=MAX_INT32)
    """Its version; without it the latest one at that moment."""


class ApprovalNode(NodeBase):
    """Wait for a person's answer (`{approved, by, note}`); holds no worker."""

    type: Literal["approval"]
    """The node's type."""
    prompt: str = ""
    """What the person is asked."""
    wait_ms: float = Field(7 * 24 * 3_600_000, gt=0, le=MAX_WAIT_MS)
    """How long an answer is waited for, in ms; then the node fails."""
    pause_deadline: bool = True
    """The run's deadline moves by the time waited."""


class SignalNode(NodeBase):
    """Wait for a named event sent to the run; output is its payload; holds no worker."""

    type: Literal["signal"]
    """The node's type."""
    signal: Name
    """The name of the event."""
    wait_ms: float = Field(3_600_000, gt=0, le=MAX_WAIT_MS)
    """How long it is waited for, in ms; then the node fails."""
    pause_deadline: bool = False
    """The run's deadline moves by the time waited."""


OWN = "own"
"""The tag of nodes whose type is somebody's own."""


def _tag_of(node: Any) -> str | None:
    """Return by which model a node is read; None where it has no type."""
    kind = node.get("type") if isinstance(node, Mapping) else getattr(node, "type", None)
    if kind is None:
        return None
    return OWN if "." in str(kind) else str(kind)


Node = Annotated[
    Annotated[PlanningNode, Tag("planning")]
    | Annotated[RetrievalNode, Tag("retrieval")]
    | Annotated[SqlNode, Tag("sql")]
    | Annotated[LlmNode, Tag("llm")]
    | Annotated[AgentNode, Tag("agent")]
    | Annotated[PythonNode, Tag("python")]
    | Annotated[HttpNode, Tag("http")]
    | Annotated[McpNode, Tag("mcp")]
    | Annotated[NatsNode, Tag("nats")]
    | Annotated[OwnNode, Tag(OWN)]
    | Annotated[GraphNode, Tag("graph")]
    | Annotated[RaceNode, Tag("race")]
    | Annotated[PipelineNode, Tag("pipeline")]
    | Annotated[ApprovalNode, Tag("approval")]
    | Annotated[SignalNode, Tag("signal")],
    Discriminator(_tag_of),
]

WORKER_TYPES = ("planning", "retrieval", "sql", "llm", "agent", "python", "http", "mcp", "nats")
"""Built-in node types that workers run; the coordinator runs the others itself."""
WAIT_TYPES = ("approval", "signal")
NODE_TYPES = (*WORKER_TYPES, *WAIT_TYPES, "graph", "race", "pipeline")
"""The built-in ones."""


def runs_in_worker(node_type: str) -> bool:
    """Tell whether workers run the steps of a node type."""
    return node_type in WORKER_TYPES or "." in node_type


def pool_of(node: Node) -> str:
    """Return the name of the steps that share workers with those of a node."""
    return pool(node.type, node.queue)


class Fallback(SpecPart):
    """What runs with the same input where the node failed with one of `on` (all, when empty)."""

    on: tuple[str, ...] = ()
    """Error classes or exact error codes; empty: every error."""
    node: Node
    """What runs with the same input."""


class Pipeline(SpecPart):
    """A pipeline: a graph of nodes with an SLO, a class and a budget."""

    pipeline: Name
    """The pipeline's name."""
    description: str = ""
    """What the pipeline is for."""
    priority: Priority = Field(Priority.STANDARD, alias="class")
    """The class of its runs: which wait when not all can be served."""
    slo_ms: float = Field(60_000, gt=0, le=MAX_WAIT_MS)
    """How long a run may take, in ms, from the publish of its task; its deadline follows from it."""
    budget_usd: WrittenMoney | None = None
    """What a run may spend on model calls."""
    max_runs: int = Field(DEFAULT_TREE_RUNS, ge=1, le=MAX_TREE_RUNS)
    """How many runs one of this pipeline may begin in all, those that its sub-runs begin included."""
    on_infeasible: Literal["continue", "degrade", "fail"] = "continue"
    """What is done where a run can no longer make its deadline: go on, use `fast` variants and leave
    `optional` nodes out, or fail at once."""
    on_overload: Literal["admit", "queue", "reject"] | None = None
    """What becomes of a task that cannot make its deadline because of the present load; without it
    interactive tasks are rejected, others wait until they can or their deadline is lost."""
    flow: Flow | None = Field(None, exclude_if=lambda flow: flow is None)
    """When its runs start: how many at a time, how many within a period, by keys of their input."""
    input: dict[str, Any] = Field(default_factory=dict)
    """A JSON Schema (2020-12) that the task's body must satisfy."""
    nodes: dict[Name, Node] = Field(min_length=1, max_length=MAX_NODES)
    """The nodes, by name."""
    output: Any = None
    """A value or expression; without it the output of the last node, or all last nodes by name."""

    @field_validator("input")
    @classmethod
    def _is_object_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if schema.get("type", "object") != "object":
            raise misuse("the input of a pipeline is an object", "Use `type: object`.")
        return schema


for _model in (NodeBase, CallingNode, PythonNode, OwnNode, GraphNode, RaceNode, Fallback, Pipeline):
    _model.model_rebuild()


def parse_pipeline(document: Any) -> Pipeline:
    """Return the pipeline of a parsed YAML or JSON document, or raise InvalidInput with
    its faults, each with the field and the cure."""
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
    faults = faults_of_document(error, tags=(*NODE_TYPES, OWN), fields=_fields())
    return refusal(InvalidInput, faults)


@cache
def _fields() -> Mapping[str, tuple[str, ...]]:
    """Return the fields there are, as they are written, by the field that holds them; "" has all."""
    held: dict[str, type[SpecPart]] = {
        "map": Map,
        "loop": Loop,
        "retry": Retry,
        "cache": Cache,
        "emit": PlanPolicy,
    }
    names = {field: _names_of(model) for field, model in held.items()}
    models: list[type[SpecPart]] = [SpecPart]
    every: set[str] = set()
    for model in models:
        models += model.__subclasses__()
        every |= set(_names_of(model))
    return names | {"": tuple(sorted(every))}


def _names_of(model: type[SpecPart]) -> tuple[str, ...]:
    return tuple(sorted(field.alias or name for name, field in model.model_fields.items()))
