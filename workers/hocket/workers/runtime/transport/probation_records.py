"""Records what became of steps on probation, for the worker that gets them next. They are kept in a
small stream that `kit/nats/streams.py` makes.

Nothing is written about a step that ends within its first deliveries. An entry is removed when its step
ends, or after a day. An entry that cannot be read or written counts as none; MAX_DELIVERIES bounds such
a step. So does an entry from anybody but a holder of the step: entries are sealed with the step's
capability.
"""

import hashlib
import hmac
from base64 import b64decode
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import structlog

from hocket.kit.nats.bus import Bus
from hocket.schemas import ids, subjects
from hocket.schemas.errors import HocketError
from hocket.schemas.structs.steps import RequestedStep

MAX_COUNT = 1_000
API_TIMEOUT_MS = 5_000.0
MAX_KINDS = 1_000
"""The most kinds of steps remembered as ending their workers."""
_KIND = "kind-"
_SEAL_BYTES = 16

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Record:
    """How often a step was started on probation without finishing, and how often its worker died while
    nothing else ran beside it."""

    begun: int = 0
    deaths_alone: int = 0

    def after_death(self, *, alone: bool) -> "Record":
        """Return the record that applies if the worker dies while the step runs."""
        return Record(self.begun + 1, self.deaths_alone + alone)


NOTHING = Record()


class ProbationRecords:
    """Reads and writes the records of steps."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    @property
    def are_kept(self) -> bool:
        """Whether this worker may keep records: a worker with its own key may not."""
        return not self._bus.identity.is_guest

    async def read(self, step: RequestedStep) -> Record:
        """Return a step's record; an empty one if there is none, or it cannot be read."""
        if not self.are_kept:
            return NOTHING
        try:
            answer = await self._api("STREAM.MSG.GET", {"last_by_subj": _subject(step)})
            return _record_in(answer, step)
        except Exception as error:  # including entries by others and unknown server answers
            log.warning(
                "probation_not_read", step=step.step, run_id=step.run_id, reason=repr(error)
            )
            return NOTHING

    async def write(self, step: RequestedStep, record: Record) -> None:
        """Replace a step's record."""
        if not self.are_kept:
            return
        try:
            if record == NOTHING:
                await self._api("STREAM.PURGE", {"filter": _subject(step)})
                return
            body = f"{record.begun} {record.deaths_alone}"
            sealed = f"{body} {_seal(step, body)}".encode()
            await self._bus.publish(_subject(step), sealed, timeout_ms=API_TIMEOUT_MS)
        except HocketError as error:
            log.warning(
                "probation_not_written", step=step.step, run_id=step.run_id, reason=repr(error)
            )

    async def killers(self) -> set[str]:
        """Return the kinds of steps known to end their workers."""
        if not self.are_kept:
            return set()
        try:
            request = {"subjects_filter": subjects.PROBATION_FILTER}
            answer = await self._api("STREAM.INFO", request)
            found = (answer.get("state") or {}).get("subjects") or {}
            kinds = (subject.rpartition(".")[2] for subject in found)
            return set(islice((kind for kind in kinds if kind.startswith(_KIND)), MAX_KINDS))
        except Exception as error:  # including unknown server answers
            log.warning("probation_kinds_not_read", reason=repr(error))
            return set()

    async def note_kind(self, kind: str, *, ends_worker: bool) -> None:
        """Note that steps of a kind end their worker, or remove that note."""
        if not self.are_kept:
            return
        try:
            if ends_worker:
                await self._bus.publish(subjects.probation(kind), b"", timeout_ms=API_TIMEOUT_MS)
            else:
                await self._api("STREAM.PURGE", {"filter": subjects.probation(kind)})
        except HocketError as error:
            log.warning("probation_kind_not_noted", kind=kind, reason=repr(error))

    async def _api(self, call: str, request: dict[str, Any]) -> Any:
        subject = f"{call}.{subjects.PROBATION}"
        return await self._bus.api(subject, request, timeout_ms=API_TIMEOUT_MS)


def kind_of(step: RequestedStep) -> str:
    """Return a step's kind: its tenant, and the function of a `python` node or otherwise the node
    type."""
    function = step.config.get("handler") if step.type == "python" else None
    return _kind(step.tenant, step.type, function if isinstance(function, str) else "")


@lru_cache(maxsize=4_096)
def _kind(tenant: str, node_type: str, function: str) -> str:
    name = f"{tenant} {node_type} {function}"
    return _KIND + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:32]


def _record_in(answer: Any, step: RequestedStep) -> Record:
    """Return the record of a step in the server's answer; raise ValueError if its seal is not valid."""
    message = answer.get("message")
    if message is None:
        return NOTHING
    body, _, seal = b64decode(message.get("data", ""))[:100].decode().rpartition(" ")
    if not hmac.compare_digest(seal.encode(), _seal(step, body).encode()):
        raise ValueError("its seal is not that of the step's holder")
    begun, deaths_alone = map(int, body.split())
    if not 0 <= deaths_alone <= begun <= MAX_COUNT:
        raise ValueError("no record of a step")
    return Record(begun, deaths_alone)


def _seal(step: RequestedStep, body: str) -> str:
    key = hashlib.blake2b((step.capability or "").encode()).digest()
    told = f"{_subject(step)} {body}".encode()
    return hashlib.blake2b(told, key=key, digest_size=_SEAL_BYTES).hexdigest()


def _subject(step: RequestedStep) -> str:
    """Return where the record of a step's message is kept; a step dispatched again has a new record."""
    attempt_id = ids.attempt_id(step.run_id, step.step, step.attempt)
    sent = ids.capable(ids.dispatch_id(attempt_id, step.dispatched_at_ms), step.capability)
    return subjects.probation(hashlib.sha256(sent.encode()).hexdigest()[:32])
