"""Reads a task message: who it is for, its input, its options. Pure; raises typed errors."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from typing import Any, NamedTuple

from hocket.coordinator.core.run.state.run import Run
from hocket.kit.nats import cloudevents
from hocket.schemas import ids, subjects
from hocket.schemas.checks.bounded import MAX_USD, MAX_USD_PLACES
from hocket.schemas.checks.plain_json import parse_json, shown_text
from hocket.schemas.errors import InvalidInput, MalformedTask, PayloadTooLarge
from hocket.schemas.labels import MAX_LABELS, given_labels
from hocket.schemas.messages import Priority, RunAccepted, RunOrigin
from hocket.schemas.pipeline.node_parts import MAX_WAIT_MS
from hocket.schemas.pipeline.plan import Plan, check_input
from hocket.schemas.repeats import MAX_STEP_INPUT_CHARS, MAX_STEP_KEY_CHARS, with_edit
from hocket.schemas.subjects import check_token

_SUBJECT_TOKENS = 4
_RUN_ID = re.compile(rf"r[0-9a-f]{{{ids.RUN_ID_HEX}}}")
MAX_KEY_CHARS = 512
MAX_HEADER_CHARS = 100
"""Of the name of an unknown header, what is compared with known ones."""
MAX_TRACEPARENT_CHARS = 256
MAX_MONEY_CHARS = 100
MAX_VERSION_DIGITS = 10
_CARRIED = {
    cloudevents.IDEMPOTENCY_KEY: MAX_KEY_CHARS,
    cloudevents.ID: MAX_KEY_CHARS,
    cloudevents.SOURCE: MAX_KEY_CHARS,
    cloudevents.MSG_ID: MAX_KEY_CHARS,
    cloudevents.TRACEPARENT: MAX_TRACEPARENT_CHARS,
    cloudevents.FROM_STEP: MAX_STEP_KEY_CHARS,
}
"""Headers whose text is stored with the run, and their maximum lengths."""
_WHOLE = re.compile(r"[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?", re.ASCII)
"""Stricter than Python's parser: no signs, spaces, underscores or digits of other scripts."""
_UNFIT = re.compile("[\x00-\x1f\x7f]")


class Task(NamedTuple):
    """A task as published, before its pipeline is known."""

    tenant: str
    pipeline: str
    run_id: str
    key: str | None
    """The idempotency key, if the publisher gave one."""
    input: dict[str, Any]
    version: int | None
    origin: RunOrigin | None
    """The run that this one repeats."""
    headers: Mapping[str, str]
    """In our spelling."""


def read_task(
    subject: str,
    body: bytes,
    headers: Mapping[str, str] | None,
    *,
    stream_seq: int,
    stream_time_ns: int,
    max_bytes: int,
) -> Task:
    """Return the task of a message, or raise what is wrong with it (MalformedTask, InvalidInput,
    PayloadTooLarge)."""
    tenant, pipeline = subject.split(".")[_SUBJECT_TOKENS - 2 : _SUBJECT_TOKENS]
    check_token("tenant", tenant)
    check_token("pipeline", pipeline)
    if len(body) > max_bytes:
        raise PayloadTooLarge(field="input", size_bytes=len(body), limit_bytes=max_bytes)
    given = _spelled(headers or {})
    _check_headers(given)
    identity = cloudevents.identity_of(given, stream_seq, stream_time_ns)
    return Task(
        tenant=tenant,
        pipeline=pipeline,
        run_id=ids.run_id(tenant, identity.key),
        key=identity.key if identity.user_given else None,
        input=_object(subject, body),
        version=_number(given, cloudevents.VERSION),
        origin=_origin(given),
        headers=given,
    )


def admit(
    task: Task,
    plan: Plan,
    version: int,
    *,
    now_ms: float,
    task_ack: str,
    checked_at_ms: float | None = None,
    origin: Run | None = None,
) -> RunAccepted:
    """Return the acceptance of a task by its pipeline, or raise InvalidInput. A run that repeats
    `origin` inherits its class, budget and labels; a retry also its input and a step's edited one."""
    retried = task.origin is not None and task.origin.operation == "retry"
    run_input = origin.input.value if origin is not None and retried else task.input
    check_input(plan, run_input)
    spec, given = plan.pipeline, task.headers
    priority = spec.priority if origin is None else origin.priority
    budget_usd = spec.budget_usd if origin is None else origin.budget_usd
    return RunAccepted(
        run_id=task.run_id,
        tenant=task.tenant,
        pipeline=task.pipeline,
        version=version,
        input=run_input,
        priority=_priority(given) or priority,
        deadline_at_ms=_deadline(given, now_ms) or now_ms + spec.slo_ms,
        budget_usd=_money(given) if cloudevents.BUDGET_USD in given else budget_usd,
        idempotency_key=task.key,
        task_ack=task_ack,
        checked_at_ms=checked_at_ms,
        reply_to=_inbox(given),
        progress=given.get(cloudevents.PROGRESS, "") in ("1", "true"),
        traceparent=given.get(cloudevents.TRACEPARENT),
        origin=_repeated(task.origin, origin),
        labels=_labels(given) or (None if origin is None else origin.labels),
    )


def reply_to(headers: Mapping[str, str]) -> str | None:
    """Return the inbox where the publisher of a message wants to be told of the run, if any, or raise
    InvalidInput."""
    return _inbox(cloudevents.spelled(headers))


def _inbox(headers: Mapping[str, str]) -> str | None:
    subject = headers.get(cloudevents.REPLY_TO)
    if subject is None:
        return None
    if not subjects.is_inbox(subject):
        raise InvalidInput(
            field=cloudevents.REPLY_TO,
            reason=f"`{shown_text(subject)}` is not an inbox",
            cure="Use a subject of your own below `_INBOX.`, such as one from a NATS client's "
            "`new_inbox()`.",
        )
    return subject


def _spelled(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers as we spell them, or raise InvalidInput: one that we do not know would have no
    effect, and of two values only one."""
    given = cloudevents.spelled(headers)
    if given is headers:
        return given
    for name, value in headers.items():
        if not cloudevents.is_ours(name):
            continue
        ours = cloudevents.spelling_of(name)
        if ours is None:
            near = _meant(name[:MAX_HEADER_CHARS])
            raise InvalidInput(
                field=shown_text(name),
                reason="a task has no such header",
                cure=f"Did you mean `{near}`?" if near else "Leave it out, or correct its name.",
            )
        if given[ours] != value:
            raise InvalidInput(
                field=ours,
                reason="it is given in two spellings, with different values",
                cure="Give it once.",
            )
    return given


def _meant(name: str) -> str | None:
    """Return the header that is most like an unknown one of ours, if one is."""
    rests = {one.partition("-")[2].lower(): one for one in cloudevents.OURS}
    near = get_close_matches(name.partition("-")[2].lower(), rests, 1)
    return rests[near[0]] if near else None


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raise InvalidInput, naming the header, if a header's text cannot be stored as it is."""
    if headers.get(cloudevents.IDEMPOTENCY_KEY) == "":
        raise InvalidInput(
            field=cloudevents.IDEMPOTENCY_KEY, reason="it has 0 characters", cure="Use at least 1."
        )
    for field, max_chars in _CARRIED.items():
        text = headers.get(field)
        if not text:
            continue
        if len(text) > max_chars:
            raise InvalidInput(
                field=field,
                reason=f"it has {len(text)} characters",
                cure=f"Use at most {max_chars}.",
            )
        if _UNFIT.search(text):
            raise InvalidInput(
                field=field,
                reason="it contains a control character",
                cure="Use text without U+0000 to U+001F and U+007F.",
            )
        if "\ufffd" in text:  # the replacement character for bytes that are not UTF-8
            raise InvalidInput(field=field, reason="it is not UTF-8", cure="Send UTF-8 text.")


def _object(subject: str, body: bytes) -> dict[str, Any]:
    try:
        value = parse_json(body)
    except InvalidInput as error:
        raise MalformedTask(
            subject=subject, reason=error.fields["reason"], field=error.fields["field"]
        ) from None
    if not isinstance(value, dict):
        raise MalformedTask(
            subject=subject, reason=f"it is a {type(value).__name__}", field="input"
        )
    return value


def _origin(headers: Mapping[str, str]) -> RunOrigin | None:
    run_id = headers.get(cloudevents.ORIGIN_RUN)
    if run_id is None:
        _check_no_repeat(headers)
        return None
    if not _RUN_ID.fullmatch(run_id):
        raise InvalidInput(
            field=cloudevents.ORIGIN_RUN,
            reason=f"`{shown_text(run_id)}` is not the id of a run",
            cure="Use an id that `hocket runs list` shows.",
        )
    operation = headers.get(cloudevents.OPERATION, "")
    if operation not in ("retry", "rerun"):
        raise InvalidInput(
            field=cloudevents.OPERATION,
            reason=f"`{shown_text(operation)}` is not something that can be done with a run",
            cure="Use `retry` or `rerun`.",
        )
    from_step = headers.get(cloudevents.FROM_STEP)
    if from_step is not None and len(from_step) > MAX_STEP_KEY_CHARS:
        raise InvalidInput(
            field=cloudevents.FROM_STEP,
            reason="it is not a step's name",
            cure="Name a step of the run.",
        )
    return RunOrigin(
        run_id=run_id,
        operation="retry" if operation == "retry" else "rerun",
        from_step=from_step,
        step_input=_step_input(headers),
    )


def _check_no_repeat(headers: Mapping[str, str]) -> None:
    """Raise InvalidInput if a task without an origin says how to repeat it: it would be a run of all
    steps instead."""
    for field in (cloudevents.OPERATION, cloudevents.FROM_STEP, cloudevents.STEP_INPUT):
        if field in headers:
            raise InvalidInput(
                field=cloudevents.ORIGIN_RUN,
                reason=f"it is missing, and `{field}` says how to repeat a run",
                cure=f"Name the run to repeat in `{cloudevents.ORIGIN_RUN}`, or leave out "
                f"`{field}`.",
            )


def _step_input(headers: Mapping[str, str]) -> dict[str, Any] | None:
    text = headers.get(cloudevents.STEP_INPUT)
    if text is None:
        return None
    value = parse_json(text, cloudevents.STEP_INPUT) if len(text) <= MAX_STEP_INPUT_CHARS else None
    if isinstance(value, dict):
        return value
    raise InvalidInput(
        field=cloudevents.STEP_INPUT,
        reason="it is not a JSON object" if value is not None else "it is too long",
        cure=f"Send one JSON object of at most {MAX_STEP_INPUT_CHARS} characters.",
    )


def _priority(headers: Mapping[str, str]) -> Priority | None:
    value = headers.get(cloudevents.PRIORITY)
    if value is None:
        return None
    try:
        return Priority(value)
    except ValueError:
        raise InvalidInput(
            field=cloudevents.PRIORITY,
            reason=f"`{shown_text(value)}` is not a class",
            cure=f"Use one of: {', '.join(Priority)}.",
        ) from None


def _deadline(headers: Mapping[str, str], now_ms: float) -> float | None:
    if (relative := headers.get(cloudevents.DEADLINE_MS)) is not None:
        return now_ms + _within(cloudevents.DEADLINE_MS, _float(cloudevents.DEADLINE_MS, relative))
    if (absolute := headers.get(cloudevents.DEADLINE)) is None:
        return None
    try:
        moment = datetime.fromisoformat(absolute)
        at_ms = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000
    except (ValueError, OverflowError):
        raise InvalidInput(
            field=cloudevents.DEADLINE,
            reason=f"`{shown_text(absolute)}` is not an RFC 3339 time",
            cure="Write it like 2030-01-31T12:00:00Z.",
        ) from None
    return now_ms + _within(cloudevents.DEADLINE, at_ms - now_ms)


def _within(field: str, left_ms: float) -> float:
    if not 0 < left_ms <= MAX_WAIT_MS:
        raise InvalidInput(
            field=field,
            reason=f"it leaves {left_ms:.0f} ms",
            cure=f"Leave more than 0 and at most {MAX_WAIT_MS} ms.",
        )
    return left_ms


def _money(headers: Mapping[str, str]) -> Decimal:
    value = headers[cloudevents.BUDGET_USD]
    try:
        readable = len(value) <= MAX_MONEY_CHARS and _NUMBER.fullmatch(value)
        amount = Decimal(value) if readable else Decimal(-1)
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise InvalidInput(
            field=cloudevents.BUDGET_USD,
            reason=f"`{shown_text(value)}` is not an amount",
            cure="Use US dollars, such as 0.05.",
        )
    places = -int(amount.as_tuple().exponent)  # a string only if the number is not finite
    if amount > MAX_USD or places > MAX_USD_PLACES:
        raise InvalidInput(
            field=cloudevents.BUDGET_USD,
            reason=f"`{shown_text(value)}` is out of range",
            cure=f"Use at most {MAX_USD} US dollars with at most {MAX_USD_PLACES} decimal places.",
        )
    return amount


def _repeated(asked: RunOrigin | None, origin: Run | None) -> RunOrigin | None:
    if asked is None or origin is None:
        return asked
    return with_edit(asked, origin.origin)


def _labels(headers: Mapping[str, str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for field in (cloudevents.EVENT_LABELS, cloudevents.LABELS):
        if (text := headers.get(field)) is not None:
            found |= given_labels(text, field)
    if len(found) > MAX_LABELS:
        raise InvalidInput(
            field=cloudevents.LABELS,
            reason=f"with those of `{cloudevents.EVENT_LABELS}` it has {len(found)} labels",
            cure=f"Use at most {MAX_LABELS}.",
        )
    return found or None


def _number(headers: Mapping[str, str], field: str) -> int | None:
    value = headers.get(field)
    if value is None:
        return None
    fits = _WHOLE.fullmatch(value) and len(value) <= MAX_VERSION_DIGITS
    if not fits or not 0 < int(value) < 2**31:
        raise InvalidInput(
            field=field,
            reason=f"`{shown_text(value)}` is not a version",
            cure="Use a whole number.",
        )
    return int(value)


def _float(field: str, value: str) -> float:
    if not _NUMBER.fullmatch(value):
        raise InvalidInput(
            field=field, reason=f"`{shown_text(value)}` is not a number", cure="Give milliseconds."
        )
    return float(value)
