"""Several steps of a node type in one message, so that a few short steps share what a message costs
NATS and a worker.

The steps that go out in one turn of the event loop, to one lane of one pool, go together: at most
as many as `bundle_sizes.py` allows, and with an expected duration of at most MAX_WORK_MS in total,
because a worker may run them one after the other. A step with effects outside, one that calls
models, and one that is handed out again go alone.

A bundle is the message of its first step, with the others in `more`. With the first step's result,
its worker reports that it took them all. A worker that does not know bundles does not report this:
then the others, which it has not seen, are handed out again, each alone. This may come late: if the
worker that took them died, and one that does not know bundles got the message after it, the first
step has a second result. Steps that a worker does not finish are handed out again, too, by
`AttemptReturned`. If nobody here hears of a bundle's first step any more, because it was cancelled
or has another owner, the open steps are handed out again after FORGOTTEN_MS: at worst once too
often.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from pydantic_core import to_json

from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.dispatch.bundle_sizes import BundleSizes
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.clock import monotonic_ms

MAX_WORK_MS = 20.0
MAX_BYTES = 64 * 1024
FORGOTTEN_MS = 5_000.0
CALL_MODELS = frozenset({"llm", "agent", "planning"})
"""Steps of these types go alone: their calls are identified by attempt and delivery."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Member:
    command: Dispatch
    body: bytes


@dataclass(slots=True)
class _Open:
    """The steps of one turn that go to one subject."""

    members: list[_Member] = field(default_factory=list)
    work_ms: float = 0.0
    size_bytes: int = 0


@dataclass(slots=True, eq=False)
class _Sent:
    """A bundle that is out: its first step, in whose partition its results are received, and the
    steps that have not ended."""

    first: str
    partition: int
    left: dict[str, Dispatch]
    forgotten_at_ms: float | None = None
    """Since when nobody here hears of its first step any more."""


class Bundles:
    """Sends steps to the stream, bundled where possible. `failed` is called for a step that cannot
    go out, `again` for one that has to go alone."""

    def __init__(
        self,
        bus: Bus,
        sizes: BundleSizes,
        *,
        failed: Callable[[Dispatch, Exception], None],
        again: Callable[[Dispatch], None],
    ) -> None:
        self._bus = bus
        self._sizes = sizes
        self._failed = failed
        self._again = again
        self._open: dict[str, _Open] = {}
        self._sent: dict[str, _Sent] = {}
        """By the attempts of each bundle that have not ended, and by its first one as long as there
        are any."""
        self._gone: set[str] = set()
        """Attempts that ended or were withdrawn while steps wait to be sent. After the log lost its end,
        a step may end in the turn in which it is handed out: its result was there before it."""
        self._forgotten: list[_Sent] = []
        self._scheduled = False

    def takes(self, command: Dispatch) -> bool:
        """Tell whether a step may be bundled."""
        return (
            command.expected_ms <= MAX_WORK_MS / 2
            and not command.again
            and not command.is_external
            and command.type not in CALL_MODELS
            and self._sizes.of(command.pool) > 1
        )

    def add(self, subject: str, command: Dispatch, body: bytes) -> None:
        """Send a step at the end of this turn of the event loop, or earlier."""
        found = self._open.get(subject)
        if found is None:
            found = self._open[subject] = _Open()
        elif (
            len(found.members) >= self._sizes.of(command.pool)
            or found.work_ms + command.expected_ms > MAX_WORK_MS
            or found.size_bytes + len(body) > MAX_BYTES
        ):
            self._send(subject, found)
            found = self._open[subject] = _Open()
        self._gone.discard(command.attempt_id)
        found.members.append(_Member(command, body))
        found.work_ms += command.expected_ms
        found.size_bytes += len(body)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn_ended)

    def send(self) -> None:
        """Send what is waiting, now."""
        waiting, self._open = self._open, {}
        for subject, found in waiting.items():
            self._send(subject, found)
        self._gone.clear()

    def ended(self, attempt_id: str, took: int) -> None:
        """Note that an attempt has ended; `took` is how many steps its worker took from its message."""
        bundle = self._sent.get(attempt_id)
        if bundle is None:
            self._note_gone(attempt_id)
            return
        bundle.left.pop(attempt_id, None)
        if attempt_id != bundle.first:
            del self._sent[attempt_id]
        if not bundle.left:
            self._sent.pop(bundle.first, None)
        elif attempt_id == bundle.first and not took:
            self._take_apart(bundle)

    def lost(self, partition: int) -> None:
        """Forget the steps of a partition: it has another owner."""
        for attempt_id, bundle in list(self._sent.items()):
            command = bundle.left.get(attempt_id)
            owner = bundle.partition if command is None else command.run.owner.partition
            if owner == partition:
                self.withdrawn(attempt_id)

    def withdrawn(self, attempt_id: str) -> None:
        """Stop waiting for the end of an attempt."""
        bundle = self._sent.pop(attempt_id, None)
        if bundle is None:
            self._note_gone(attempt_id)
            return
        bundle.left.pop(attempt_id, None)
        if not bundle.left:
            self._sent.pop(bundle.first, None)
        elif attempt_id == bundle.first:
            bundle.forgotten_at_ms = monotonic_ms()
            self._forgotten.append(bundle)

    def tick(self) -> None:
        """Hand out the open steps of bundles whose first step nobody hears of; to be called
        regularly."""
        due_ms = monotonic_ms() - FORGOTTEN_MS
        while self._forgotten and (self._forgotten[0].forgotten_at_ms or 0.0) <= due_ms:
            self._take_apart(self._forgotten.pop(0))

    def _note_gone(self, attempt_id: str) -> None:
        if self._open:
            self._gone.add(attempt_id)

    def _take_apart(self, bundle: _Sent) -> None:
        """Hand out each unfinished step of a bundle alone."""
        left, bundle.left = bundle.left, {}
        self._sent.pop(bundle.first, None)
        for attempt_id in left:
            self._sent.pop(attempt_id, None)
        for attempt_id, command in left.items():
            log.info("step_sent_alone", attempt_id=attempt_id, bundle=bundle.first)
            self._again(command)

    def _turn_ended(self) -> None:
        self._scheduled = False
        try:
            self.send()
        except BusUnavailable as error:  # the process ends; the next owner hands out what is open
            log.info("steps_not_sent", reason=str(error))

    def _send(self, subject: str, found: _Open) -> None:
        members = [one for one in found.members if one.command.attempt_id not in self._gone]
        if not members:
            return
        try:
            self._post(subject, members)
        except BusUnavailable:
            raise
        except Exception as error:  # whatever it is, nothing comes back to these steps later
            if len(members) == 1:
                self._failed(members[0].command, error)
            else:
                log.exception("bundle_not_sent", subject=subject, steps=len(members))
                for member in members:
                    self._send(subject, _Open([member]))

    def _post(self, subject: str, members: list[_Member]) -> None:
        first = members[0].command
        traceparent = first.run.traceparent
        headers = {"traceparent": traceparent} if traceparent else None
        if len(members) == 1:
            self._bus.publish_durable(
                subject, members[0].body, msg_id=first.msg_id, headers=headers
            )
            return
        more = b",".join(_traced(member) for member in members[1:])
        body = b'%b,"more":[%b]}' % (members[0].body[:-1], more)
        msg_id = f"{first.msg_id}:{len(members)}"
        self._bus.publish_durable(subject, body, msg_id=msg_id, headers=headers)
        left = {one.command.attempt_id: one.command for one in members}
        bundle = _Sent(first.attempt_id, first.run.owner.partition, left)
        self._sent.update(dict.fromkeys(bundle.left, bundle))


def _traced(member: _Member) -> bytes:
    """Return a step with what would be in the header of its own message."""
    traceparent = member.command.run.traceparent
    if not traceparent:
        return member.body
    return b'{"traceparent":%b,%b' % (to_json(traceparent), member.body[1:])
