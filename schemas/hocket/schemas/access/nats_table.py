"""What each identity may do on NATS: the table from which the servers' permissions are made. Pure.

The platform, guests and servers have one account each. A *service* is one of our processes; it has a
password and is in the platform's account, where the streams are. A *guest* authenticates with a key (a
tenant's, or that of a team's worker) and is in an account without streams. Only `CROSSINGS` lead from
there to the platform, and `TOLD` back. Any reply subject that a guest names is in the guests' account,
where nothing of the platform listens.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hocket.schemas import subjects
from hocket.schemas.access.keys import ID_DIGITS, Principal
from hocket.schemas.access.roles import Permission

PLATFORM_ACCOUNT = "HOCKET"
GUEST_ACCOUNT = "GUESTS"
SYSTEM_ACCOUNT = "SYS"

OWNER = "hocket"
"""The user that may do everything in the account of the streams: the operator of the platform."""
ACCESS_USER = "access"
"""The user, in the servers' account, of the processes that decide which keys may connect."""
SYSTEM_USER = "system"

INBOX_OF_SERVICES = f"{subjects.INBOX_PREFIX}service."
INBOX_OF_KEYS = f"{subjects.INBOX_PREFIX}key."

_API = "$JS.API"
_STREAMS = (
    subjects.TASKS,
    subjects.TASK_BATCHES,
    subjects.LOG,
    subjects.STEPS,
    subjects.CALLS,
    subjects.USAGE,
    subjects.EVENTS,
    subjects.DLQ,
    subjects.PROBATION,
    subjects.JOURNALS,
    subjects.GUEST_RESULTS,
    subjects.GUEST_LETTERS,
    subjects.GUEST_WORKERS,
    subjects.GUEST_TYPES,
)


@dataclass(frozen=True, slots=True)
class NatsPermissions:
    """The subjects that an identity may publish on and subscribe to, and no others."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()

    def __or__(self, other: "NatsPermissions") -> "NatsPermissions":
        return NatsPermissions(
            tuple(dict.fromkeys(self.publish + other.publish)),
            tuple(dict.fromkeys(self.subscribe + other.subscribe)),
        )


STORED_S = 10
"""How long a storage acknowledgement may take before the message is sent again."""
UNANSWERED_S = 1
PULLED_S = 60
"""How long a guest's pull request without a heartbeat may wait for the next message."""
PULL_EXPIRES_S = 55
"""The longest expiry that a guest's pull request may ask for."""
CALLED_S = 3_600
"""How long a model call may take."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A subject on which guests reach the platform, where it is called `to` if that is given.

    `is_streamed` means that several messages may come back. `answered_s` is how long a server remembers
    the reply subject of a request, counted from the last answer if there are several; each takes 700
    bytes of its memory, whether or not anybody answers."""

    subject: str
    is_streamed: bool = False
    to: str | None = None
    answered_s: int = STORED_S


GUESTS_CALL = "hocket.gateway.guest"
"""Core NATS request/reply, queue group `gateway`: a guest's CallRequest, as on `hocket.gateway.call`."""
EVENTS_ASKED = "hocket.access.events"
"""Core NATS request/reply, queue group `admin`: `hocket.access.events.<id of the key>` makes the
consumer of the key's tenant's events."""
WEBHOOKS = "webhooks"
"""The consumer of EVENTS from which REST processes learn what to send to webhooks."""
CONSUMERS_ASKED = "hocket.worker.consumers"
"""Core NATS request/reply, queue group `coordinator`: `hocket.worker.consumers.<pool>` makes the
consumers of a pool's steps."""

CROSSINGS = (
    Crossing(subjects.TASK_FILTER),
    Crossing(f"{EVENTS_ASKED}.*"),
    Crossing(
        f"{_API}.CONSUMER.MSG.NEXT.{subjects.EVENTS}.*", is_streamed=True, answered_s=PULLED_S
    ),
    Crossing(f"$JS.ACK.{subjects.EVENTS}.>"),
    Crossing(f"{CONSUMERS_ASKED}.*"),
    Crossing(f"{_API}.CONSUMER.MSG.NEXT.{subjects.STEPS}.*", is_streamed=True, answered_s=PULLED_S),
    Crossing(f"$JS.ACK.{subjects.STEPS}.>"),
    Crossing(subjects.GUEST_RESULT_FILTER),
    Crossing(subjects.GUEST_LETTER_FILTER),
    Crossing(f"{subjects.JOURNAL_READ}.*"),
    Crossing(f"{subjects.JOURNAL_WRITE}.*"),
    Crossing(f"{subjects.WORKER_LINES}.*"),
    Crossing(f"{subjects.GUEST_ANNOUNCED}.*", answered_s=UNANSWERED_S),
    Crossing(f"{subjects.GUEST_DESCRIBED}.*", answered_s=UNANSWERED_S),
    Crossing(subjects.GATEWAY_CALL, to=GUESTS_CALL, answered_s=CALLED_S),
    Crossing(subjects.GATEWAY_CANCEL, answered_s=UNANSWERED_S),
)
MAPPED: Mapping[str, str] = {
    "hocket.log.*.finished": subjects.guest_result(subjects.ANY_KEY),
    "hocket.log.*.results": subjects.guest_result(subjects.ANY_KEY),
    "hocket.dlq.step.*": subjects.guest_letter(subjects.ANY_KEY),
    f"{subjects.WORKER_ANNOUNCED}.*": f"{subjects.GUEST_ANNOUNCED}.$1",
    f"{subjects.WORKER_DESCRIBED}.*": f"{subjects.GUEST_DESCRIBED}.$1",
}
"""Subjects of the platform that a server replaces for guests, before it checks their permissions. The
replacements lead to streams that are bounded separately, so that a guest cannot flood the shared ones. A
guest that names its key's subject itself has a place of its own there."""
TOLD = (subjects.CANCEL_FILTER, subjects.WORKER_ASKED, f"{INBOX_OF_KEYS}>")
"""The platform's subjects that guests receive."""


def _made(stream: str, *, bucket: bool = False) -> tuple[str, ...]:
    """Return the subjects for creating and updating a stream."""
    name = f"KV_{stream}" if bucket else stream
    return tuple(f"{_API}.STREAM.{verb}.{name}" for verb in ("INFO", "CREATE", "UPDATE"))


def _watched(stream: str) -> tuple[str, ...]:
    """Return the subjects for reading a stream in order (kit/nats/consumers/ordered_consumer.py)."""
    return (
        f"{_API}.CONSUMER.CREATE.{stream}.>",
        f"{_API}.CONSUMER.DELETE.{stream}.*",
        f"$JS.FC.{stream}.>",
    )


def _bucket(name: str) -> tuple[str, ...]:
    stream = f"KV_{name}"
    return (
        f"$KV.{name}.>",
        *_made(name, bucket=True),
        *_watched(stream),
        f"{_API}.STREAM.MSG.GET.{stream}",
        f"{_API}.STREAM.PURGE.{stream}",
    )


def _pulled(stream: str) -> tuple[str, ...]:
    """Return the subjects for making durable consumers of a stream and taking their messages."""
    return (
        f"{_API}.CONSUMER.INFO.{stream}.*",
        f"{_API}.CONSUMER.CREATE.{stream}.>",
        f"{_API}.CONSUMER.DURABLE.CREATE.{stream}.*",
        f"{_API}.CONSUMER.MSG.NEXT.{stream}.*",
        *_acks(stream),
    )


def _pulled_by(stream: str, durable: str) -> tuple[str, ...]:
    """Return the subjects for making one durable consumer of a watchable stream, and taking its
    messages."""
    return (
        f"{_API}.CONSUMER.INFO.{stream}.{durable}",
        f"{_API}.CONSUMER.DURABLE.CREATE.{stream}.{durable}",
        f"{_API}.CONSUMER.MSG.NEXT.{stream}.{durable}",
        f"$JS.ACK.{stream}.{durable}.>",
        f"$JS.ACK.*.*.{stream}.{durable}.>",
    )


def _removed(stream: str) -> tuple[str, ...]:
    """Return the subjects for removing messages of a stream."""
    return f"{_API}.STREAM.PURGE.{stream}", f"{_API}.STREAM.MSG.DELETE.{stream}"


def _acks(stream: str) -> tuple[str, ...]:
    return f"$JS.ACK.{stream}.>", f"$JS.ACK.*.*.{stream}.>"


_JOURNALS_READ = (
    f"{_API}.DIRECT.GET.{subjects.JOURNALS}",
    f"{_API}.DIRECT.GET.{subjects.JOURNALS}.>",
)
"""The subjects for reading journals (kit/nats/consumers/stored_messages.py). The subject to read is in
the request's body, so that the permission cannot be narrowed to a run, and no worker has it."""
_ALL_STREAMS = tuple(subject for stream in _STREAMS for subject in _made(stream))
_ANSWERS = (f"{subjects.INBOX_PREFIX}>", "_R_.>")
"""Where answers go: to the reply subject of the request. Servers replace a guest's inbox with `_R_.` and
a secret, and pass the answer on to the guest's account."""


def _service(name: str, publish: tuple[str, ...], subscribe: tuple[str, ...]) -> NatsPermissions:
    return NatsPermissions(publish, (f"{INBOX_OF_SERVICES}{name}.>", *subscribe))


_WORKER = _service(
    "worker",
    (
        f"{CONSUMERS_ASKED}.*",
        f"{_API}.CONSUMER.INFO.{subjects.STEPS}.*",
        f"{_API}.CONSUMER.MSG.NEXT.{subjects.STEPS}.*",
        *_acks(subjects.STEPS),
        f"{_API}.STREAM.INFO.{subjects.STEPS}",
        f"{_API}.STREAM.MSG.GET.{subjects.STEPS}",
        "hocket.log.*.finished",
        "hocket.log.*.results",
        "hocket.log.*.returned",
        subjects.PROBATION_FILTER,
        f"{_API}.STREAM.INFO.{subjects.PROBATION}",
        f"{_API}.STREAM.MSG.GET.{subjects.PROBATION}",
        f"{_API}.STREAM.PURGE.{subjects.PROBATION}",
        "hocket.dlq.step.*",
        f"{subjects.JOURNAL_READ}.*",
        f"{subjects.JOURNAL_WRITE}.*",
        f"{subjects.WORKER_LINES}.*",
        subjects.WORKER_ANNOUNCED,
        subjects.WORKER_DESCRIBED,
        subjects.GATEWAY_CALL,
        subjects.GATEWAY_CANCEL,
    ),
    (subjects.CANCEL_FILTER, subjects.WORKER_ASKED),
)
_GATEWAY = _service(
    "gateway",
    (
        *_ALL_STREAMS,
        *_bucket(subjects.GATEWAYS),
        *_bucket(subjects.BUDGETS),
        subjects.CALL_OPENED,
        subjects.CALL_REFUSED,
        f"{_API}.STREAM.MSG.GET.{subjects.CALLS}",
        subjects.USAGE_SUBJECT,
        "hocket.log.*.charged",
        f"hocket.event.{subjects.GATEWAY_TENANT}.>",
        subjects.GATEWAY_HELD,
        subjects.REPLICAS_USED,
        subjects.LEDGER_SPENT,
        subjects.LEDGER_CONTENT,
        subjects.ACCESS_KEYS,
        *_ANSWERS,
    ),
    ("hocket.gateway.*", subjects.CANCEL_FILTER, "hocket.event.*.*.run-finished"),
)

SERVICES: Mapping[str, NatsPermissions] = {
    "coordinator": _service(
        "coordinator",
        (
            *_ALL_STREAMS,
            *_bucket(subjects.COORDINATORS),
            *_pulled(subjects.TASKS),
            f"{_API}.CONSUMER.DELETE.{subjects.TASKS}.*",
            *_removed(subjects.TASKS),
            *_pulled(subjects.TASK_BATCHES),
            f"{_API}.CONSUMER.DELETE.{subjects.TASK_BATCHES}.*",
            *_removed(subjects.TASK_BATCHES),
            *_pulled(subjects.GUEST_RESULTS),
            *_pulled(subjects.GUEST_LETTERS),
            subjects.LOG_FILTER,
            *_watched(subjects.LOG),
            f"{_API}.STREAM.MSG.GET.{subjects.LOG}",
            f"{_API}.STREAM.PURGE.{subjects.LOG}",
            subjects.STEP_FILTER,
            f"{_API}.STREAM.PURGE.{subjects.STEPS}",
            f"{_API}.CONSUMER.LIST.{subjects.STEPS}",
            f"{_API}.CONSUMER.CREATE.{subjects.STEPS}.>",
            f"{_API}.CONSUMER.DURABLE.CREATE.{subjects.STEPS}.*",
            subjects.EVENT_FILTER,
            subjects.DLQ_FILTER,
            subjects.CANCEL_FILTER,
            subjects.WORKER_ASKED,
            subjects.RUNS_EXPECTED,
            subjects.PROMPT_EXPECTED,
            subjects.JOURNAL_FILTER,
            *_JOURNALS_READ,
            *_ANSWERS,
        ),
        (
            subjects.WORKER_ANNOUNCED,
            f"{subjects.WORKER_ANNOUNCED}.*",
            f"{CONSUMERS_ASKED}.*",
            f"{subjects.JOURNAL_READ}.*",
            f"{subjects.JOURNAL_WRITE}.*",
        ),
    ),
    "gateway": _GATEWAY,
    "ledger": _service(
        "ledger",
        (
            *_ALL_STREAMS,
            *_pulled(subjects.USAGE),
            *_pulled(subjects.CALLS),
            *_pulled(subjects.EVENTS),
            f"{_API}.STREAM.PURGE.{subjects.JOURNALS}",
            subjects.DLQ_FILTER,
            *_ANSWERS,
        ),
        (subjects.LEDGER_SPENT, subjects.LEDGER_CONTENT, f"{subjects.WORKER_LINES}.*"),
    ),
    "admin": _service(
        "admin",
        (
            subjects.TASK_FILTER,
            subjects.BATCHED_TASK_FILTER,
            subjects.LOG_FILTER,
            subjects.STEP_FILTER,
            subjects.USAGE_SUBJECT,
            subjects.DLQ_FILTER,
            f"{_API}.STREAM.INFO.{subjects.DLQ}",
            f"{_API}.STREAM.MSG.GET.{subjects.DLQ}",
            f"{_API}.STREAM.MSG.DELETE.{subjects.DLQ}",
            *_JOURNALS_READ,
            *_watched(subjects.EVENTS),
            *_pulled_by(subjects.EVENTS, WEBHOOKS),
            f"{_API}.STREAM.INFO.{subjects.EVENTS}",
            f"{_API}.STREAM.LIST",
            f"{_API}.CONSUMER.LIST.*",
            f"{_API}.CONSUMER.PAUSE.{subjects.STEPS}.*",
            subjects.GATEWAY_MODELS,
            subjects.GATEWAY_EXPERIMENTS,
            subjects.GATEWAY_OUTCOME,
            subjects.GATEWAY_REPLICAS,
            subjects.GATEWAY_STATES,
            subjects.GATEWAY_CALL,
            subjects.GATEWAY_CANCEL,
            subjects.GATEWAY_CONTROL,
            subjects.WORKER_ASKED,
            *_ANSWERS,
        ),
        (
            subjects.EVENT_FILTER,
            subjects.ACCESS_KEYS,
            f"{EVENTS_ASKED}.*",
            subjects.WORKER_ANNOUNCED,
            f"{subjects.WORKER_ANNOUNCED}.*",
            subjects.WORKER_DESCRIBED,
            f"{subjects.WORKER_DESCRIBED}.*",
        ),
    ),
    "worker": _WORKER,
    "worker-gateway": _WORKER
    | _GATEWAY
    | NatsPermissions((), (f"{INBOX_OF_SERVICES}worker-gateway.>",)),
}
"""The permissions of each of our processes. `worker` is a worker of the platform itself, for all node
types; `worker-gateway` is a worker with a gateway inside."""

ACCESS = NatsPermissions(
    (
        "$SYS.REQ.SERVER.*.KICK",
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS._INBOX.>",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.SERVER.PING.RAFTZ",
        "$NRG.V.*",
    ),
    (f"{INBOX_OF_SERVICES}{ACCESS_USER}.>", "$SYS.REQ.USER.AUTH"),
)
"""The processes that decide which keys may connect, and that speed up elections when a server is
lost."""


def events_consumer(key_id: str) -> str:
    """Return the name of the consumer of EVENTS that belongs to a key."""
    return f"key-{key_id}"


def inbox_of_key(key_id: str) -> str:
    """Return the prefix of the inboxes of a key's bearer."""
    assert len(key_id) == ID_DIGITS, "ids are checked where they come in"
    return f"{INBOX_OF_KEYS}{key_id}"


def inbox_of_service(user: str) -> str:
    """Return the prefix of the inboxes of one of our processes."""
    return f"{INBOX_OF_SERVICES}{user}"


def of_bearer(bearer: Principal) -> NatsPermissions | None:
    """Return what the bearer of a key may do, or None if that is nothing."""
    publish = (*_of_tenant(bearer), *_of_worker(bearer))
    if not publish:
        return None
    told = (subjects.CANCEL_FILTER, subjects.WORKER_ASKED) if bearer.pools else ()
    return NatsPermissions(publish, (f"{inbox_of_key(bearer.key_id)}.>", *told))


def reads_events(bearer: Principal) -> bool:
    """Tell whether a bearer may read its tenant's events, which contain the outputs of runs."""
    return bearer.may(Permission.RUNS_READ) and bearer.may(Permission.CONTENT_READ)


def _of_tenant(bearer: Principal) -> Iterator[str]:
    if bearer.may(Permission.RUNS_SUBMIT):
        yield subjects.task("*" if bearer.tenant is None else bearer.tenant, "*")
    if reads_events(bearer):
        consumer = events_consumer(bearer.key_id)
        yield f"{EVENTS_ASKED}.{bearer.key_id}"
        yield f"{_API}.CONSUMER.MSG.NEXT.{subjects.EVENTS}.{consumer}"
        yield f"$JS.ACK.{subjects.EVENTS}.{consumer}.>"


def _of_worker(bearer: Principal) -> Iterator[str]:
    if not bearer.pools or not bearer.may(Permission.STEPS_RUN):
        return
    for pool in bearer.pools:
        for lane in subjects.LANES:
            consumer = subjects.step_consumer(subjects.pool_token(pool), lane)
            yield f"{_API}.CONSUMER.MSG.NEXT.{subjects.STEPS}.{consumer}"
            yield f"$JS.ACK.{subjects.STEPS}.{consumer}.>"
        token = subjects.pool_token(pool)
        for asked in (
            CONSUMERS_ASKED,
            subjects.JOURNAL_READ,
            subjects.JOURNAL_WRITE,
            subjects.WORKER_LINES,
        ):
            yield f"{asked}.{token}"
        yield f"{subjects.GUEST_ANNOUNCED}.{token}"
    for node_type in dict.fromkeys(subjects.type_of(pool) for pool in bearer.pools):
        yield f"{subjects.GUEST_DESCRIBED}.{subjects.pool_token(node_type)}"
    for key_id in (bearer.key_id, subjects.ANY_KEY):
        yield subjects.guest_result(key_id)
        yield subjects.guest_letter(key_id)
    yield from (subjects.GATEWAY_CALL, subjects.GATEWAY_CANCEL)
