"""Whatever input a run has, it can be repeated: the limit on tasks is for what a caller sends."""

import json
import threading
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic_core import to_json

from hocket.admin.context import Context
from hocket.admin.requests.identity import Caller
from hocket.admin.runs import repeats
from hocket.admin.runs.repeats import OriginTooLarge
from hocket.admin.submission.bare_input import without_defaults
from hocket.coordinator.intake.acceptance_posts import AcceptancePosts
from hocket.kit.nats.bus import RESERVE_BYTES
from hocket.schemas.checks.bounded import MAX_KEY_CHARS, MAX_SUBJECT_CHARS
from hocket.schemas.labels import MAX_LABELS
from hocket.schemas.messages import Priority, RunAccepted, RunOrigin
from hocket.schemas.pipeline.plan import Plan, compile_pipeline, complete_input
from hocket.schemas.repeats import MAX_STEP_INPUT_CHARS, MAX_STEP_KEY_CHARS, with_edit
from hocket.schemas.rest import RerunBody, RetryBody, RunSubmission

MAX_PAYLOAD_BYTES = 1_048_576
MAX_TASK_BYTES = 1_500
LIMIT_BYTES = MAX_PAYLOAD_BYTES - 2 * RESERVE_BYTES
ORIGIN_ID, RUN_ID = "r" + "0" * 24, "r" + "1" * 24
STYLE = "s" * 1_000
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"text": {}, "style": {"default": STYLE}}}
EDIT = RunOrigin(
    run_id=ORIGIN_ID,
    operation="rerun",
    from_step="s" * MAX_STEP_KEY_CHARS,
    step_input={"q": "y" * (MAX_STEP_INPUT_CHARS - len('{"q":""}'))},
)
LABELS = json.dumps(
    {f"label-{i}": "\N{SNOWMAN}" * 256 for i in range(MAX_LABELS)}, ensure_ascii=False
)


def plan_of(schema: dict[str, Any]) -> Plan:
    node = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {}}
    return compile_pipeline(
        {"pipeline": "p", "slo_ms": 1_000, "input": schema, "nodes": {"a": node}}
    )


async def sent_by(
    monkeypatch: pytest.MonkeyPatch,
    body: RetryBody,
    run_input: dict[str, Any] | str,
    *,
    labels: str | None = None,
    origin: RunOrigin | None = None,
    schema: dict[str, Any] = SCHEMA,
) -> tuple[RunSubmission, bytes | None]:
    """Repeat a failed run, with these labels and itself a repeat of an `origin`; return its task, and
    what is sent instead of the task's input."""
    sent: list[tuple[RunSubmission, bytes | None]] = []

    async def submit(_context: Any, _caller: Any, task: Any, **more: Any) -> None:
        sent.append((task, more["body"]))

    async def plan(*_: Any) -> tuple[int, Plan]:
        return 1, plan_of(schema)

    monkeypatch.setattr(repeats, "submit", submit)
    bus = SimpleNamespace(nc=SimpleNamespace(max_payload=MAX_PAYLOAD_BYTES))
    plans = SimpleNamespace(plan_of=plan)
    context = cast(
        Context,
        SimpleNamespace(pool=None, bus=bus, plans=plans, max_task_bytes=MAX_TASK_BYTES),
    )
    caller = cast(Caller, SimpleNamespace(tenant="acme"))
    run: Any = {
        "run_id": ORIGIN_ID,
        "pipeline": "p",
        "version": 1,
        "status": "failed",
        "input": run_input if isinstance(run_input, str) else json.dumps(run_input),
        "accepted_at": datetime(2030, 1, 1, tzinfo=UTC),
        "labels": labels,
        "origin": None if origin is None else origin.model_dump_json(),
    }
    if isinstance(body, RerunBody):
        await repeats.rerun(context, caller, run, body, traceparent=None)
    else:
        await repeats.retry(context, caller, run, body, traceparent=None)
    return sent[0]


def json_of(size_bytes: int) -> dict[str, Any]:
    """Return an input of this size as JSON, with its defaults."""
    given = {"text": "", "style": STYLE}
    return given | {"text": "t" * (size_bytes - len(to_json(given)))}


async def test_a_retry_sends_no_input_and_is_checked_with_its_origins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def strip(*_: Any) -> None:
        raise AssertionError("nothing is gained by it")

    monkeypatch.setattr(repeats, "without_defaults", strip)
    stored = json_of(LIMIT_BYTES - 1_000)
    task, body = await sent_by(monkeypatch, RetryBody(), stored)
    assert (task.input, body) == (stored, b"{}")


@pytest.mark.parametrize(
    ("inherited", "size_bytes"),
    [
        ({}, 0),
        ({"origin": EDIT}, MAX_STEP_INPUT_CHARS),
        ({"labels": LABELS}, MAX_LABELS * 256 * len("\N{SNOWMAN}".encode())),
    ],
)
async def test_a_retry_that_no_message_could_hold_is_refused(
    monkeypatch: pytest.MonkeyPatch, inherited: dict[str, Any], size_bytes: int
) -> None:
    most = LIMIT_BYTES - size_bytes
    with pytest.raises(OriginTooLarge):
        await sent_by(monkeypatch, RetryBody(), json_of(most), **inherited)
    _, body = await sent_by(monkeypatch, RetryBody(), json_of(most - 2_000), **inherited)
    assert body == b"{}"


async def test_what_is_accepted_is_accepted_by_intake_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def largest() -> dict[str, Any]:
        fits, too_large = 0, LIMIT_BYTES
        while too_large - fits > 1:
            tried = (fits + too_large) // 2
            try:
                await sent_by(monkeypatch, RetryBody(), json_of(tried), origin=EDIT, labels=LABELS)
                fits = tried
            except OriginTooLarge:
                too_large = tried
        return json_of(fits)

    accepted = RunAccepted(
        run_id=RUN_ID,
        tenant="t" * 64,
        pipeline="p" * 200,
        version=2**31 - 1,
        input=await largest(),
        priority=Priority.INTERACTIVE,
        deadline_at_ms=1_893_456_000_000.123,
        budget_usd=Decimal("123456.123456789"),
        idempotency_key="k" * MAX_KEY_CHARS,
        task_ack="a" * MAX_SUBJECT_CHARS,
        checked_at_ms=1_893_456_000_000.123,
        reply_to="_INBOX." + "i" * (MAX_SUBJECT_CHARS - len("_INBOX.")),
        traceparent="00-" + "a" * 52,
        origin=with_edit(RunOrigin(run_id=ORIGIN_ID, operation="retry"), EDIT),
        labels=json.loads(LABELS),
    )
    logs: Any = SimpleNamespace(max_bytes=MAX_PAYLOAD_BYTES - RESERVE_BYTES)
    AcceptancePosts(logs).check(accepted)


@pytest.mark.parametrize(
    ("text", "advice"),
    [("t", f"hocket runs rerun {ORIGIN_ID}"), ("t" * MAX_TASK_BYTES, "Start a new run")],
)
async def test_a_rerun_is_advised_only_if_it_would_be_accepted(
    monkeypatch: pytest.MonkeyPatch, text: str, advice: str
) -> None:
    large = {"type": "object", "properties": {"d": {"default": "d" * LIMIT_BYTES}}}
    stored = complete_input(plan_of(large), {"text": text})
    with pytest.raises(OriginTooLarge, match=advice) as caught:
        await sent_by(monkeypatch, RetryBody(), stored, schema=large)
    assert ("rerun" in str(caught.value)) == ("rerun" in advice)


async def test_the_size_is_that_in_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'{{"n": [{", ".join(["1" + "0" * 22 + ".0"] * 45_000)}]}}'  # as Postgres writes 1e22
    assert len(text) > MAX_PAYLOAD_BYTES
    _, body = await sent_by(monkeypatch, RetryBody(), text)
    assert body == b"{}"


async def test_a_rerun_sends_its_origins_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = json_of(MAX_TASK_BYTES)
    task, body = await sent_by(monkeypatch, RerunBody(), stored)
    assert (task.input, body) == (stored, to_json(stored))


async def test_a_rerun_leaves_the_defaults_out_where_it_would_be_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []

    def noted(*given: Any) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return without_defaults(*given)

    monkeypatch.setattr(repeats, "without_defaults", noted)
    stored = json_of(MAX_TASK_BYTES + 1)
    task, body = await sent_by(monkeypatch, RerunBody(), stored)
    assert (task.input, body) == ({"text": stored["text"]}, None)
    assert threading.main_thread() not in threads, "other requests go on meanwhile"


async def test_an_input_that_a_caller_gives_is_sent_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = json_of(MAX_TASK_BYTES + 1)
    task, body = await sent_by(monkeypatch, RerunBody(input=given), {"text": "u"})
    assert (task.input, body) == (given, None)
