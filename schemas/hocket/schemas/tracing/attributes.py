"""The names and meanings of all span attributes: the table of docs/reference/traces.md.

Names that do not begin with `hocket.` are those of OpenTelemetry's semantic conventions (1.44, including
those for generative AI), with the meanings and values defined there.
"""

from collections.abc import Mapping
from typing import Final

GEN_AI_OPERATION: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER: Final = "gen_ai.provider.name"
GEN_AI_WORKFLOW: Final = "gen_ai.workflow.name"
GEN_AI_MODEL: Final = "gen_ai.request.model"
GEN_AI_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
GEN_AI_TOOL: Final = "gen_ai.tool.name"
GEN_AI_TOOL_TYPE: Final = "gen_ai.tool.type"
DB_SYSTEM: Final = "db.system.name"
DB_OPERATION: Final = "db.operation.name"
DB_ROWS: Final = "db.response.returned_rows"
ERROR_TYPE: Final = "error.type"
MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_OPERATION: Final = "messaging.operation.name"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGING_DESTINATION: Final = "messaging.destination.name"

RUN: Final = "hocket.run.id"
TENANT: Final = "hocket.tenant"
PIPELINE: Final = "hocket.pipeline"
VERSION: Final = "hocket.pipeline.version"
STATUS: Final = "hocket.run.status"
PRIORITY: Final = "hocket.run.priority"
MET_DEADLINE: Final = "hocket.run.met_deadline"
LABEL: Final = "hocket.label."
COST: Final = "hocket.cost_usd"
STEP: Final = "hocket.step"
NODE: Final = "hocket.node"
NODE_TYPE: Final = "hocket.node.type"
STATE: Final = "hocket.step.state"
SOURCE: Final = "hocket.step.source"
ATTEMPT: Final = "hocket.attempt"
OUTCOME: Final = "hocket.attempt.outcome"
WORKER: Final = "hocket.worker"
GATE_MS: Final = "hocket.queue.gate_ms"
STREAM_MS: Final = "hocket.queue.stream_ms"
CALL: Final = "hocket.call.id"
CALL_KIND: Final = "hocket.call.kind"
MODEL: Final = "hocket.model"
BACKEND: Final = "hocket.backend"
REPLICA: Final = "hocket.replica"
ESTIMATED: Final = "hocket.call.estimated"
EXPERIMENT: Final = "hocket.experiment"
ARM: Final = "hocket.experiment.arm"

MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    GEN_AI_OPERATION: (
        "run, attempt, call",
        "`invoke_workflow`, `execute_tool`, `retrieval`, `chat`, `text_completion`, `embeddings`",
    ),
    GEN_AI_PROVIDER: (
        "call",
        "the kind of the backend: `openai`, `anthropic`, `triton`, `function`",
    ),
    GEN_AI_WORKFLOW: ("run", "the pipeline"),
    GEN_AI_MODEL: ("call", "the model's name at its server"),
    GEN_AI_INPUT_TOKENS: ("call", "tokens of the prompt, cached ones too"),
    GEN_AI_OUTPUT_TOKENS: ("call", "tokens of the answer"),
    GEN_AI_CACHED_TOKENS: ("call", "tokens of the prompt that the server had in its cache"),
    GEN_AI_CACHE_WRITE_TOKENS: ("call", "tokens of the prompt that it wrote to its cache"),
    GEN_AI_TOOL: ("attempt", "of `python` nodes and node types of one's own: the node"),
    GEN_AI_TOOL_TYPE: ("attempt", "`function`"),
    DB_SYSTEM: ("query", "always `other_sql`; the configuration says which kind of database it is"),
    DB_OPERATION: ("query", "`SELECT`"),
    DB_ROWS: ("query", "how many rows came"),
    ERROR_TYPE: ("all", "the code of the error, where one ended the span"),
    MESSAGING_SYSTEM: ("attempt", "`nats`"),
    MESSAGING_OPERATION: ("attempt", "`process`"),
    MESSAGING_OPERATION_TYPE: ("attempt", "`process`"),
    MESSAGING_DESTINATION: ("attempt", "the subject of the step's type"),
    RUN: ("all", "the run"),
    TENANT: ("run", "the tenant"),
    PIPELINE: ("run", "the pipeline"),
    VERSION: ("run", "its version"),
    STATUS: ("run", "`running`, `succeeded`, `degraded`, `failed` ..."),
    PRIORITY: ("run", "`interactive`, `standard` or `batch`"),
    MET_DEADLINE: ("run", "whether it gave its result by its deadline"),
    LABEL: ("run", "each label of the task; KEY is the label's key"),
    COST: ("run, call", "US dollars"),
    STEP: ("step, queue, attempt, call", "the step, by its path in the run"),
    NODE: ("step, attempt", "the node of the pipeline"),
    NODE_TYPE: ("step, attempt", "`llm`, `sql`, `python` ..."),
    STATE: ("step", "`succeeded`, `failed`, `skipped` ..."),
    SOURCE: ("step", "of a step that was not computed: `cache` or `run`"),
    ATTEMPT: ("queue, attempt, call", "the number of the attempt"),
    OUTCOME: (
        "attempt",
        "`failed`, `timed_out`, `cancelled`, `suspended`, of those that gave no result",
    ),
    WORKER: ("attempt", "the worker"),
    GATE_MS: ("queue", "how long the coordinator held the step back, because no slot was free"),
    STREAM_MS: ("queue", "how long it waited in its stream and in the worker"),
    CALL: ("call", "the call, as `hocket gateway explain` takes it"),
    CALL_KIND: ("call", "`call`, `cascade` or `speculation`"),
    MODEL: ("call", "the model's name in the routing table"),
    BACKEND: ("call", "the backend"),
    REPLICA: ("call", "its replica, where it has several"),
    ESTIMATED: ("call", "whether the tokens are an estimate, because the backend reported none"),
    EXPERIMENT: ("call", "the experiment that it was part of"),
    ARM: ("call", "its arm"),
}
"""By name: the spans that have the attribute, and its meaning."""
