"""What a handler calls a node with, and how a call is known again."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.alias_generators import to_camel

from hocket.schemas import ids
from hocket.schemas.messages import HandlerWait, NodeCall, Priority, Resumption
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.errors import OutputNotJson
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.journal.errors import JournalMismatch
from hocket.workers.runtime.journal.journal import Journal
from hocket.workers.runtime.journal.store import JournalStore, WholeJournal
from hocket.workers.runtime.journal.suspending import Suspension

STEP = RequestedStep(
    run_id="r0", tenant="t", pipeline="p", version=1, step="s", node="s", type="a.b", attempt=1,
    input=None, config={}, deadline_at_ms=1e15, slack_ms=0.0, timeout_ms=1e4,
    priority=Priority.STANDARD, partition=0, epoch=0, journal=True, suspends=True,
    calls=("lookup",),
)  # fmt: skip
NAMES = frozenset(f"name {number}" for number in range(20))


class Empty(JournalStore):
    """A store in which nothing is, and nothing is written."""

    def __init__(self) -> None:
        pass

    async def read(self, step: RequestedStep) -> WholeJournal:
        return WholeJournal((), 0)


async def called(given: Any, known: NodeCall | None = None) -> NodeCall:
    """Return the call that a handler waits for after it has called a node; an earlier attempt may have
    made one."""
    waits = () if known is None else (HandlerWait(scope="", ordinal=1, call=known),)
    told: asyncio.Future[Suspension] = asyncio.get_running_loop().create_future()
    attempt: Any = SimpleNamespace(
        step=STEP, delivery=SimpleNamespace(deliveries=1), input_digest="", id="a",
        goes_on_elsewhere=False, may_be_tried_again=False, is_over=False, is_left_behind=False,
    )  # fmt: skip
    calls: Any = None
    context = Context(
        _with(waits), None, attempt_id="a", delivery=1, deadline_at_ms=1e15, calls=calls,
        new_journal=lambda: Journal(Empty(), attempt, "w"), suspend=told.set_result,
    )  # fmt: skip
    handler = asyncio.create_task(context.call_node("lookup", given))
    await asyncio.wait({handler, told}, return_when=asyncio.FIRST_COMPLETED)
    if handler.done():
        handler.result()
    handler.cancel()
    call = (await told).waits[0].call
    assert call is not None
    return call


def _with(waits: tuple[HandlerWait, ...]) -> RequestedStep:
    fields = {name: getattr(STEP, name) for name in STEP.__struct_fields__}
    return RequestedStep(**fields | {"resumption": Resumption(waits=waits)})


class Lead(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    order_id: int
    dry_run: bool = False
    picture: bytes = b""


class Binary(Lead):
    model_config = ConfigDict(ser_json_bytes="base64")


class Aliased(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    order_id: int = Field(0, alias="orderId")


@dataclass
class Basket:
    lead: Lead


async def test_a_call_is_sent_in_the_form_of_an_output() -> None:
    lead = Lead(orderId=7, dryRun=True)
    told = {"orderId": 7, "dryRun": True, "picture": ""}
    assert (await called(lead)).input == told
    assert (await called({"basket": Basket(lead)})).input == {"basket": {"lead": told}}
    sent = (await called(Binary(orderId=7, picture=b"\xff"))).input
    assert sent == {"orderId": 7, "dryRun": False, "picture": "_w=="}


@dataclass
class Login:
    token: SecretStr


@pytest.mark.parametrize("given", [Login(SecretStr("k")), {"key": SecretStr("k")}])
async def test_a_secret_is_not_sent(given: Any) -> None:
    with pytest.raises(OutputNotJson, match="a SecretStr is not stored"):
        await called(given)


@pytest.mark.parametrize("given", [NAMES, set(NAMES), [{"names": NAMES}]], ids=range(3))
async def test_the_order_of_a_set_does_not_tell_calls_apart(given: Any) -> None:
    def as_list(part: Any) -> Any:
        return {"names": sorted(NAMES)} if isinstance(part, dict) else part

    listed = [as_list(part) for part in given] if isinstance(given, list) else sorted(NAMES)
    known = NodeCall(name="lookup", digest=(await called(listed)).digest)
    assert await called(given, known) == known


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (Lead(orderId=7), {"order_id": 7, "dry_run": False, "picture": ""}),
        (Aliased(orderId=7), {"orderId": 7}),
        (Basket(Lead(orderId=7)), {"lead": {"orderId": 7, "dryRun": False, "picture": ""}}),
        (Binary(orderId=7, picture=b"a"), {"order_id": 7, "dry_run": False, "picture": "a"}),
        ({"numbers": {10, 2}}, {"numbers": list({10, 2})}),
    ],
    ids=["model", "serialized by alias", "dataclass", "bytes", "set"],
)
async def test_a_call_of_the_release_before_is_known_again(given: Any, written: Any) -> None:
    known = NodeCall(name="lookup", digest=ids.input_digest(written), number=1)
    assert await called(given, known) == known


async def test_a_call_with_another_input_is_told() -> None:
    known = NodeCall(name="lookup", digest=(await called(Lead(orderId=7))).digest)
    with pytest.raises(JournalMismatch, match="with another input"):
        await called(Lead(orderId=8), known)
