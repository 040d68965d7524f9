"""The pipeline spec as users write it, in YAML or JSON: the types and bounds of single fields.

Rules that concern several nodes at once (cycles, references) are checked in `plan`. `pipeline_schema()`
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
from hocket.schemas.pipeline.faults import Fields, faults_of_document, misuse
from hocket.schemas.pipeline.faulty.models import fields_of, model_at, places_by_field
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
    """Nodes that must end before this one starts; nodes named in `with`, `when` and `map.over` count
    too."""
    when: str | None = None
    """An expression; if it is false, the node is skipped, and so are nodes that need only skipped
    nodes."""
    with_: dict[str, Any] | None = Field(None, alias="with")
    """The step's input: values or expressions. Defaults to `{"input": run input, NEED: output ...}`
    (with `map`: `{item, index}`)."""
    map: Map | None = None
    """Run the node once for each item of a list."""
    loop: Loop | None = None
    """Repeat the node until a condition holds."""
    retry: Retry | None = None
    """When to retry a failed attempt; by default, only if the handler asks for it."""
    timeout_ms: float | None = Field(None, gt=0, le=MAX_TIMEOUT_MS)
    """Timeout of one attempt, in ms; 60 s by default, and never beyond the run's deadline. For a
    `graph` or `race`: timeout of the whole node, restarted for each item and round."""
    optional: bool = False
    """If the node fails, the run continues (with null as the node's output) and ends `degraded`."""
    fallback: tuple["Fallback", ...] = ()
    """What to run instead if the node fails; the first entry that matches its error is used."""
    fast: "Node | None" = None
    """What to run instead, with the same input, if the run could not make its deadline with the node
    itself (`on_infeasible: degrade`); the run then ends `degraded`."""
    cache: Cache | None = None
    """Reuse one output for equal steps; for nodes that workers run, and for `pipeline` nodes that
    name their version."""
    expect: Expect | None = None
    """How long the node is expected to take until durations have been measured."""
    effects: Literal["none", "external"] = "none"
    """`external`: the step has external side effects; it is dispatched only after it has been
    committed."""
    queue: QueueName | None = Field(None, exclude_if=lambda queue: queue is None)
    """Only workers that serve this queue (of a team, a kind of GPU, a region) run the node; for nodes
    that workers run. By default, workers that serve the type's own queue run it."""
    description: str = ""
    """What the node is for; shown with it."""


class PlanningNode(NodeBase):
    """Decompose a question; output `{questions, searches, queries}` or, with `emit`, a sub-graph
    (`{nodes, output}`) that is checked against the policy and spliced in under this node."""

    type: Literal["planning"]
    """Type of the node."""
    model: str
    """Model that plans, as named in the routing configuration."""
    prompt: str | None = None
    """A template over `input` that produces the question; defaults to `input.question`."""
    database: str | None = None
    """The database from which allowed values of the catalog's parameters are read."""
    catalog: tuple[CatalogQuery, ...] = Field((), max_length=200)
    """Queries that the planner may choose."""
    max_queries: int = Field(4, ge=0, le=50)
    """Maximum number of queries."""
    emit: PlanPolicy | None = None
    """Allow the planner to emit steps, within this policy."""


class RetrievalNode(NodeBase):
    """Search an indexed collection; output `{passages: [...]}`."""

    type: Literal["retrieval"]
    """Type of the node."""
    collection: str
    """The indexed collection (`hocket index`)."""
    query: str | None = None
    """A template over `input`; defaults to `input.query` or `input.queries`."""
    top_k: int = Field(6, ge=1, le=200)
    """Maximum number of passages in the output, best first."""


class SqlNode(NodeBase):
    """Run one read-only SELECT; output `{columns, rows, truncated, ...}`."""

    type: Literal["sql"]
    """Type of the node."""
    database: str
    """A database in the configuration's section `databases`."""
    query: str | None = None
    """The SELECT, with `:name` parameters; defaults to `input.sql`. Never a template."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Bound parameters, templates over `input`; `input.params` are added."""
    tables: tuple[str, ...] = ()
    """Allowed tables (`schema.table`, `schema.*`); defaults to what the database's settings allow."""
    max_rows: int = Field(200, ge=1, le=100_000)
    """Maximum number of rows in the output; `truncated` if there were more."""


class LlmNode(NodeBase):
    """Call a model through the gateway; output
    `{text, citations?, data?, finish_reason, model, backend, usage}`."""

    type: Literal["llm"]
    """Type of the node."""
    model: str
    """Model, as named in the routing configuration."""
    prompt: str
    """A template over `input`."""
    system: str | None = None
    """The system message; a template over `input`."""
    documents: tuple[str, ...] = ()
    """Fields of `input` that hold passages or query results, given to the model as evidence."""
    task: Literal["chat", "answer"] = "chat"
    """`answer`: answer from the `documents`, with citations."""
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    """Maximum length of the answer, in tokens."""
    temperature: float | None = Field(None, ge=0, le=2)
    """Sampling temperature; defaults to the model's own."""
    response_schema: dict[str, Any] | None = None
    """A JSON Schema (2020-12) of the answer; the parsed answer is `data` in the output."""
    requires: Requires | None = None
    """Requirements for the backend."""
    prefill: bool = False
    """Prefill: have the model's server read the part of the prompt that is known before the node starts,
    while earlier steps run; for long prompts that begin with the run's own input."""


class AgentTool(SpecPart):
    """A tool that an agent's model may call: a node whose input is the arguments of the call."""

    description: str = Field("", max_length=10_000)
    """Description of the tool, for the model."""
    parameters: dict[str, Any] | None = None
    """A JSON Schema (2020-12) of the arguments, which are an object; for an `mcp` node, defaults to the
    schema from its server."""
    node: "Node"
    """The node to run; `mcp` nodes without `arguments` get those of the call. For more than one node,
    use a `graph`."""


class AgentNode(NodeBase):
    """Call a model repeatedly, with tools, until it answers; output
    `{text, data?, finish_reason, rounds, tool_calls, usage, model, backend, done}`."""

    type: Literal["agent"]
    """Type of the node."""
    model: str
    """Model, as named in the routing configuration."""
    prompt: str | None = None
    """A template over `input` that produces the task; defaults to `input.question`."""
    system: str | None = None
    """The system message of every round; a template over `input`."""
    tools: dict[ToolName, AgentTool] = Field(min_length=1, max_length=64)
    """Tools that the model may call, by name."""
    max_rounds: int = Field(8, ge=1, le=50)
    """Maximum number of rounds, each one call to the model; in the last round it gets no tools."""
    max_calls: int = Field(8, ge=1, le=32)
    """Maximum number of tool calls carried out per round."""
    max_steps: int = Field(20, ge=1, le=MAX_NODES)
    """Maximum number of steps that the calls of one round may start in total; inside a `graph`, every
    step counts."""
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    """Maximum length of the answer of one round, in tokens."""
    max_total_tokens: int | None = Field(None, ge=1, le=1_000_000_000)
    """Maximum number of tokens in all rounds, prompts and answers together."""
    budget_usd: WrittenMoney | None = None
    """Budget of the model and its tools together; by default, only the run's budget applies."""
    max_result_chars: int = Field(20_000, ge=100, le=1_000_000)
    """Maximum length of a tool's result as given to the model, in characters."""
    temperature: float | None = Field(None, ge=0, le=2)
    """Sampling temperature; defaults to the model's own."""
    response_schema: dict[str, Any] | None = None
    """A JSON Schema (2020-12) of the answer; the parsed answer is `data` in the output."""
    requires: Requires | None = None
    """Requirements for the backend."""


class CallingNode(NodeBase):
    """Fields of nodes whose handlers call other nodes."""

    calls: dict[ToolName, "Node"] = Field(
        default_factory=dict, max_length=64, exclude_if=lambda calls: not calls
    )
    """What the handler may call (`context.call_node`), by name: nodes whose input is provided by the
    handler. Each call is a step of the run."""
    max_calls: int = Field(
        DEFAULT_HANDLER_CALLS,
        ge=1,
        le=MAX_HANDLER_CALLS,
        exclude_if=lambda most: most == DEFAULT_HANDLER_CALLS,
    )
    """Maximum number of calls that one step makes, over all its attempts."""


class PythonNode(CallingNode):
    """Run one of your own async functions, `module:function`, with the step's input."""

    type: Literal["python"]
    """Type of the node."""
    handler: HandlerName
    """The function, `module:function`, from a package that the worker was started with."""


class HttpNode(NodeBase):
    """Send one request to an HTTP service; output `{status, headers, body}`."""

    type: Literal["http"]
    """Type of the node."""
    service: str = Field(min_length=1, max_length=200)
    """A service in the configuration's section `http_services`."""
    path: str = Field("/", max_length=2_048, pattern=r"^/[!-\"$&->@-\[\]-~]*$")
    """Path below the service's URL; each `:name` in it is filled in from `params`. Never a template."""
    params: dict[str, Any] = Field(default_factory=dict, max_length=100)
    """Values of `:name` in the path, templates over `input`."""
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] | None = None
    """HTTP method; defaults to `POST` if there is a `body`, otherwise to `GET`."""
    query: dict[str, Any] = Field(default_factory=dict, max_length=100)
    """Query parameters, templates over `input`; a list repeats the parameter, null omits it."""
    headers: dict[str, str] = Field(default_factory=dict, max_length=50)
    """Headers in addition to those of the service, templates over `input`."""
    body: Any = None
    """JSON body: a value with templates over `input`."""
    accept: tuple[Annotated[int, Field(ge=300, le=599)], ...] = Field((), max_length=50)
    """Statuses, in addition to 2xx, whose response is an output rather than an error."""


class McpNode(NodeBase):
    """Call a tool of an MCP server; output `{text, data, content}`."""

    type: Literal["mcp"]
    """Type of the node."""
    server: str = Field(min_length=1, max_length=200)
    """A server in the configuration's section `mcp_servers`."""
    tool: str = Field(min_length=1, max_length=200)
    """Name of the tool. Never a template."""
    arguments: dict[str, Any] = Field(default_factory=dict, max_length=100)
    """Arguments of the tool: values with templates over `input`."""


class NatsNode(NodeBase):
    """Send one request to a service over NATS; output `{headers, body}`."""

    type: Literal["nats"]
    """Type of the node."""
    service: str = Field(min_length=1, max_length=200)
    """A service in the configuration's section `nats_services`."""
    endpoint: str | None = Field(
        None, max_length=200, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
    )
    """One of the service's `endpoints`, appended to its subject. Never a template."""
    headers: dict[str, str] = Field(default_factory=dict, max_length=50)
    """Headers of the request, templates over `input`."""
    body: Any = None
    """JSON body: a value with templates over `input`."""


class OwnNode(CallingNode):
    """A custom node type, announced by your workers: `type: crm.lookup`."""

    type: OwnTypeName
    """Type of the node, as announced by a worker: two to four labels separated by dots."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Configuration passed to the handler in addition to its input; never a template. Checked against
    the type's schema if the type is known."""


class GraphNode(NodeBase):
    """Nodes inside a node; inside them, `input` is this node's input."""

    type: Literal["graph"]
    """Type of the node."""
    nodes: dict[Name, "Node"] = Field(min_length=1, max_length=MAX_NODES)
    """The inner nodes, by name."""
    output: Any = None
    """A value or expression over the inner nodes; defaults to the output of the last node, or of all
    last nodes by name."""


class RaceNode(NodeBase):
    """Run branches in parallel with the same input; the first valid one (or the best of all) wins, the
    others are cancelled and their cost is booked as speculation."""

    type: Literal["race"]
    """Type of the node."""
    branches: dict[Name, "Node"] = Field(min_length=2, max_length=16)
    """The branches by name."""
    pick: Literal["first_valid", "best"] = "first_valid"
    """`first_valid`: the first branch that is `valid` wins; `best`: the one with the highest `score`."""
    valid: str | None = None
    """An expression over `output`; a branch that ends without satisfying it loses."""
    score: str | None = None
    """An expression over `output` that returns a number; the highest wins (`pick: best`)."""


class PipelineNode(NodeBase):
    """Run another pipeline as a sub-run; the output is its output."""

    type: Literal["pipeline"]
    """Type of the node."""
    pipeline: Name
    """The pipeline to run."""
    version: int | None = Field(None, ge=1, le=MAX_INT32)
    """Version of the pipeline; defaults to the one that new runs take at that moment."""


class ApprovalNode(NodeBase):
    """Wait for a person's answer (`{approved, by, note}`), without occupying a worker."""

    type: Literal["approval"]
    """Type of the node."""
    prompt: str = ""
    """The question to the person."""
    wait_ms: float = Field(7 * 24 * 3_600_000, gt=0, le=MAX_WAIT_MS)
    """How long to wait for an answer, in ms; after that, the node fails."""
    pause_deadline: bool = True
    """Extend the run's deadline by the time waited."""


class SignalNode(NodeBase):
    """Wait for a named signal sent to the run, without occupying a worker; the output is its payload."""

    type: Literal["signal"]
    """Type of the node."""
    signal: Name
    """Name of the signal."""
    wait_ms: float = Field(3_600_000, gt=0, le=MAX_WAIT_MS)
    """How long to wait for it, in ms; after that, the node fails."""
    pause_deadline: bool = False
    """Extend the run's deadline by the time waited."""


OWN = "own"
"""The tag of nodes of custom types."""


def _tag_of(node: Any) -> str | None:
    """Return the tag of the model that reads a node, or None if it has no type."""
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
"""The built-in node types."""


def runs_in_worker(node_type: str) -> bool:
    """Tell whether workers run the steps of a node type."""
    return node_type in WORKER_TYPES or "." in node_type


def pool_of(node: Node) -> str:
    """Return the pool of a node's steps: the name under which workers serve them."""
    return pool(node.type, node.queue)


class Fallback(SpecPart):
    """What to run, with the same input, if the node fails with one of `on` (any error if empty)."""

    on: tuple[str, ...] = ()
    """Error classes or exact error codes; empty means every error."""
    node: Node
    """The node to run, with the same input."""


class Pipeline(SpecPart):
    """A pipeline: a graph of nodes with an SLO, a class and a budget."""

    pipeline: Name
    """Name of the pipeline."""
    description: str = ""
    """What the pipeline is for."""
    priority: Priority = Field(Priority.STANDARD, alias="class")
    """Class of its runs: decides which ones wait under overload."""
    slo_ms: float = Field(60_000, gt=0, le=MAX_WAIT_MS)
    """How long a run may take, in ms, from the publication of its task; determines its deadline."""
    budget_usd: WrittenMoney | None = None
    """Budget of a run for model calls."""
    max_runs: int = Field(DEFAULT_TREE_RUNS, ge=1, le=MAX_TREE_RUNS)
    """Maximum number of runs that a run of this pipeline may start in total, including those started
    by its sub-runs."""
    on_infeasible: Literal["continue", "degrade", "fail"] = "continue"
    """What to do if a run can no longer make its deadline: continue, use `fast` variants and skip
    `optional` nodes, or fail immediately."""
    on_overload: Literal["admit", "queue", "reject"] | None = None
    """What to do with a task that cannot make its deadline under the current load; by default,
    interactive tasks are rejected, and others wait until they can or their deadline is lost."""
    flow: Flow | None = Field(None, exclude_if=lambda flow: flow is None)
    """When runs start: how many at a time and how many per period, by keys of their input."""
    input: dict[str, Any] = Field(default_factory=dict)
    """A JSON Schema (2020-12) that the task's body must satisfy."""
    nodes: dict[Name, Node] = Field(min_length=1, max_length=MAX_NODES)
    """The nodes, by name."""
    output: Any = None
    """A value or expression; defaults to the output of the last node, or of all last nodes by name."""

    @field_validator("input")
    @classmethod
    def _is_object_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if schema.get("type", "object") != "object":
            raise misuse("the input of a pipeline is an object", "Use `type: object`.")
        return schema


for _model in (NodeBase, CallingNode, PythonNode, OwnNode, GraphNode, RaceNode, Fallback, Pipeline):
    _model.model_rebuild()


def parse_pipeline(document: Any) -> Pipeline:
    """Return the pipeline of a parsed YAML or JSON document; raise InvalidInput with all faults, each
    with its field and cure."""
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
    """Return the error for a document that pydantic refused."""
    fields = Fields(_fields_at, _places())
    faults = faults_of_document(error, tags=(*NODE_TYPES, OWN), fields=fields)
    return refusal(InvalidInput, faults)


def _fields_at(place: tuple[int | str, ...]) -> tuple[str, ...]:
    model = model_at(Pipeline, place)
    return () if model is None else fields_of(model)


@cache
def _places() -> Mapping[str, tuple[str, ...]]:
    return places_by_field(Pipeline, NodeBase)
