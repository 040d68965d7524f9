"""What is kept per pipeline, per call or per request has a bound, and what goes is the oldest."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
from fastapi import FastAPI

from hocket.admin.requests.body_limit import BodiesFull, BodyLimit
from hocket.admin.requests.errors import add_error_handlers
from hocket.admin.requests.identity import TENANT
from hocket.admin.requests.request_limit import RequestLimit
from hocket.coordinator.storage.pipelines import duration_stats as durations_module
from hocket.coordinator.storage.pipelines import pipeline_catalog as catalog_module
from hocket.coordinator.storage.pipelines.duration_stats import Durations
from hocket.coordinator.storage.pipelines.pipeline_catalog import Catalog
from hocket.coordinator.storage.pipelines.release import Release
from hocket.kit.postgres.errors import is_row_fault, may_be_row_fault

SPEC = '{"pipeline": "p", "nodes": {"a": {"type": "python", "handler": "hocket.workers.builtin:echo"}}}'


class Store:
    """Every pipeline is there, and nothing is known of its durations."""

    def __init__(self) -> None:
        self.kept: list[tuple[Any, ...]] = []

    async def spec(self, tenant: str, pipeline: str, version: int) -> str:
        return SPEC

    async def release(self, tenant: str, pipeline: str) -> Release:
        return Release(newest=1)

    async def durations(self, tenant: str, pipeline: str) -> dict[str, Any]:
        return {}

    async def keep_durations(self, rows: list[tuple[Any, ...]]) -> None:
        self.kept += rows


async def test_the_newest_versions_that_are_believed_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog_module, "MAX_PLANS", 3)
    store: Any = Store()
    catalog = Catalog(store, Durations(store))
    for number in range(10):
        await catalog.entry_for("acme", f"p{number}", None, "r1")
    assert len(catalog._releases) == len(catalog._entries) == 3
    assert ("acme", "p9") in catalog._releases


async def test_the_estimates_in_memory_are_bounded_and_what_was_forgotten_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durations_module, "MAX_PIPELINES", 3)
    store: Any = Store()
    durations = Durations(store)
    for number in range(10):
        durations.measured("acme", f"p{number}", "a", 5.0)
        durations.gave_up("acme", f"p{number}")
        durations.measured("acme", "often", "a", 5.0)
    assert len(durations._measured) == len(durations._given_up) == 3
    assert durations.of("acme", "often")["a"].weight > 1
    assert durations.of("acme", "p0") == {}
    await durations.keep()
    assert {row[1] for row in store.kept} == {"often", "p8", "p9"}


async def test_requests_beyond_the_limit_are_told_to_come_back_but_health_is_answered() -> None:
    release, sent = asyncio.Event(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()

    async def send(message: Any) -> None:
        sent.append(message)

    limited = RequestLimit(app, limit=2)
    scope: Any = {"type": "http", "path": "/v1/runs", "method": "GET", "headers": [], TENANT: "one"}
    receive: Any = SimpleNamespace
    other: Any = {**scope, TENANT: "other"}
    waiting = [asyncio.create_task(limited(one, receive, send)) for one in (scope, other)]
    await asyncio.sleep(0)

    await limited(scope, receive, send)
    assert sent[0]["status"] == 503
    assert dict(sent[0]["headers"])[b"retry-after"] == b"1"
    assert b"api_full" in sent[1]["body"]

    health = asyncio.create_task(limited({**scope, "path": "/v1/health"}, receive, send))
    await asyncio.sleep(0)
    assert not health.done()
    release.set()
    await asyncio.gather(*waiting, health)
    sent.clear()
    await limited(scope, receive, send)
    assert sent == []


async def test_a_tenant_that_waits_for_many_runs_leaves_half_of_the_places_to_others() -> None:
    release, sent = asyncio.Event(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()

    async def send(message: Any) -> None:
        sent.append(message)

    limited = RequestLimit(app, limit=4)
    greedy: Any = {"type": "http", "path": "/v1/runs", "headers": [], TENANT: "greedy"}
    other: Any = {**greedy, TENANT: "other"}
    receive: Any = SimpleNamespace
    asked = [asyncio.create_task(limited(greedy, receive, send)) for _ in range(3)]
    await asyncio.sleep(0)
    asked.append(asyncio.create_task(limited(other, receive, send)))
    await asyncio.sleep(0)

    assert [one.done() for one in asked] == [False, False, True, False]
    assert sent[0]["status"] == 429
    assert b"tenant_api_full" in sent[1]["body"]
    release.set()
    await asyncio.gather(*asked)


async def test_bodies_that_come_slowly_hold_so_much_together() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass

    limited = BodyLimit(app, limit_bytes=10, together_bytes=15)
    scope: Any = {"type": "http", "headers": [], TENANT: "one"}
    rest = asyncio.Event()

    async def slowly() -> Any:
        if part := parts.pop():
            return {"type": "http.request", "body": part, "more_body": True}
        await rest.wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None: ...

    parts = [b"", b"8 bytes."]
    first = asyncio.create_task(limited(scope, slowly, send))
    await asyncio.sleep(0)
    parts = [b"8 bytes."]
    with pytest.raises(BodiesFull):
        await limited(scope, slowly, send)
    rest.set()
    await first
    parts = [b"", b"8 bytes."]
    await limited(scope, slowly, send)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.DiskFullError("could not extend file: No space left on device"),
        asyncpg.TooManyConnectionsError("sorry, too many clients already"),
        asyncpg.exceptions.OutOfMemoryError("out of memory"),
    ],
)
async def test_a_database_that_is_short_of_something_is_away_and_says_of_what(
    error: asyncpg.PostgresError,
) -> None:
    app, sent = FastAPI(), []
    add_error_handlers(app)

    @app.get("/asked")
    async def asked() -> None:
        raise error

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope: Any = {"type": "http", "path": "/asked", "method": "GET", "headers": []}
    await app({**scope, "query_string": b"", "root_path": ""}, receive, send)
    assert sent[0]["status"] == 503
    assert b"retry-after" in dict(sent[0]["headers"])
    body = json.loads(sent[1]["body"])["error"]
    assert body["code"] == "database_unavailable"
    assert str(error) in body["message"]


def test_no_memory_for_a_statement_is_no_fault_of_the_rows_in_it() -> None:
    encoding = asyncpg.DataError("invalid input for query argument $33")
    assert is_row_fault(encoding)
    assert may_be_row_fault(encoding)
    encoding.__cause__ = MemoryError()
    for error in (encoding, MemoryError()):
        assert not is_row_fault(error)
        assert not may_be_row_fault(error)
