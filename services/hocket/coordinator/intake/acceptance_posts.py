"""Posts the acceptance of a task, or its refusal, to the log of its run's partition.

Acceptances of one turn of the event loop share a message, by partition, because a message costs the
log and its reader several times as much as one more acceptance inside it. A large acceptance goes
alone, and so does one that nests so deep that it could not be read inside another message. So does
one whose pipeline has `flow`: runs of one message are accepted at the same moment, and those of a key
start in the order of acceptance. One that goes alone has its own message id, so that the stream drops
a repeat; a repeated task is recognized by its run in any case.

If a message cannot be posted, its tasks stay in TASKS, which delivers them again.
"""

import asyncio

import structlog

from hocket.coordinator.intake.admission_queue import Candidate
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.schemas.errors import ErrorInfo, HocketError, PayloadTooLarge
from hocket.schemas.messages import RunAccepted, RunsAccepted, encoded_without_defaults
from hocket.schemas.structs.fields import is_shallow

MAX_ACCEPTANCES = 32
"""The most acceptances in one message: the partition applies them without doing anything else in
between."""
MAX_BYTES = 64 * 1024
ADDED_BYTES = 4 * 1024
"""What may be added to an acceptance when it is posted: headers, and the error of a refusal."""

log = structlog.get_logger(__name__)


class AcceptanceTooLarge(PayloadTooLarge):
    """The task has {size_bytes} bytes in the log of its run, which writes numbers out (`1e15` becomes
    `1000000000000000.0`); the limit is {limit_bytes}. Keep large values where the steps can read them
    (a database, a file server), and pass their address."""


class AcceptancePosts:
    """Posts the decisions of intake."""

    def __init__(self, posts: LogPosts) -> None:
        self._posts = posts
        self._waiting: dict[int, list[tuple[str, bytes]]] = {}
        """By partition: the message ids and bodies to be posted at the end of this turn."""
        self._scheduled = False
        self._checked: tuple[RunAccepted, bytes] | None = None
        """The task that was checked last, and its body: most are posted at once, as they are."""

    def check(self, accepted: RunAccepted) -> None:
        """Raise AcceptanceTooLarge if a task could not be posted, neither accepted nor refused: it
        must not wait for that."""
        body = encoded_without_defaults(accepted)
        self._checked = accepted, body
        size_bytes = len(body)
        limit_bytes = self._posts.max_bytes - ADDED_BYTES
        if size_bytes > limit_bytes:
            raise AcceptanceTooLarge(field="input", size_bytes=size_bytes, limit_bytes=limit_bytes)

    def post(self, candidate: Candidate, refused: ErrorInfo | None) -> None:
        """Post a task that is accepted or, with an error, refused."""
        event = candidate.accepted
        if refused is not None:
            event = event.model_copy(update={"rejected": refused})
        body = self._body_of(event)
        partition = candidate.partition
        is_ordered = bool(candidate.plan.flow)
        if is_ordered or len(body) > MAX_BYTES // MAX_ACCEPTANCES or not is_shallow(body):
            self._posts.post(partition, RunAccepted.kind, body, msg_id=candidate.msg_id)
            return
        waiting = self._waiting.setdefault(partition, [])
        waiting.append((candidate.msg_id, body))
        if len(waiting) >= MAX_ACCEPTANCES:
            self._send(partition, self._waiting.pop(partition))
        elif not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn_ended)

    def _body_of(self, event: RunAccepted) -> bytes:
        checked, self._checked = self._checked, None
        if checked is not None and checked[0] is event:
            return checked[1]
        return encoded_without_defaults(event)

    def _turn_ended(self) -> None:
        self._scheduled = False
        waiting, self._waiting = self._waiting, {}
        for partition, acceptances in waiting.items():
            try:
                self._send(partition, acceptances)
            except HocketError as error:  # NATS is closed, and this process ends
                log.warning("acceptances_not_posted", tasks=len(acceptances), reason=str(error))

    def _send(self, partition: int, acceptances: list[tuple[str, bytes]]) -> None:
        if len(acceptances) == 1:
            msg_id, body = acceptances[0]
            self._posts.post(partition, RunAccepted.kind, body, msg_id=msg_id)
        else:
            bodies = b",".join(body for _, body in acceptances)
            self._posts.post(partition, RunsAccepted.kind, b'{"runs":[%b]}' % bodies)
