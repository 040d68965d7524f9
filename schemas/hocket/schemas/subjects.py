"""Every subject and stream name, in one place.

`TASKS` is what users publish, `TASK_BATCHES` what REST takes for them in bulk, `LOG` the ordered input
of one partition, `STEPS` the work of the workers, `CALLS` the model calls that are about to be made or
were refused, `USAGE` one record per call that was made, `EVENTS` the public facts, `DLQ` what could not
be handled, `PROBATION` what workers know of steps that may end their worker, `JOURNALS` what handlers of
steps have done so far. Of workers with a key `GUEST_RESULTS` and `GUEST_LETTERS` have the results and
dead letters until a coordinator hands them on, `GUEST_WORKERS` and `GUEST_TYPES` what they announce and
describe.
"""

import re

from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput

TASKS = "TASKS"
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
"""The tasks of bulk submissions. Batches may be posted here, so nobody but REST may publish."""
LOG_FILTER = "hocket.log.>"
STEP_FILTER = "hocket.step.>"
CALL_FILTER = "hocket.call.*"
CALL_OPENED = "hocket.call.opened"
CALL_REFUSED = "hocket.call.refused"
USAGE_SUBJECT = "hocket.usage"
"""A message is one UsageRecord, or several, one a line."""
EVENT_FILTER = "hocket.event.>"
DLQ_FILTER = "hocket.dlq.>"
PROBATION_FILTER = "hocket.probation.*"
JOURNAL_FILTER = "hocket.journal.*.*"

GATEWAY_CALL = "hocket.gateway.call"
"""Core NATS request/reply, queue group `gateway`: a CallRequest in, a CallReply out."""
GATEWAY_HELD = "hocket.gateway.held"
"""Core NATS: a HeldCall for all gateways; who holds the call says so, and answers its caller."""
GATEWAY_CANCEL = "hocket.gateway.cancel"
"""Core NATS: a CallCancelled for whichever gateway holds the call."""
GATEWAY_MODELS = "hocket.gateway.models"
"""Core NATS request/reply: the logical models there are, as JSON."""
GATEWAY_CONTROL = "hocket.gateway.control"
"""Core NATS request/reply, queue group `gateway`: a BackendControl in, a BackendControlled out."""
GATEWAY_REPLICAS = "hocket.gateway.replicas"
"""Core NATS request/reply, queue group `gateway`: a ReplicaControl in, a ReplicasTold out."""
GATEWAY_STATES = "hocket.gateway.states"
"""Core NATS: a request to which every gateway answers with a ReplicasTold."""
RUNS_EXPECTED = "hocket.gateway.expected"
"""Core NATS: a RunsExpected for all gateways: runs were accepted that will need models."""
PROMPT_EXPECTED = "hocket.gateway.prompt"
"""Core NATS: a PromptExpected for all gateways: a call will come that begins so."""
REPLICAS_USED = "hocket.gateway.used"
"""Core NATS: a ReplicasUsed for the gateway that starts and stops models."""
GATEWAY_EXPERIMENTS = "hocket.gateway.experiments"
"""Core NATS request/reply, queue group `gateway`: an ExperimentControl in, an ExperimentsTold out."""
GATEWAY_OUTCOME = "hocket.gateway.outcome"
"""Core NATS: an OutcomeTold for all gateways."""
GATEWAY_TENANT = "_gateway"
"""Stands for the tenant in the subjects of the gateways' own facts; no tenant can be called so."""
LEDGER_SPENT = "hocket.ledger.spent"
"""Core NATS request/reply, queue group `ledger`: a SpentAsked in, a SpentTold out; both are sealed."""
LEDGER_CONTENT = "hocket.ledger.content"
"""Core NATS request/reply, queue group `ledger`: a ContentBatch in, which is sealed; an answer once it
is written."""
ACCESS_KEYS = "hocket.access.keys"
"""Core NATS request/reply, queue group `admin`: a KeysAsked in, a KeysTold out; both are sealed."""
CANCEL_FILTER = "hocket.cancel"
"""Core NATS: a StepCancelled for whichever worker holds the attempt."""
WORKER_ANNOUNCED = "hocket.worker.announced"
"""Core NATS: a WorkerAnnounced, every few seconds and when a worker starts, stops or is asked."""
WORKER_DESCRIBED = "hocket.worker.described"
"""Core NATS: a TypeDescribed, from a worker that runs node types of somebody's own."""
MAX_DESCRIPTION_BYTES = 64 * 1024
"""Of a TypeDescribed; a larger one is not believed."""
WORKER_ASKED = "hocket.worker.asked"
"""Core NATS: every worker shall announce itself now."""
JOURNAL_READ = "hocket.worker.journal.read"
"""Core NATS request/reply, queue group `coordinator`: `hocket.worker.journal.read.<pool>` has a
JournalRead in, a JournalPage out."""
JOURNAL_WRITE = "hocket.worker.journal.write"
"""Core NATS request/reply, queue group `coordinator`: `hocket.worker.journal.write.<pool>` has a
JournalWrite in, a JournalKept out."""

WORKER_LINES = "hocket.worker.lines"
"""Core NATS request/reply, queue group `ledger`: `hocket.worker.lines.<pool>` has a LineBatch in, and an
answer once it is written."""

GUEST_RESULT_FILTER = "hocket.guest.result.*"
GUEST_LETTER_FILTER = "hocket.guest.letter.*"
GUEST_ANNOUNCED = "hocket.guest.announced"
"""What a guest announces; the server says it again on WORKER_ANNOUNCED, so far as there is room."""
GUEST_DESCRIBED = "hocket.guest.described"
ANY_KEY = "any"
"""Stands for the id of a key of which a client said nothing: all such share one place."""

COORDINATORS = "hocket-coordinators"
"""The bucket of the coordinators' leases: who lives, and who owns which partition."""
GATEWAYS = "hocket-gateways"
"""The bucket of the gateways: who lives, and what each holds of the limits that they share."""
BUDGETS = "hocket-budgets"
"""The bucket of the gateways' budgets: what each of them has spent, and may still spend of it."""

ASKED_AGAIN = "Hocket-Asked-Again"
"""Header of a CallRequest that its caller sends once more, because no reply came; and of a StepRequested
that is handed out once more, where a worker may have it already: its calls may be under way."""
ASKED_AGAIN_MS = 1_800.0
"""So long a gateway looks for another one that holds a call which is asked again, before it makes it."""

LANES = ("urgent", "normal", "batch")

INBOX_PREFIX = "_INBOX."
MAX_INBOX_CHARS = 256
INBOX = re.compile(r"_INBOX(\.[A-Za-z0-9_-]{1,64}){1,4}")
"""Where a message may ask to be answered: below the prefix of NATS' inboxes, without wildcards. Anything
else could be a subject that somebody else listens on, to whom we would be speaking for the sender."""

TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
"""What a tenant, pipeline, node or built-in node type may be called: also one valid subject token."""
MAX_TYPE_CHARS = 63
_LABEL = r"[a-z][a-z0-9_]{0,30}"
OWN_TYPE = re.compile(rf"(?=.{{1,{MAX_TYPE_CHARS}}}$){_LABEL}(?:\.{_LABEL}){{1,3}}")
"""What a node type of somebody's own may be called: two to four labels with dots between them, such as
`crm.lookup`. Built-in types have no dot, so that neither can take the other's name."""
QUEUE = re.compile(_LABEL)
"""What a queue of steps may be called."""
DEFAULT_QUEUE = "default"
"""The type's own queue: that of nodes which name none."""


def is_inbox(subject: str) -> bool:
    """Tell whether a message may ask to be answered there."""
    return len(subject) <= MAX_INBOX_CHARS and INBOX.fullmatch(subject) is not None


def check_token(field: str, value: str) -> str:
    """Return `value`, or raise InvalidInput naming `field` where it cannot be a subject token."""
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
    """Tell whether this is the name of a node type of somebody's own."""
    return OWN_TYPE.fullmatch(node_type) is not None


def pool(node_type: str, queue: str | None = None) -> str:
    """Return the name of those steps of a type that share workers: the type, and `@` with the queue
    where it is not the type's own."""
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


def step(pool_name: str, lane: str) -> str:
    """Return the subject of a pool's steps in a lane."""
    return f"hocket.step.{pool_token(pool_name)}.{lane}"


def step_consumer(token: str, lane: str) -> str:
    """Return the name of the consumer of a lane of a pool, whose name is given as one token."""
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
"""Stands for the tenant of a dead letter that does not say whose it is; no tenant can be called so."""


def dead_letter(source: str, tenant: str) -> str:
    """Return the subject of what `source` (`task`, `log`, `step`, `usage`) could not handle of a
    tenant's (UNATTRIBUTED where nobody knows whose it is)."""
    return f"hocket.dlq.{source}.{tenant}"
