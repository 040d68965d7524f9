"""Values of parameters are loaded once for all that wait for them, each within its own time."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.workers.nodes import parameter_values
from hocket.workers.nodes.parameter_values import ParameterValues
from hocket.workers.sql.errors import SqlTimeout


async def test_who_has_more_time_does_not_fail_by_the_time_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_ms: list[float] = []
    over = asyncio.Event()

    async def queried(*_args: Any, timeout_ms: float, **_options: Any) -> Any:
        given_ms.append(timeout_ms)
        if timeout_ms < 1_000:
            await over.wait()
            raise SqlTimeout(database="d", timeout_ms=round(timeout_ms))
        return SimpleNamespace(columns=("v",), truncated=False, rows=(("Oslo",),))

    monkeypatch.setattr(parameter_values, "run_query", queried)
    values = ParameterValues(cast(Any, SimpleNamespace(get=lambda *_named: None)))
    hasty = asyncio.create_task(values.load("a", "d", "SELECT", timeout_ms=10))
    others = [
        asyncio.create_task(values.load("b", "d", "SELECT", timeout_ms=60_000)) for _ in range(3)
    ]
    await asyncio.sleep(0)
    over.set()
    with pytest.raises(SqlTimeout):
        await hasty
    assert await asyncio.gather(*others) == [["Oslo"]] * 3
    assert len(given_ms) == 2
