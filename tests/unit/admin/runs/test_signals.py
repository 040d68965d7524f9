"""The same id always means the same signal, also once its run has ended; and what is sent to a run is
in the audit log before."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.admin.context import Context
from hocket.admin.pipelines.awaited_names import awaited_by
from hocket.admin.requests.errors import ApprovalDecided, RunNotOpen, SignalUnknown
from hocket.admin.requests.identity import Caller
from hocket.admin.runs import endpoints
from hocket.admin.runs.actions import NAMES_TOLD, checked_signal, send_signal
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas.errors import PipelineUnknown
from hocket.schemas.pipeline.plan import compile_pipeline
from hocket.schemas.rest import SignalBody

NOW = datetime(2030, 1, 1, tzinfo=UTC)
CALLER = cast(Caller, SimpleNamespace(tenant="acme", name="ada"))
BODY = SignalBody(name="ok", payload={"approved": True}, signal_id="yes-1")
FOUND = {
    "unread": 0,
    "unread_bytes": 0,
    "is_known": False,
    "is_awaited": False,
    "approvals": 0,
    "approval": None,
    "is_exact": False,
    "over": None,
    "was_asked": False,
}


def run(status: str) -> Any:
    return {
        "run_id": "r" + "0" * 24,
        "partition": 3,
        "pipeline": "pay",
        "version": 1,
        "status": status,
        "accepted_at": NOW,
        "finished_at": None if status == "running" else NOW,
    }


def platform(
    found: dict[str, Any] | None,
    sent: list[str],
    nodes: dict[str, Any] | None = None,
    waiting: tuple[str, ...] = (),
) -> Context:
    """A platform whose run has a pipeline of these nodes, or one that is deleted."""

    async def fetchrow(*_: Any, **__: Any) -> dict[str, Any] | None:
        return found

    async def fetch(*_: Any, **__: Any) -> list[dict[str, Any]]:
        return [{"name": name, "every": len(waiting)} for name in waiting[:NAMES_TOLD]]

    async def awaited(*_: Any) -> Any:
        if nodes is None:
            raise PipelineUnknown(pipeline="pay")
        return awaited_by(compile_pipeline({"pipeline": "pay", "nodes": nodes}))

    async def publish(*_: Any, msg_id: str, **__: Any) -> Any:
        sent.append(msg_id)
        return SimpleNamespace(seq=7)

    pool = SimpleNamespace(fetchrow=fetchrow, fetch=fetch)
    bus, plans = SimpleNamespace(publish=publish), SimpleNamespace(awaited_by=awaited)
    return cast(Context, SimpleNamespace(pool=pool, bus=bus, plans=plans, capabilities=None))


@pytest.mark.parametrize("status", ["running", "succeeded", "failed"])
@pytest.mark.parametrize("more", [{}, {"over": "succeeded", "was_asked": True}])
async def test_a_signal_that_the_run_has_is_answered_as_before(
    status: str, more: dict[str, Any]
) -> None:
    sent: list[str] = []
    context = platform(FOUND | {"is_known": True} | more, sent)
    for _ in range(2):
        signal = await checked_signal(context, CALLER, run(status), BODY)
        assert (signal.name, signal.signal_id, signal.by) == ("ok", "yes-1", "ada")
        answer = await send_signal(context, run(status), signal)
        assert (answer.run_id, answer.log_seq) == (signal.run_id, 7)
    assert len(set(sent)) == 1, "so that the log drops the second one"


@pytest.mark.parametrize("found", [FOUND, FOUND | {"is_exact": True}, None])
async def test_a_new_signal_for_a_run_that_has_ended_is_refused(
    found: dict[str, Any] | None,
) -> None:
    sent: list[str] = []
    with pytest.raises(RunNotOpen):
        await checked_signal(platform(found, sent), CALLER, run("succeeded"), BODY)
    assert sent == []


async def test_a_late_answer_is_told_that_the_approval_is_over() -> None:
    over = platform(FOUND | {"over": "succeeded"}, [])
    with pytest.raises(ApprovalDecided):
        await checked_signal(over, CALLER, run("succeeded"), BODY)


LOOK = {"type": "approval", "prompt": "?"}
HANDLER = {"type": "python", "handler": "m:f"}
CLOSED: dict[str, Any] = {
    "look": LOOK,
    "paid": {"type": "signal", "signal": "payment"},
    "checks": {"type": "graph", "map": {"over": "[1, 2]"}, "nodes": {"ok": LOOK}},
    "fastest": {
        "type": "race",
        "branches": {"yes": LOOK, "go": {"type": "signal", "signal": "go"}},
    },
}


@pytest.mark.parametrize(
    "name", ["nosuch", "paid", "checks", "checks/look", "checks/ok", "look[0]", "fastest~go"]
)
async def test_a_name_that_nothing_can_wait_for_is_refused_with_what_waits(name: str) -> None:
    context = platform(FOUND, [], CLOSED, waiting=("look", "payment"))
    with pytest.raises(SignalUnknown) as refused:
        await checked_signal(context, CALLER, run("running"), SignalBody(name=name))
    told = str(refused.value)
    assert f"waits for `{name}`, now or later" in told
    assert "Waiting now: `look`, `payment`." in told
    assert "`checks[N]/ok`, `fastest~yes`, `go`, `look`, `ok`, `payment`, `yes`" in told


@pytest.mark.parametrize(
    "name", ["look", "payment", "go", "ok", "checks[1]/ok", "checks[7]/ok", "yes", "fastest~yes"]
)
async def test_a_name_that_something_may_wait_for_later_is_sent(name: str) -> None:
    context = platform(FOUND, [], CLOSED)
    sent = await checked_signal(context, CALLER, run("running"), SignalBody(name=name))
    assert sent.name == name


async def test_of_many_names_some_are_told_and_how_many_there_are() -> None:
    many = {f"n{i}": LOOK for i in range(50)}
    context = platform(FOUND, [], many, waiting=tuple(f"w{i:02}" for i in range(22)))
    with pytest.raises(SignalUnknown) as refused:
        await checked_signal(context, CALLER, run("running"), SignalBody(name="nosuch"))
    told = str(refused.value)
    assert "waits for: `n0`, `n1`, `n2`, " in told
    assert "`n18`, `n19` and 30 more. Waiting now: `w00`, " in told
    assert "`w19` and 2 more." in told


@pytest.mark.parametrize(
    "more",
    [
        {"work": HANDLER},
        {"work": {"type": "crm.lookup"}},
        {"plan": {"type": "planning", "model": "m", "prompt": "p", "emit": {"types": ["signal"]}}},
    ],
    ids=["a handler", "a custom type", "a planner"],
)
async def test_what_runs_code_or_plans_steps_may_wait_for_any_name(more: dict[str, Any]) -> None:
    for nodes in (CLOSED | more, None):
        context = platform(FOUND, [], nodes)
        sent = await checked_signal(context, CALLER, run("running"), SignalBody(name="nosuch"))
        assert sent.name == "nosuch"


async def test_what_a_step_waits_for_is_sent_whatever_its_pipeline_tells() -> None:
    context = platform(FOUND | {"is_awaited": True, "is_exact": True}, [], CLOSED)
    sent = await checked_signal(context, CALLER, run("running"), SignalBody(name="nosuch"))
    assert sent.name == "nosuch"


@pytest.mark.parametrize("action", ["signal", "cancel"])
async def test_what_is_not_stored_was_recorded_before(
    monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    done: list[str] = []

    async def found_run(*_: Any, **__: Any) -> Any:
        return run("running")

    async def record(_context: Any, _caller: Any, name: str, *_: Any) -> None:
        done.append(name)

    async def publish(*_: Any, **__: Any) -> None:
        done.append("publish")
        raise BusUnavailable(reason="it is away")

    monkeypatch.setattr(endpoints, "found_run", found_run)
    monkeypatch.setattr(endpoints, "record", record)
    context = platform(FOUND | {"is_exact": True, "is_awaited": True}, [])
    monkeypatch.setattr(context.bus, "publish", publish)
    run_id = "r" + "0" * 24
    if action == "signal":
        sending = endpoints.signal_run(run_id, BODY, context, CALLER)
    else:
        sending = endpoints.cancel_run(run_id, context, CALLER)
    with pytest.raises(BusUnavailable):
        await sending
    assert done == [f"runs.{action}", "publish"]
