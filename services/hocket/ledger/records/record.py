"""Converts usage records to rows of `hocket.usage`, openings of calls to `hocket.open_call`, and
refusals to `hocket.refused_call`. Pure, and strict about what the columns can hold."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import CallDecision, CallOpened, CallRefused, UsageRecord, WarmRecord

Row = tuple[Any, ...]

_OPENED, _REFUSED, _WARM = "opened", "refused", "warm"
_MARKS = tuple(b'"kind":"%b"' % kind.encode() for kind in (_OPENED, _REFUSED, _WARM))
"""Occur in Hocket's own encoding of the records of these kinds, and in others only if a label is called
`kind`. Most records have none of them, and are read only once."""
_WHO = frozenset(
    "call_id tenant pipeline version run_id node step attempt model backend replica".split()
)


MAX_RECORD_BYTES = 512 * 1024
"""The largest record accepted; a gateway's records have a few kilobytes."""
MAX_RECORDS = 1_024
"""The most records in one message; a gateway sends up to 128."""
SEPARATOR = b"\n"
"""Separates the records of one message; JSON escapes line breaks inside texts."""


class UsageMalformed(HocketError):
    """The usage record is not valid at `{field}`: {reason}. It is kept in the dead letters (`hocket dlq
    list`), and its cost is booked if it can be read. Fix its publisher."""

    code = "usage_malformed"
    error_class = ErrorClass.INVALID


class UsageRefused(HocketError):
    """Postgres refuses the usage record `{call_id}`: {reason}. It is kept in the dead letters
    (`hocket dlq list`), and its cost is booked without the parts that may be refused."""

    code = "usage_refused"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type, and how its value is read from a record."""

    name: str
    type: str
    value: Callable[[Any], Any]


COLUMNS: Sequence[Column] = (
    Column("call_id", "text", lambda r: r.call_id),
    Column("kind", "text", lambda r: r.kind),
    Column("tenant", "text", lambda r: r.attribution.tenant),
    Column("pipeline", "text", lambda r: r.attribution.pipeline),
    Column("version", "integer", lambda r: r.attribution.version),
    Column("run_id", "text", lambda r: r.attribution.run_id),
    Column("node", "text", lambda r: r.attribution.node),
    Column("step", "text", lambda r: r.attribution.step),
    Column("attempt", "integer", lambda r: r.attribution.attempt),
    Column("model", "text", lambda r: r.model),
    Column("backend", "text", lambda r: r.backend),
    Column("replica", "text", lambda r: r.replica),
    Column("status", "text", lambda r: r.status),
    Column("error_code", "text", lambda r: r.error_code),
    Column("input_tokens", "bigint", lambda r: r.input_tokens),
    Column("output_tokens", "bigint", lambda r: r.output_tokens),
    Column("cached_tokens", "bigint", lambda r: r.cached_tokens),
    Column("cache_write_tokens", "bigint", lambda r: r.cache_write_tokens),
    Column("input_usd_per_mtok", "numeric", lambda r: r.input_usd_per_mtok),
    Column("output_usd_per_mtok", "numeric", lambda r: r.output_usd_per_mtok),
    Column("cached_usd_per_mtok", "numeric", lambda r: r.cached_usd_per_mtok),
    Column("cache_write_usd_per_mtok", "numeric", lambda r: r.cache_write_usd_per_mtok),
    Column("request_usd", "numeric", lambda r: r.request_usd),
    Column("cost_usd", "numeric", lambda r: r.cost_usd),
    Column("started_at", "timestamptz", lambda r: moment(r.started_at_ms)),
    Column("latency_ms", "double precision", lambda r: r.latency_ms),
    Column("experiment", "text", lambda r: r.experiment),
    Column("arm", "text", lambda r: r.arm),
    Column("decision", "jsonb", lambda r: _json(r.decision)),
    Column("estimated", "boolean", lambda r: r.estimated),
    Column("labels", "jsonb", lambda r: _labels(r.attribution.labels)),
    Column("unpriced", "boolean", lambda r: r.unpriced),
)
BOOKED_COLUMNS = (*COLUMNS, Column("amended", "text", lambda r: None))
"""The columns of a booked call; `amended` is not part of the record itself."""
_IDENTITY = tuple(
    [column.name for column in COLUMNS].index(name)
    for name in ("tenant", "started_at", "backend", "replica")
)
"""The positions of the columns that identify a request: rows of one call id that differ in them are
different requests. Those with the same id and start time are distinguished by an id of their
own."""
_STARTED = [column.name for column in COLUMNS].index("started_at")
IDENTITY_NAMES = tuple(COLUMNS[place].name for place in _IDENTITY)
HASH_CHARS = 16


OPENED_COLUMNS: Sequence[Column] = (
    *(column for column in COLUMNS if column.name in _WHO),
    Column("gateway", "text", lambda r: r.gateway),
    Column("expected_usd", "numeric", lambda r: r.expected_usd),
    Column("started_at", "timestamptz", lambda r: moment(r.started_at_ms)),
    Column("deadline_at", "timestamptz", lambda r: moment(r.deadline_at_ms)),
)

REFUSED_COLUMNS: Sequence[Column] = (
    *(column for column in COLUMNS if column.name in _WHO - {"backend", "replica"}),
    Column("error_code", "text", lambda r: r.error_code),
    Column("reason", "text", lambda r: r.reason),
    Column("gateway", "text", lambda r: r.gateway),
    Column("refused_at", "timestamptz", lambda r: moment(r.refused_at_ms)),
)


WARM_COLUMNS: Sequence[Column] = (
    Column("record_id", "text", lambda r: r.call_id),
    Column("backend", "text", lambda r: r.backend),
    Column("replica", "text", lambda r: r.replica),
    Column("model", "text", lambda r: r.model),
    Column("reason", "text", lambda r: r.reason),
    Column("from_at", "timestamptz", lambda r: moment(r.from_at_ms)),
    Column("to_at", "timestamptz", lambda r: moment(r.to_at_ms)),
    Column("starting_ms", "double precision", lambda r: r.starting_ms),
    Column("busy_ms", "double precision", lambda r: r.busy_ms),
    Column("idle_ms", "double precision", lambda r: r.idle_ms),
    Column("provisioned_ms", "double precision", lambda r: r.provisioned_ms),
    Column("usd_per_hour", "numeric", lambda r: r.usd_per_hour),
    Column("cost_usd", "numeric", lambda r: r.cost_usd),
    Column("wasted_usd", "numeric", lambda r: r.wasted_usd),
)


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a row: of OPENED_COLUMNS if the call was `opened`, of REFUSED_COLUMNS if it was
    `refused`, of WARM_COLUMNS for the time of a replica (`warm`), and otherwise of
    BOOKED_COLUMNS."""

    call_id: str
    row: Row
    opened: bool = False
    refused: bool = False
    warm: bool = False
    usage: UsageRecord | None = None
    amended: tuple[str, ...] = ()
    """The fields that could not be stored as received."""

    @property
    def identity(self) -> tuple[Any, ...]:
        """What distinguishes a request from another one under the same call id."""
        return tuple(self.row[place] for place in _IDENTITY)

    @property
    def started_at(self) -> datetime:
        """When a booked call began."""
        began: datetime = self.row[_STARTED]
        return began

    def under_own_id(self) -> "Record":
        """Return a booked call under an id derived from its identity, because another request has
        its call id."""
        told = "|".join(map(str, self.identity)).encode("utf-8", "replace")
        call_id = f"{self.call_id}#{hashlib.sha256(told).hexdigest()[:HASH_CHARS]}"
        return replace(self, call_id=call_id, row=(call_id, *self.row[1:]))


def booked(usage: UsageRecord, amended: tuple[str, ...] = ()) -> Record:
    """Return the record of a call that was made; raise ValueError,
    OverflowError or OSError for an invalid time."""
    row = (*(one.value(usage) for one in COLUMNS), ", ".join(amended) or None)
    return Record(usage.call_id, row, usage=usage, amended=amended)


def record_of(payload: bytes) -> Record:
    """Return an encoded record of USAGE or CALLS as a Record; raise UsageMalformed."""
    if len(payload) > MAX_RECORD_BYTES:
        raise UsageMalformed(field="body", reason=f"it has more than {MAX_RECORD_BYTES} bytes")
    kind = _kind_of(payload)
    if kind == _WARM:
        return _warm(payload)
    opened, refused = kind == _OPENED, kind == _REFUSED
    try:
        if opened:
            model: CallOpened | CallRefused | UsageRecord = CallOpened.model_validate_json(payload)
        elif refused:
            model = CallRefused.model_validate_json(payload)
        else:
            model = UsageRecord.model_validate_json(payload)
    except ValidationError as error:
        fault = first_fault(error)
        raise UsageMalformed(field=fault.field("body"), reason=fault.reason) from error
    columns = OPENED_COLUMNS if opened else REFUSED_COLUMNS
    try:
        if isinstance(model, UsageRecord):
            return booked(model)
        return Record(model.call_id, tuple(one.value(model) for one in columns), opened, refused)
    except (ValueError, OverflowError, OSError) as error:
        where = "refused_at_ms" if refused else "started_at_ms"
        raise UsageMalformed(field=where, reason=str(error)) from error


def _kind_of(payload: bytes) -> object:
    """Return the kind of a record other than a booked call; None for a booked call, and for a body
    that is no record at all."""
    if not any(mark in payload for mark in _MARKS):
        return None
    try:
        found = from_json(payload)
    except ValueError:
        return None
    return found.get("kind") if isinstance(found, dict) else None


def _warm(payload: bytes) -> Record:
    try:
        model = WarmRecord.model_validate_json(payload)
        row = tuple(one.value(model) for one in WARM_COLUMNS)
    except ValidationError as error:
        fault = first_fault(error)
        raise UsageMalformed(field=fault.field("body"), reason=fault.reason) from error
    except (ValueError, OverflowError, OSError) as error:
        raise UsageMalformed(field="from_at_ms", reason=str(error)) from error
    return Record(model.call_id, row, warm=True)


def moment(at_ms: float) -> datetime:
    """Return a time in milliseconds since the Unix epoch as a datetime.

    Times outside the years that a datetime can hold, from a gateway with a wrong clock, become the
    first or last possible one.
    """
    return _EPOCH + timedelta(milliseconds=min(max(at_ms, _FIRST_MS), _LAST_MS))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = -62_000_000_000_000.0
_LAST_MS = 253_000_000_000_000.0


def _labels(labels: dict[str, str] | None) -> str | None:
    return to_json(labels).decode() if labels else None


def _json(decision: CallDecision | None) -> str | None:
    return None if decision is None else decision.model_dump_json(exclude_defaults=True)
