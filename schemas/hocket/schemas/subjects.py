"""Every subject and stream name, in one place.

`TASKS` holds what users publish, `TASK_BATCHES` the tasks that REST accepts in bulk, `LOG` the ordered
input of each partition, `STEPS` the work for workers, `CALLS` model calls that are about to be made or
were refused, `USAGE` one record per call that was made, `EVENTS` the public facts, `DLQ` messages that
could not be handled, `PROBATION` what workers know about steps that may kill their worker, and
`JOURNALS` what handlers of steps have done so far. For workers with a key, `GUEST_RESULTS` and
`GUEST_LETTERS` hold results and dead letters until a coordinator passes them on, and `GUEST_WORKERS` and
`GUEST_TYPES` hold what they announce and describe.
"""

import re
from functools import lru_cache

from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput

TASKS = "TASKS"
INTAKE = "intake"
"""The consumer of tasks that all coordinators share."""
TASK_BATCHES = "TASK_BATCHES"
LOG = "LOG"
STEPS = "STEPS"
CALLS = "CALLS"
USAGE = "USAGE"
EVENTS = "EVENTS"
DLQ = "DLQ"
PROBATION = "PROBATION"
JOURNALS = "JOURNALS"
GUEST_RESULTS = "GUEST_RESULTS"
GUEST_LETTERS = "GUEST_LETTERS"
GUEST_WORKERS = "GUEST_WORKERS"
GUEST_TYPES = "GUEST_TYPES"

TASK_FILTER = "hocket.task.*.*"
BATCHED_TASK_FILTER = "hocket.batched.*.*"
"""The tasks of bulk submissions. Only REST may publish here, because batches are accepted."""
LOG_FILTER = "hocket.log.>"
STEP_FILTER = "hocket.step.>"
CALL_FILTER = "hocket.call.*"
CALL_OPENED = "hocket.call.opened"
CALL_REFUSED = "hocket.call.refused"
USAGE_SUBJECT = "hocket.usage"
"""A message holds one UsageRecord, or several, one per line."""
EVENT_FILTER = "hocket.event.>"
DLQ_FILTER = "hocket.dlq.>"
PROBATION_FILTER = "hocket.probation.*"
JOURNAL_FILTER = "hocket.journal.*.*"

GATEWAY_CALL = "hocket.gateway.call"
"""Core NATS request/reply, queue group `gateway`: a CallRequest in, a CallReply out."""
GATEWAY_HELD = "hocket.gateway.held"
"""Core NATS: a HeldCall for all gateways; the one that holds the call says so, and answers its
caller."""
GATEWAY_CANCEL = "hocket.gateway.cancel"
"""Core NATS: a CallCancelled for whichever gateway holds the call."""
GATEWAY_MODELS = "hocket.gateway.models"
"""Core NATS request/reply: the known logical models, as JSON."""
GATEWAY_CONTROL = "hocket.gateway.control"
"""Core NATS request/reply, queue group `gateway`: a BackendControl in, a BackendControlled out."""
GATEWAY_REPLICAS = "hocket.gateway.replicas"
"""Core NATS request/reply, queue group `gateway`: a ReplicaControl in, a ReplicasTold out."""
GATEWAY_STATES = "hocket.gateway.states"
"""Core NATS: a request to which every gateway answers with a ReplicasTold."""
RUNS_EXPECTED = "hocket.gateway.expected"
"""Core NATS: a RunsExpected for all gateways, about accepted runs that will need models."""
PROMPT_EXPECTED = "hocket.gateway.prompt"
"""Core NATS: a PromptExpected for all gateways, about a coming call whose beginning is known."""
REPLICAS_USED = "hocket.gateway.used"
"""Core NATS: a ReplicasUsed for the gateway that starts and stops models."""
GATEWAY_EXPERIMENTS = "hocket.gateway.experiments"
"""Core NATS request/reply, queue group `gateway`: an ExperimentControl in, an ExperimentsTold out."""
GATEWAY_OUTCOME = "hocket.gateway.outcome"
"""Core NATS: an OutcomeTold for all gateways."""
GATEWAY_TENANT = "_gateway"
"""Takes the tenant's place in the subjects of the gateways' own facts; no tenant can have this name."""
LEDGER_SPENT = "hocket.ledger.spent"
"""Core NATS request/reply, queue group `ledger`: a SpentAsked in, a SpentTold out; both are sealed."""
LEDGER_CONTENT = "hocket.ledger.content"
"""Core NATS request/reply, queue group `ledger`: a sealed ContentBatch in; an answer once it is
written."""
ACCESS_KEYS = "hocket.access.keys"
"""Core NATS request/reply, queue group `admin`: a KeysAsked in, a KeysTold out; both are sealed."""
CANCEL_FILTER = "hocket.cancel"
"""Core NATS: a StepCancelled for whichever worker holds the attempt."""
WORKER_ANNOUNCED = "hocket.worker.announced"
"""Core NATS: a WorkerAnnounced, every few seconds and when a worker starts, stops or is asked."""
WORKER_DESCRIBED = "hocket.worker.described"
"""Core NATS: a TypeDescribed, from a worker that runs custom node types."""
MAX_DESCRIPTION_BYTES = 64 * 1024
"""The limit on a TypeDescribed; larger ones are ignored."""
WORKER_ASKED = "hocket.worker.asked"
"""Core NATS: asks every worker to announce itself now."""
JOURNAL_READ = "hocket.worker.journal.read"
"""Core NATS request/reply, queue group `coordinator`: `hocket.worker.journal.read.<pool>` takes a
JournalRead and answers with a JournalPage."""
JOURNAL_WRITE = "hocket.worker.journal.write"
"""Core NATS request/reply, queue group `coordinator`: `hocket.worker.journal.write.<pool>` takes a
JournalWrite and answers with a JournalKept."""

WORKER_LINES = "hocket.worker.lines"
"""Core NATS request/reply, queue group `ledger`: `hocket.worker.lines.<pool>` takes a LineBatch, and
answers once it is written."""

GUEST_RESULT_FILTER = "hocket.guest.result.*"
GUEST_LETTER_FILTER = "hocket.guest.letter.*"
GUEST_ANNOUNCED = "hocket.guest.announced"
"""What a guest announces; the server republishes it on WORKER_ANNOUNCED as far as there is room."""
GUEST_DESCRIBED = "hocket.guest.described"
ANY_KEY = "any"
"""Takes the place of a key's id if a client did not give it: all such clients share one place."""

COORDINATORS = "hocket-coordinators"
"""The bucket of the coordinators' leases: which are alive, and which partitions each owns."""
GATEWAYS = "hocket-gateways"
"""The bucket of the gateways: which are alive, and what each holds of the limits that they share."""
BUDGETS = "hocket-budgets"
"""The bucket of the gateways' budgets: what each gateway has spent, and may still spend."""

ASKED_AGAIN = "Hocket-Asked-Again"
"""The header of a CallRequest that its caller repeats because no reply came, and of a StepRequested that
is dispatched again although a worker may have it already, so that its calls may be in progress."""
ASKED_AGAIN_MS = 1_800.0
"""How long a gateway looks for another one that holds a repeated call, before it makes the call
itself."""

LANES = ("urgent", "normal", "batch")

INBOX_PREFIX = "_INBOX."
MAX_INBOX_CHARS = 256
INBOX = re.compile(r"_INBOX(\.[A-Za-z0-9_-]{1,64}){1,4}")
"""A reply subject that a message may name: below the prefix of NATS inboxes, without wildcards. On any
other subject somebody else may listen, and our answer would reach them on behalf of the sender."""

TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
"""A valid name of a tenant, pipeline, node or built-in node type, which is also a valid subject
token."""
MAX_TYPE_CHARS = 63
_LABEL = r"[a-z][a-z0-9_]{0,30}"
OWN_TYPE = re.compile(rf"(?=.{{1,{MAX_TYPE_CHARS}}}$){_LABEL}(?:\.{_LABEL}){{1,3}}")
"""A valid name of a custom node type: two to four labels with dots between them, such as `crm.lookup`.
Built-in types have no dot, so neither can take the other's name."""
QUEUE = re.compile(_LABEL)
"""A valid name of a queue of steps."""
DEFAULT_QUEUE = "default"
"""The type's own queue, for nodes that name none."""


def is_inbox(subject: str) -> bool:
    """Tell whether a message may name this subject for its answer."""
    return len(subject) <= MAX_INBOX_CHARS and INBOX.fullmatch(subject) is not None


def check_token(field: str, value: str) -> str:
    """Return `value`, or raise InvalidInput, naming `field`, if it cannot be a subject token."""
    if TOKEN.fullmatch(value):
        return value
    raise InvalidInput(
        field=field,
        reason=f"`{shown_text(value)}` is not a name",
        cure="Use 1 to 63 letters, digits, `-` or `_`, starting with a letter or digit.",
    )


def task(tenant: str, pipeline: str) -> str:
    """Return the subject on which a user publishes a task."""
    return f"hocket.task.{tenant}.{pipeline}"


def batched_task(tenant: str, pipeline: str) -> str:
    """Return the subject on which REST publishes a task of a bulk submission."""
    return f"hocket.batched.{tenant}.{pipeline}"


def log(partition: int, kind: str) -> str:
    """Return the subject of one kind of log event of a partition."""
    return f"hocket.log.{partition}.{kind}"


def guest_result(key_id: str) -> str:
    """Return where a worker with a key posts results; their partition follows from the run."""
    return f"hocket.guest.result.{key_id}"


def guest_letter(key_id: str) -> str:
    """Return where a worker with a key posts dead letters of steps."""
    return f"hocket.guest.letter.{key_id}"


def log_of(partition: int) -> str:
    """Return the filter for the whole log of a partition."""
    return f"hocket.log.{partition}.>"


def is_own_type(node_type: str) -> bool:
    """Tell whether this is the name of a custom node type."""
    return OWN_TYPE.fullmatch(node_type) is not None


def pool(node_type: str, queue: str | None = None) -> str:
    """Return the name of a pool, the steps of a type that share workers: the type, followed by `@` and
    the queue unless it is the type's own."""
    return f"{node_type}@{queue}" if queue and queue != DEFAULT_QUEUE else node_type


def type_of(pool_name: str) -> str:
    """Return the node type of a pool's steps."""
    return pool_name.partition("@")[0]


def is_pool(name: str) -> bool:
    """Tell whether this can be the name of a pool of steps."""
    node_type, at, queue = name.partition("@")
    if at and QUEUE.fullmatch(queue) is None:
        return False
    return TOKEN.fullmatch(node_type) is not None or is_own_type(node_type)


def pool_token(name: str) -> str:
    """Return a pool's name as one token of a subject: `crm.lookup@gpu` is `crm-lookup@gpu`."""
    return name.replace(".", "-")


@lru_cache(maxsize=4_096)
def step(pool_name: str, lane: str) -> str:
    """Return the subject of a pool's steps in a lane."""
    return f"hocket.step.{pool_token(pool_name)}.{lane}"


def step_consumer(token: str, lane: str) -> str:
    """Return the name of the consumer of a lane of a pool; the pool's name is given as one token."""
    return f"step-{token}-{lane}"


def probation(step_digest: str) -> str:
    """Return the subject of the record of a step on probation."""
    return f"hocket.probation.{step_digest}"


def journal(run_id: str, name: str) -> str:
    """Return the subject of a step's journal (`journals.name_of`)."""
    return f"hocket.journal.{run_id}.{name}"


def journals_of(run_id: str) -> str:
    """Return the filter for the journals of a run's steps."""
    return f"hocket.journal.{run_id}.*"


def event(tenant: str, pipeline: str, kind: str) -> str:
    """Return the subject of a public fact, for example `hocket.event.acme.report.run-finished`."""
    return f"hocket.event.{tenant}.{pipeline}.{kind}"


UNATTRIBUTED = "_unattributed"
"""Takes the tenant's place for a dead letter that names no tenant; no tenant can have this name."""


def dead_letter(source: str, tenant: str) -> str:
    """Return the subject for a tenant's messages that `source` (`task`, `log`, `step`, `usage`) could
    not handle; the tenant is UNATTRIBUTED if it is unknown."""
    return f"hocket.dlq.{source}.{tenant}"
