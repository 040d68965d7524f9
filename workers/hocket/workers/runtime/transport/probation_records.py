"""What became of steps on probation, for the worker that has them next: a small stream.

Nothing is written of a step that ends in its first deliveries. An entry goes when its step ends, or
after MAX_AGE_S. What cannot be read or written counts as nothing: MAX_DELIVERIES bounds such a step.
"""

import hashlib
from base64 import b64decode
from dataclasses import dataclass
from typing import Any

import structlog

from hocket.kit.nats.bus import Bus
from hocket.schemas import ids, subjects
from hocket.schemas.errors import HocketError
from hocket.schemas.structs.steps import RequestedStep

MAX_AGE_S = 24 * 3_600
MAX_BYTES = 8 * 1024 * 1024
"""The oldest entries go first. One takes about 100 bytes."""
MAX_COUNT = 1_000
API_TIMEOUT_MS = 5_000.0
_NS = 1_000_000_000
_NO_STREAM = 10_059
_EXISTS = 10_058

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Record:
    """How often a step was begun on probation without an end, and how often its worker ended while
    nothing else ran beside it."""

    begun: int = 0
    deaths_alone: int = 0

    def after_death(self, *, alone: bool) -> "Record":
        """Return what holds where the worker ends while the step runs."""
        return Record(self.begun + 1, self.deaths_alone + alone)


NOTHING = Record()


class ProbationRecords:
    """Reads and writes the records of steps."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def read(self, step: RequestedStep) -> Record:
        """Return what is known of a step."""
        try:
            answer = await self._api("STREAM.MSG.GET", {"last_by_subj": _subject(step)})
            if answer.get("error", {}).get("err_code") == _NO_STREAM:
                await self._make_stream()
            return _record_in(answer)
        except Exception as error:  # also what others wrote there, or a server says otherwise
            log.warning(
                "probation_not_read", step=step.step, run_id=step.run_id, reason=repr(error)
            )
            return NOTHING

    async def write(self, step: RequestedStep, record: Record) -> None:
        """Replace what is known of a step."""
        try:
            if record == NOTHING:
                await self._api("STREAM.PURGE", {"filter": _subject(step)})
                return
            body = f"{record.begun} {record.deaths_alone}".encode()
            await self._bus.publish(_subject(step), body, timeout_ms=API_TIMEOUT_MS)
        except HocketError as error:
            log.warning(
                "probation_not_written", step=step.step, run_id=step.run_id, reason=repr(error)
            )

    async def _make_stream(self) -> None:
        config = {
            "name": subjects.PROBATION,
            "subjects": [subjects.PROBATION_FILTER],
            "max_msgs_per_subject": 1,
            "max_bytes": MAX_BYTES,
            "max_age": MAX_AGE_S * _NS,
            "storage": "file",
            "discard": "old",
        }
        error = (await self._api("STREAM.CREATE", config)).get("error", {})
        if error and error.get("err_code") != _EXISTS:
            log.warning("probation_stream_refused", reason=error.get("description"))

    async def _api(self, call: str, request: dict[str, Any]) -> Any:
        subject = f"{call}.{subjects.PROBATION}"
        return await self._bus.api(subject, request, timeout_ms=API_TIMEOUT_MS)


def _record_in(answer: Any) -> Record:
    """Return the record in the server's answer; raise ValueError where it is none of ours."""
    message = answer.get("message")
    if message is None:
        return NOTHING
    begun, deaths_alone = map(int, b64decode(message.get("data", ""))[:100].split())
    if not 0 <= deaths_alone <= begun <= MAX_COUNT:
        raise ValueError("no record of a step")
    return Record(begun, deaths_alone)


def _subject(step: RequestedStep) -> str:
    """Return where the record of a step's message is kept; a step that is sent anew begins anew."""
    attempt_id = ids.attempt_id(step.run_id, step.step, step.attempt)
    sent = ids.capable(ids.dispatch_id(attempt_id, step.dispatched_at_ms), step.capability)
    return subjects.probation(hashlib.sha256(sent.encode()).hexdigest()[:32])
