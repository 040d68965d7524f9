"""The same id always means the same signal, also once its run has ended; and what is sent to a run is
in the audit log before."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.admin.context import Context
from hocket.admin.requests.errors import ApprovalDecided, RunNotOpen
from hocket.admin.requests.identity import Caller
from hocket.admin.runs import endpoints
from hocket.admin.runs.actions import checked_signal, send_signal
from hocket.kit.nats.errors import BusUnavailable
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
        "status": status,
        "accepted_at": NOW,
        "finished_at": None if status == "running" else NOW,
    }


def platform(found: dict[str, Any] | None, sent: list[str]) -> Context:
    async def fetchrow(*_: Any, **__: Any) -> dict[str, Any] | None:
        return found

    async def publish(*_: Any, msg_id: str, **__: Any) -> Any:
        sent.append(msg_id)
        return SimpleNamespace(seq=7)

    bus, pool = SimpleNamespace(publish=publish), SimpleNamespace(fetchrow=fetchrow)
    return cast(Context, SimpleNamespace(pool=pool, bus=bus, capabilities=None))


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
    context = platform(FOUND | {"is_exact": True}, [])
    monkeypatch.setattr(context.bus, "publish", publish)
    run_id = "r" + "0" * 24
    if action == "signal":
        sending = endpoints.signal_run(run_id, BODY, context, CALLER)
    else:
        sending = endpoints.cancel_run(run_id, context, CALLER)
    with pytest.raises(BusUnavailable):
        await sending
    assert done == [f"runs.{action}", "publish"]
