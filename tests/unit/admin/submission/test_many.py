"""A submission of many tasks lets other requests have their turn."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.admin.context import Context
from hocket.admin.requests.identity import Caller
from hocket.admin.submission import many
from hocket.schemas.administration.bulk import BulkReceipt, BulkTask
from hocket.schemas.rest import RunSubmission


@pytest.mark.parametrize(("check_ms", "turns"), [(0.0, 0), (3.0, 30), (100.0, 60)])
async def test_others_have_their_turn_by_the_time_that_the_checks_take(
    monkeypatch: pytest.MonkeyPatch, check_ms: float, turns: int
) -> None:
    now_ms, yields = 0.0, 0

    async def made(*_: Any) -> BulkTask:
        nonlocal now_ms
        now_ms += check_ms
        return BulkTask(run_id="r")

    async def sleep(seconds: float) -> None:
        nonlocal yields
        assert seconds == 0
        yields += 1

    async def receipt(_context: Context, found: Any, _run_ids: Any) -> BulkReceipt:
        return BulkReceipt(accepted=len(found), refused=0, runs=())

    monkeypatch.setattr(many, "clock", SimpleNamespace(monotonic_ms=lambda: now_ms))
    monkeypatch.setattr(many, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(many, "_made", made)
    monkeypatch.setattr(many, "_receipt", receipt)
    context = cast(Context, SimpleNamespace(disk=SimpleNamespace(check=lambda: None)))
    caller = cast(Caller, SimpleNamespace(tenant="default"))
    tasks = [RunSubmission(pipeline="greet")] * 61
    assert (await many.submit_all(context, caller, tasks)).accepted == 61
    assert yields == turns
