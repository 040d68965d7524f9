"""A task as delivered by TASKS: its message, how often it was delivered, and its content or what is
wrong with it."""

from typing import NamedTuple

import structlog

from hocket.coordinator.intake.task_message import Task, read_task
from hocket.kit.nats.cloudevents import STORED_AT, STREAM_PLACE
from hocket.kit.nats.consumers.delivery import parse_ack_subject, stored_at_ms_of
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.process.limits.memory import end_if_short
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import RunAccepted

_ACK_TOKENS = 9
_MAX_NS_DIGITS = 20

log = structlog.get_logger(__name__)


class TaskNotTaken(HocketError):
    """Intake failed internally on this task: {reason}. It is kept as a dead letter: redrive it
    after an update, `hocket dlq redrive`."""

    code = "task_not_taken"


class Arrival(NamedTuple):
    """One delivery of a task."""

    message: RawMessage
    delivered: int
    task: Task | HocketError
    """The task, or what is wrong with it."""

    @property
    def stored_at_ms(self) -> float:
        """When the stream stored the task, before it was restored from a backup if it was: epoch ms."""
        if isinstance(self.task, Task):
            given = self.task.headers.get(STORED_AT, "")
            if given.isascii() and given.isdigit() and len(given) < _MAX_NS_DIGITS:
                return int(given) // 1_000 / 1_000
        return stored_at_ms_of(self.message.reply)

    @property
    def is_doubtful(self) -> bool:
        """Whether its run may already exist: it was delivered before, it comes from a backup, or
        another task may have the same key."""
        if self.delivered > 1:
            return True
        task = self.task
        return isinstance(task, Task) and (task.key is not None or STREAM_PLACE in task.headers)

    def is_other_than(self, waiting: RunAccepted | None) -> bool:
        """Whether it is another task than the one that `waiting` accepts, and not its redelivery."""
        if waiting is None or waiting.task_ack is None:
            return False
        mine, its = parse_ack_subject(self.message.reply), parse_ack_subject(waiting.task_ack)
        return (mine.stream_seq, mine.stored_ns) != (its.stream_seq, its.stored_ns)


def read_arrival(message: RawMessage, *, max_bytes: int) -> Arrival:
    """Return the task that a message of TASKS holds; faults of the message are returned, not raised."""
    tokens = message.reply.split(".")
    offset = 4 if len(tokens) == _ACK_TOKENS else 6
    delivered, seq, time_ns = (
        int(tokens[offset]),
        int(tokens[offset + 1]),
        int(tokens[offset + 3]),
    )
    task: Task | HocketError
    try:
        task = read_task(
            message.subject,
            message.data,
            message.headers,
            stream_seq=seq,
            stream_time_ns=time_ns,
            max_bytes=max_bytes,
        )
    except HocketError as fault:
        task = fault
    except Exception as error:
        end_if_short(error)
        log.exception("task_unreadable", subject=message.subject)
        task = TaskNotTaken(reason=f"{type(error).__name__}: {error}")
    return Arrival(message, delivered, task)
