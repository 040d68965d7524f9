"""Who is told the output of a run: not the holder of a key that may not see content."""

import asyncio
import json
from typing import Any

import pytest

from hocket.coordinator.core.run.state.messages import end_message
from hocket.coordinator.core.run.state.run import Owner, Run
from hocket.coordinator.core.run.state.values import json_of
from hocket.coordinator.partition.runs.caller_replies import MAX_ASKING, CallerReplies
from hocket.schemas.access.keys import Principal
from hocket.schemas.access.roles import permissions_of
from hocket.schemas.errors import PayloadTooLarge
from hocket.schemas.messages import Priority, RunFinished

ID = "0123456789ab"
INBOX = f"_INBOX.key.{ID}.x"


class Bus:
    """Notes what is sent where."""

    def __init__(self, limit: int = 10_000) -> None:
        self.sent: list[tuple[str, Any]] = []
        self._limit = limit

    def publish_nowait(self, subject: str, payload: bytes) -> None:
        if len(payload) > self._limit:
            raise PayloadTooLarge(size_bytes=len(payload), limit_bytes=self._limit)
        self.sent.append((subject, json.loads(payload)["output"]))


class Book:
    """Knows the keys of the test, of which `new` ones only after it was asked to look."""

    def __init__(self, known: Principal | None = None, new: Principal | None = None) -> None:
        self._known, self._new = known, new
        self.looks = 0

    def of(self, key_id: str) -> Principal | None:
        return self._known if self._known is not None and self._known.key_id == key_id else None

    async def looked(self) -> None:
        self.looks += 1
        self._known = self._new


def key(role: str, tenant: str | None = "t") -> Principal:
    return Principal(ID, "n", tenant, role, permissions_of(role, None))


def ended(output: object = 5) -> Run:
    run = Run(
        Owner(0, 1, None), None, run_id="r1", tenant="t", pipeline="p", version=1,
        priority=Priority.STANDARD, given=json_of({}), accepted_at_ms=1.0, deadline_at_ms=9.0,
    )  # fmt: skip
    run.status, run.output, run.finished_at_ms = "succeeded", json_of(output), 5.0
    return run


def send(bus: Bus, book: Book | None, run: Run, inbox: str = INBOX) -> CallerReplies:
    replies = CallerReplies(bus, book)  # type: ignore[arg-type]
    replies.send(inbox, run, end_message(run))
    return replies


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (key("developer"), 5),
        (key("admin", None), 5),
        (key("operator"), None),
        (key("developer", "rival"), None),
    ],
)
async def test_the_output_goes_to_keys_of_the_tenant_that_may_see_content(
    known: Principal, told: object
) -> None:
    bus = Bus()
    send(bus, Book(known), ended())
    assert bus.sent == [(INBOX, told)]


@pytest.mark.parametrize("book", [None, Book(key("operator"))])
async def test_inboxes_of_processes_and_of_a_platform_without_keys_get_everything(
    book: Book | None,
) -> None:
    bus = Bus()
    send(bus, book, ended(), "_INBOX.service.admin.x" if book else INBOX)
    assert [output for _, output in bus.sent] == [5]


@pytest.mark.parametrize(
    ("new", "told"), [(key("developer"), 5), (key("operator"), None), (None, None)]
)
async def test_a_key_that_is_not_known_yet_is_looked_up(
    new: Principal | None, told: object
) -> None:
    bus, book = Bus(), Book(new=new)
    replies = send(bus, book, ended())
    assert bus.sent == []
    await asyncio.gather(*replies._asking)
    assert (bus.sent, book.looks) == ([(INBOX, told)], 1)


async def test_a_new_key_is_told_of_an_output_that_is_too_large_without_it() -> None:
    bus = Bus(limit=500)
    replies = send(bus, Book(new=key("developer")), ended("x" * 500))
    await asyncio.gather(*replies._asking)
    assert bus.sent == [(INBOX, None)]


async def test_ends_that_wait_for_unknown_keys_are_bounded() -> None:
    bus, run = Bus(), ended()
    replies = send(bus, Book(), run)
    for _ in range(MAX_ASKING):
        replies.send(INBOX, run, end_message(run))
    assert bus.sent == [(INBOX, None)]
    await asyncio.gather(*replies._asking)
    assert len(bus.sent) == MAX_ASKING + 1


def test_an_end_says_whether_its_output_is_left_out_for_its_size() -> None:
    told = json.loads(end_message(ended(), too_large=True))
    assert (told["output"], told["output_left_out"]) == (None, True)
    for hidden in (end_message(ended(), with_output=False), end_message(ended())):
        assert not RunFinished.model_validate_json(hidden).output_left_out
