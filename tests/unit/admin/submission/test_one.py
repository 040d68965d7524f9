"""A task whose key names a run is answered with that run, whatever became of its pipeline."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.admin.context import Context
from hocket.admin.requests.identity import Caller
from hocket.admin.runs import reads
from hocket.admin.submission import one
from hocket.schemas.errors import (
    HocketError,
    IdempotencyKeyReused,
    PayloadTooLarge,
    PipelineArchived,
)
from hocket.schemas.rest import RunReceipt, RunResult, RunSubmission

END = datetime(2030, 1, 1, tzinfo=UTC)
RUN = {"pipeline": "greet", "status": "running", "finished_at": None}
ENDED = RUN | {"status": "succeeded", "finished_at": END}
ARCHIVED = PipelineArchived(tenant="acme", pipeline="greet")
LIMIT_BYTES = 100


class Platform:
    """Stands for what a submission uses, and notes what it asks: `run` is what the keys name, `fault`
    what the check of a task raises, and `appears` the run that the key names once a caller listens."""

    def __init__(self, run: dict[str, Any] | None = None, fault: HocketError | None = None) -> None:
        self.run = run
        self.fault = fault
        self.asked: list[str] = []
        self.appears: dict[str, Any] | None = None
        self.sent: list[bytes] = []

    async def find(self, *_: Any) -> dict[str, Any] | None:
        self.asked.append("key")
        return self.run

    async def check(self, *_: Any) -> None:
        self.asked.append("task")
        if self.fault is not None:
            raise self.fault

    async def publish(self, _subject: str, payload: bytes, **_: Any) -> None:
        self.sent.append(payload)

    async def submit(self, task: RunSubmission, **more: Any) -> RunReceipt | RunResult:
        context = SimpleNamespace(
            pool=None,
            plans=SimpleNamespace(check=self.check),
            known_runs=SimpleNamespace(find=self.find),
            bus=SimpleNamespace(publish=self.publish),
            disk=SimpleNamespace(check=lambda: None),
            recent=SimpleNamespace(add=lambda *_: None),
            max_task_bytes=LIMIT_BYTES,
            capabilities=None,
        )
        caller = cast(Caller, SimpleNamespace(tenant="acme"))
        return await one.submit(cast(Context, context), caller, task, traceparent=None, **more)

    @asynccontextmanager
    async def end_of(self, *_: Any) -> AsyncIterator[tuple[str, asyncio.Future[Any]]]:
        self.asked.append("end")
        self.run = self.appears or self.run
        yield "_INBOX.x", asyncio.get_running_loop().create_future()


def keyed(**more: Any) -> RunSubmission:
    return RunSubmission(pipeline="greet", idempotency_key="k", **more)


async def test_a_known_key_names_its_run_though_the_task_would_be_refused_now() -> None:
    platform = Platform(RUN, ARCHIVED)

    answer = await platform.submit(keyed(input={"text": "x" * LIMIT_BYTES}))

    assert isinstance(answer, RunReceipt)
    assert (answer.status, answer.known) == ("running", True)
    assert (platform.asked, platform.sent) == (["key"], [])


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform whose callers can wait, and get the row of a run that has ended."""
    platform = Platform()

    async def row(*_: Any) -> str:
        return "the row"

    monkeypatch.setattr(one, "_end_of", platform.end_of)
    monkeypatch.setattr(reads, "run_row", row)
    monkeypatch.setattr(one, "_end", lambda found: found)
    return platform


async def test_who_waits_with_a_known_key_gets_the_end_of_its_run(listening: Platform) -> None:
    listening.run, listening.fault = ENDED, ARCHIVED

    answer: object = await listening.submit(keyed(wait_ms=1_000))

    assert answer == "the row"
    assert (listening.asked, listening.sent) == (["key"], [])


@pytest.mark.parametrize("before", [None, RUN])
async def test_a_run_that_ends_while_its_caller_begins_to_listen_is_found(
    listening: Platform, before: dict[str, Any] | None
) -> None:
    listening.run, listening.appears = before, ENDED

    answer: object = await listening.submit(keyed(wait_ms=1_000))

    checked = ["task"] if before is None else []
    assert (answer, listening.sent) == ("the row", [])
    assert listening.asked == ["key", *checked, "end", "key"], "and checked once at most"


async def test_a_task_whose_caller_waits_is_checked_once(
    listening: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: Any) -> None: ...

    monkeypatch.setattr(one, "_within", nothing)
    monkeypatch.setattr(reads, "find_run", nothing)
    answer = await listening.submit(keyed(wait_ms=1_000))
    assert isinstance(answer, RunReceipt)
    assert (answer.status, answer.known) == ("accepted", False)
    assert (listening.asked, listening.sent) == (["key", "task", "end", "key"], [b"{}"])


@pytest.mark.parametrize("key", [None, "k"])
async def test_nobody_listens_for_the_end_of_a_task_that_is_refused(
    listening: Platform, key: str | None
) -> None:
    listening.fault = ARCHIVED
    with pytest.raises(PipelineArchived):
        await listening.submit(RunSubmission(pipeline="greet", idempotency_key=key, wait_ms=1_000))
    assert "end" not in listening.asked


async def test_a_known_key_of_another_pipeline_is_refused_before_the_task_is_checked() -> None:
    with pytest.raises(IdempotencyKeyReused):
        await Platform(RUN | {"pipeline": "other"}, ARCHIVED).submit(keyed())


@pytest.mark.parametrize("run", [None, RUN | {"status": "rejected", "finished_at": END}])
async def test_a_key_that_names_no_run_does_not_spare_the_check(run: dict[str, Any] | None) -> None:
    refused = Platform(run, ARCHIVED)
    with pytest.raises(PipelineArchived):
        await refused.submit(keyed())
    assert (refused.asked, refused.sent) == (["key", "task"], [])

    accepted = Platform(run)
    await accepted.submit(keyed())
    assert (accepted.asked, accepted.sent) == (["key", "task"], [b"{}"])


async def test_a_task_without_a_key_is_checked_once_and_no_run_is_looked_up() -> None:
    platform = Platform()
    await platform.submit(RunSubmission(pipeline="greet"))
    assert (platform.asked, platform.sent) == (["task"], [b"{}"])


async def test_the_limit_counts_for_what_is_sent() -> None:
    platform, large = Platform(), keyed(input={"text": "x" * LIMIT_BYTES})
    with pytest.raises(PayloadTooLarge):
        await platform.submit(large)
    await platform.submit(large, body=b"{}")
    assert platform.sent == [b"{}"]
