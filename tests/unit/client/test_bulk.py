"""Tasks that are submitted together are each one run, even if an answer is lost."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel, Field

from hocket.client import ApiUnreachable, AsyncHocket, Hocket
from hocket.client.requests import MAX_TRIES, with_keys
from hocket.schemas.rest import RunSubmission

URL = "http://hocket.example"
RECEIPT = {"accepted": 1, "refused": 0, "runs": [{"run_id": "r"}]}


class LossyApi:
    """An API whose first answers are lost after it had the request."""

    def __init__(self, *, loses: int) -> None:
        self.loses = loses
        self.bodies: list[Any] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.bodies.append(json.loads(request.content))
        if len(self.bodies) <= self.loses:
            raise httpx2.ReadError("connection reset")
        return httpx2.Response(202, json=RECEIPT)

    @property
    def transport(self) -> httpx2.MockTransport:
        return httpx2.MockTransport(self)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.client.requests.FIRST_PAUSE_S", 0.0)


def tasks() -> list[RunSubmission | Mapping[str, Any]]:
    return [
        {"pipeline": "p", "input": {"n": 1}},
        RunSubmission(pipeline="p", input={"n": 2}),
        {"pipeline": "p", "idempotency_key": "own"},
        RunSubmission(pipeline="p", idempotency_key="own-too"),
        {"pipeline": "p", "idempotency_key": ""},
    ]


def check(api: LossyApi) -> None:
    first, again = api.bodies
    assert first == again
    keys = [task["idempotency_key"] for task in first["runs"]]
    assert keys[2:] == ["own", "own-too", ""]  # the empty one is refused, as that of one task is
    assert all(keys[:2])
    assert len(set(keys)) == 5
    assert [task["input"] for task in first["runs"][:2]] == [{"n": 1}, {"n": 2}]


def test_tasks_whose_answer_was_lost_are_sent_again_with_their_keys() -> None:
    api, given = LossyApi(loses=1), tasks()
    before = deepcopy(given)
    with Hocket(URL, key="k", transport=api.transport) as hocket:
        assert hocket.bulk.submit(given).accepted == 1
    check(api)
    assert given == before


async def test_tasks_are_sent_again_with_asyncio_too() -> None:
    api = LossyApi(loses=1)
    async with AsyncHocket(URL, key="k", transport=api.transport) as hocket:
        assert (await hocket.bulk.submit(tasks())).accepted == 1
    check(api)


def test_the_same_task_given_twice_is_two_runs() -> None:
    api, task = LossyApi(loses=0), {"pipeline": "p"}
    with Hocket(URL, key="k", transport=api.transport) as hocket:
        hocket.bulk.submit([task] * 2)
    assert len({task["idempotency_key"] for task in api.bodies[0]["runs"]}) == 2


class Task(BaseModel):
    pipeline: str
    input: dict[str, int]
    own_key: str | None = Field(None, alias="idempotency_key")


@dataclass
class PlainTask:
    pipeline: str
    input: dict[str, int]


def test_tasks_of_the_callers_own_kinds_have_keys_too() -> None:
    given: list[Any] = [
        Task(pipeline="p", input={"n": 1}),
        PlainTask("p", {"n": 1}),
        Task(pipeline="p", input={"n": 1}, idempotency_key="own"),
    ]
    api = LossyApi(loses=1)
    with Hocket(URL, key="k", transport=api.transport) as hocket:
        hocket.bulk.submit(given)
    first, again = api.bodies
    assert first == again
    keys = [task.pop("idempotency_key") for task in first["runs"]]
    assert all(keys)
    assert len(set(keys)) == 3
    assert keys[2] == "own"
    assert first["runs"] == [{"pipeline": "p", "input": {"n": 1}}] * 3


@pytest.mark.parametrize("key", [None, "own"])
def test_the_input_of_a_task_is_not_copied(key: str | None) -> None:
    """Large inputs would hold up the caller's event loop."""
    task = RunSubmission(pipeline="p", input={"rows": [1]}, idempotency_key=key)
    (sent,) = with_keys([task])
    assert sent["input"] is task.input
    assert task.idempotency_key == key


def test_an_operation_that_could_be_done_twice_is_not_sent_again() -> None:
    api = LossyApi(loses=MAX_TRIES)
    with Hocket(URL, key="k", transport=api.transport) as hocket, pytest.raises(ApiUnreachable):
        hocket.bulk.begin("cancel")
    assert len(api.bodies) == 1
