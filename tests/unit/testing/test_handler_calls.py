"""Handlers that call nodes are played as they run: each call is a step, and is made once."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from hocket.schemas.errors import ErrorClass
from hocket.testing import Play
from hocket.worker import CallMalformed, CallNotNamed, Context, HocketError, StepFailed, Worker


class Contact(BaseModel):
    name: str


class Parcel(BaseModel):
    """A model whose fields have other names in JSON."""

    model_config = ConfigDict(alias_generator=to_camel)

    order_id: int
    dry_run: bool = False


class Away(HocketError):
    """The directory is away."""

    code = "away"
    error_class = ErrorClass.TRANSIENT


worker = Worker()
done: list[str] = []


@worker.node("crm.lookup")
async def lookup(lead: dict[str, Any]) -> dict[str, Any]:
    """Look a lead up."""
    done.append(f"look {lead['email']}")
    if lead["email"] == "nobody":
        raise Away
    return {"name": lead["email"].title()}


@worker.node("crm.greet")
async def greet(lead: dict[str, Any], context: Context) -> str:
    """Greet a lead."""
    await context.step("begin", done.append, "begin")
    contact = await context.call_node("lookup", {"email": lead["email"]}, returns=Contact)
    assert isinstance(contact, Contact)
    await context.step("end", done.append, "end")
    return f"Hello {contact.name}"


@worker.node("crm.all")
async def look_all(leads: dict[str, Any], context: Context) -> list[Any]:
    """Look leads up, side by side."""
    calls = [context.call_node("lookup", {"email": one}) for one in leads["emails"]]
    return [one["name"] for one in await asyncio.gather(*calls)]


@worker.node("crm.lengths")
async def lengths(leads: dict[str, Any], context: Context) -> list[int]:
    """Look leads up, side by side, and say how long their names are."""
    calls = [context.call_node("lookup", {"email": one}) for one in leads["emails"]]
    return [len(one["name"]) for one in await asyncio.gather(*calls)]


@worker.node("crm.tries")
async def tries(lead: dict[str, Any], context: Context) -> str:
    """Say how a call failed, and call once more."""
    try:
        await context.call_node("lookup", {"email": lead["email"]})
    except StepFailed as failed:
        other = await context.call_node("lookup", {"email": "ann"})
        return f"{failed.error.code}, {other['name']}"
    return "found"


@worker.node("crm.wrong")
async def wrong(_: dict[str, Any], context: Context) -> Any:
    """Call what is not named."""
    return await context.call_node("other")


@worker.node("crm.strict")
async def strict(_: dict[str, Any], context: Context) -> str:
    """Read an output as what it is not, and go on."""
    try:
        await context.call_node("lookup", {"email": "ann"}, returns=dict[str, int])
    except CallMalformed as malformed:
        field = str(malformed.fields["field"])
        await context.call_node("lookup", {"email": "bob"})
        return field
    return ""


@worker.node("crm.send")
async def send(parcel: Parcel) -> Parcel:
    """Return what came."""
    return parcel


@worker.node("crm.sends")
async def sends(_: Any, context: Context) -> list[Any]:
    """Call a node with a model, and read a model from it."""
    parcel = Parcel(orderId=7, dryRun=True)
    found = await context.call_node("send", parcel, returns=Parcel)
    return [found == parcel, found]


@pytest.fixture(autouse=True)
def fresh() -> None:
    done.clear()


def play_of(node_type: str, given: Any, **fields: Any) -> Play:
    called = {"type": "crm.lookup"}
    node = {"type": node_type, "with": given, "calls": {"lookup": called}} | fields
    return Play({"pipeline": "p", "slo_ms": 60_000, "nodes": {"a": node}}, worker=worker)


def test_a_handler_goes_on_with_what_it_called_and_does_nothing_twice() -> None:
    played = play_of("crm.greet", {"email": "ann"}).run({})
    assert (played.output, done) == ("Hello Ann", ["begin", "look ann", "end"])
    assert (played.steps["a"].attempts, played.steps["a/lookup-1"].attempts) == (2, 1)


def test_calls_side_by_side_are_suspended_for_together() -> None:
    emails = [f"lead{n}" for n in range(130)]
    played = play_of("crm.all", {"emails": emails}, max_calls=200).run({})
    assert played.output == [one.title() for one in emails]
    assert len(done) == len(emails)


def test_a_handler_may_go_on_after_a_call_that_failed_and_sees_the_same_again() -> None:
    played = play_of("crm.tries", {"email": "nobody"}).run({})
    assert (played.output, done) == ("away, Ann", ["look nobody", "look ann"])


def test_a_worker_that_dies_after_the_call_makes_it_no_second_time() -> None:
    play = play_of("crm.greet", {"email": "ann"})
    play.dies("a", after=1, attempt=2)
    assert (play.run({}).output, done) == ("Hello Ann", ["begin", "look ann", "end"])


def test_a_call_that_the_pipeline_does_not_name_is_refused_with_the_cure() -> None:
    played = play_of("crm.wrong", {}).run({})
    assert played.error is not None
    assert played.error.code == CallNotNamed.code
    assert "`lookup`" in played.error.message


def test_an_output_that_is_not_what_is_read_is_told_the_same_in_every_attempt() -> None:
    assert play_of("crm.strict", {}).run({}).output == "output.name"


def test_a_model_arrives_as_it_was_sent_under_the_names_that_it_has_in_json() -> None:
    played = play_of("crm.sends", {}, calls={"send": {"type": "crm.send"}}).run({})
    assert played.output == [True, {"orderId": 7, "dryRun": True}], str(played)


def test_more_input_than_one_result_holds_is_asked_for_in_several() -> None:
    emails = [f"{n}" + "x" * 90_000 for n in range(10)]
    played = play_of("crm.lengths", {"emails": "{{ input.emails }}"}).run({"emails": emails})
    assert (played.output, len(done)) == ([90_001] * 10, 10)
