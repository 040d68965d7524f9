"""Plays of pipelines end as real runs do, and twice alike."""

import asyncio
import inspect
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from decimal import Decimal, getcontext
from functools import partial
from types import MappingProxyType
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock, NonCallableMock, create_autospec

import anyio.to_thread
import pytest
from pydantic import BaseModel, ValidationError, field_serializer

from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import CallRequest
from hocket.schemas.pipeline.document import parse_document
from hocket.testing import (
    Answer,
    ModelFails,
    NotPlayable,
    Play,
    PlayStuck,
    ScriptExhausted,
    UnknownStep,
)
from hocket.worker import Context, HocketError, Worker
from support.construct_pages import EXAMPLES, PAGES, Session, sessions

AFTER_ANOTHER = "source= WEB "
"""Input of the example that finds what the run before it has computed: plays begin anew."""

worker = Worker()


class Lead(BaseModel):
    email: str


class Found(BaseModel):
    name: str
    at: str


@worker.node("crm.lookup", timeout_ms=2_000)
async def lookup(lead: Lead, context: Context) -> Found:
    """Find a person."""
    name = await context.step("find", str.title, lead.email.partition("@")[0])
    await asyncio.sleep(0.05)
    reply = await context.model("writer", f"Who is {name}?")
    return Found(name=reply.text, at=(await context.now()).isoformat())


PIPELINE: dict[str, Any] = {
    "pipeline": "qualify",
    "slo_ms": 20_000,
    "nodes": {
        "find": {
            "type": "crm.lookup",
            "with": {"email": "{{ input.email }}"},
            "retry": {"max_attempts": 3},
        },
        "score": {
            "type": "python",
            "handler": "nowhere:score",
            "timeout_ms": 300,
            "optional": True,
        },
        "look": {"type": "approval", "prompt": "Send it?", "needs": ["find", "score"]},
    },
    "output": "{{ nodes.find.output }}",
}


def everything() -> Play:
    """A scripted answer, an injected failure, a missed deadline and an approval."""
    play = Play(PIPELINE, worker=worker)
    play.model("writer", Answer("Ada", cost_usd="0.002", takes_ms=40))
    play.fails("find", error_class="unavailable")
    play.hangs("score")
    play.approves("look", note="fine", after_ms=60_000)
    return play


def test_the_rules_of_the_platform_decide_what_becomes_of_faults() -> None:
    played = everything().run({"email": "ada@example.org"})
    assert played.status == "degraded"
    assert played.output["name"] == "Ada"
    assert played.output["at"].startswith("2026-01-01T00:00:00.")
    assert played.cost_usd == Decimal("0.002")
    assert [call.prompt for call in played.calls] == ["Who is Ada?"]
    found, scored, look = (played.steps[name] for name in ("find", "score", "look"))
    assert (found.state, found.attempts) == ("succeeded", 2)
    assert (scored.state, scored.error and scored.error.code) == ("failed", "attempt_timeout")
    assert scored.ended_ms == 300
    assert look.output == {"approved": True, "by": "test", "note": "fine"}
    assert found.ended_ms is not None
    assert found.ended_ms - found.began_ms == pytest.approx(
        90, abs=1
    )  # 50 asleep, 40 for the model
    assert played.took_ms == pytest.approx(60_000 + found.ended_ms, abs=1)
    assert not played.missed_deadline  # it stood still while somebody was asked


def test_a_play_has_the_same_trace_twice_and_takes_no_second() -> None:
    began_s = time.process_time()
    play = everything()
    first, again = (play.run({"email": "ada@example.org"}) for _ in range(2))
    took_s = time.process_time() - began_s
    assert first == again
    assert len(first.trace) == 15
    assert everything().run({"email": "ada@example.org"}).trace == first.trace
    assert took_s < 1
    print(f"two plays took {took_s * 1000:.1f} ms of CPU")


def test_a_run_that_is_late_misses_its_deadline() -> None:
    play = Play(PIPELINE, worker=worker)
    play.takes("find", 1_500, attempt=None)
    play.takes("score", 0)
    play.node("score", lambda: 1)
    play.model("writer", "Ada")
    assert play.run({"email": "a@b.c"}, deadline_ms=1_000).status == "expired"
    assert play.run({"email": "a@b.c"}, deadline_ms=1_000).missed_deadline
    play.approves("look")
    assert play.run({"email": "a@b.c"}).status == "succeeded"


def test_a_worker_that_dies_does_nothing_twice() -> None:
    play = Play(PIPELINE, worker=worker)
    play.node("score", lambda: 1)
    play.model("writer", Answer("Ada", cost_usd="0.01"))  # once: another call would fail the play
    play.dies("find", after=2)  # what it found, and what the model said
    play.approves("look")
    played = play.run({"email": "ada@example.org"})
    assert (played.status, played.output["name"]) == ("succeeded", "Ada")
    assert played.steps["find"].attempts == 1
    assert sum("asked writer" in line for line in played.trace) == 1
    assert any("lost its worker" in line for line in played.trace)
    assert played.cost_usd == Decimal("0.01")


def test_what_a_test_does_not_say_is_its_own_error_and_no_runs() -> None:
    with pytest.raises(NotPlayable, match=r"play\.model\('writer', \.\.\.\)") as refused:
        Play(PIPELINE, worker=worker).run({"email": "a@b.c"})
    assert refused.value.__context__ is None  # pytest would show it first
    play = Play(PIPELINE)
    with pytest.raises(NotPlayable, match=r"nothing here runs steps of the type `crm.lookup`"):
        play.run({"email": "a@b.c"})
    with pytest.raises(UnknownStep, match="Known names: find, score, look"):
        play.fails("fnid")
    with pytest.raises(UnknownStep, match="Nothing in the pipeline is called `fnid`"):
        play.node("fnid", ask_twice)
    with pytest.raises(UnknownStep, match="Nothing in the pipeline is called `finds`"):
        play.hangs("finds")
    document = PIPELINE | {"input": {"required": ["email"]}}
    with pytest.raises(InvalidInput, match="input"):
        Play(document, worker=worker).run({})
    twice = {"type": "python", "handler": "m:f"}
    play = Play({"pipeline": "p", "nodes": {"a": twice}})
    play.node("a", ask_twice)
    play.model("writer", "once")
    with pytest.raises(ScriptExhausted, match="has answers for"):
        play.run()


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("attempt", lambda play: play.fails("find", attempt=0)),
        ("attempt", lambda play: play.hangs("find", attempt=-1)),
        ("attempt", lambda play: play.takes("find", 5, attempt=1.5)),
        ("attempt", lambda play: play.dies("find", attempt=True)),
        ("after", lambda play: play.dies("find", after=-1)),
        ("after_ms", lambda play: play.fails("find", after_ms=-1)),
        ("after_ms", lambda play: play.approves("look", after_ms=-1)),
        ("after_ms", lambda play: play.refuses("look", after_ms=float("nan"))),
        ("after_ms", lambda play: play.signals("look", after_ms="5")),
        ("ms", lambda play: play.takes("find", -1)),
        ("ms", lambda play: play.takes("find", float("nan"))),
        ("ms", lambda play: play.takes("find", float("inf"))),
        ("error_class", lambda play: play.fails("find", error_class="nonsense")),
        ("error_class", lambda _: ModelFails("nonsense")),
        ("cost_usd", lambda _: ModelFails(cost_usd="abc")),
        ("takes_ms", lambda _: ModelFails(takes_ms=-1)),
        ("cost_usd", lambda _: Answer("x", cost_usd="abc")),
        ("cost_usd", lambda _: Answer("x", cost_usd="NaN")),
        ("cost_usd", lambda _: Answer("x", cost_usd="-1")),
        ("cost_usd", lambda _: Answer("x", cost_usd=float("inf"))),
        ("takes_ms", lambda _: Answer("x", takes_ms=float("nan"))),
        ("input_tokens", lambda _: Answer("x", input_tokens=-5)),
        ("output_tokens", lambda _: Answer("x", output_tokens=0.5)),  # type: ignore[arg-type]
        ("deadline_ms", lambda play: play.run({"email": "a@b.c"}, deadline_ms=0)),
        ("deadline_ms", lambda play: play.run({"email": "a@b.c"}, deadline_ms=-1)),
        ("deadline_ms", lambda play: play.run({"email": "a@b.c"}, deadline_ms=float("nan"))),
        ("deadline_ms", lambda play: play.run({"email": "a@b.c"}, deadline_ms=1e13)),
        ("deadline_ms", lambda play: play.run({"email": "a@b.c"}, deadline_ms="5")),
        ("deadline_ms", lambda play: play.run({"email": "a@b.c"}, deadline_ms=True)),
    ],
)
def test_a_number_that_cannot_be_is_an_error_where_the_test_gives_it(
    field: str, given: Callable[[Play], object]
) -> None:
    with pytest.raises(InvalidInput, match=f"`{field}` is not valid: it is"):
        given(everything())


def test_the_deadline_of_a_run_is_the_slo_unless_given() -> None:
    node = {"type": "python", "handler": "m:f"}
    play = Play({"pipeline": "p", "slo_ms": 20_000, "nodes": {"a": node}})
    play.node("a", lambda: 1)
    assert play.run().deadline_ms == 20_000
    assert play.run(deadline_ms=9_000).deadline_ms == 9_000


def test_an_answer_that_no_model_can_give_is_an_error_of_the_test() -> None:
    play = Play({"pipeline": "p", "nodes": {"a": {"type": "llm", "model": "m", "prompt": "Hi"}}})
    play.model("m", by=lambda _: Answer("x", cost_usd="abc"))
    with pytest.raises(InvalidInput, match="`cost_usd` is not valid: it is 'abc'"):
        play.run()
    play.model("m", by=lambda _: Answer("x", tool_calls=["none"]))  # type: ignore[list-item]
    with pytest.raises(ValidationError, match="tool_calls"):
        play.run()


@pytest.mark.parametrize(
    ("field", "answer"),
    [
        ("text", "half \ud83d"),
        ("text", Answer("half \ud83d")),
        ("data", {"a": "\ud83d"}),
        ("data", Answer(data=[object()])),
        ("tool_calls", Answer("x", tool_calls=[{"id": "\ud83d"}])),
        ("finish_reason", Answer("x", finish_reason="\ud83d")),
    ],
)
def test_an_answer_that_is_not_json_is_an_error_of_the_test(field: str, answer: Any) -> None:
    play = Play({"pipeline": "p", "nodes": {"a": {"type": "llm", "model": "m", "prompt": "Hi"}}})
    play.model("m", answer)
    with pytest.raises(InvalidInput, match=f"`{field}` is not valid: model `m` cannot give it"):
        play.run()


@pytest.mark.parametrize("by", ["\ud83d", "x" * 257, "a\nb", 5, None])
def test_a_name_that_nobody_can_have_is_an_error_where_the_test_gives_it(by: Any) -> None:
    play = Play({"pipeline": "p", "nodes": {"a": {"type": "approval"}}})
    for answers in (play.approves, play.refuses, play.signals):
        with pytest.raises(InvalidInput, match="`by` is not valid: it is") as refused:
            answers("a", by=by)
        assert len(str(refused.value)) < 300
    play.approves("a", by="x" * 256)
    assert play.run().status == "succeeded"


@pytest.mark.parametrize("cost_usd", [Decimal("0.1"), "0.1", 0.1])
def test_a_cost_may_be_written_as_one_writes_amounts(cost_usd: Any) -> None:
    play = Play({"pipeline": "p", "nodes": {"a": {"type": "llm", "model": "m", "prompt": "Hi"}}})
    play.model("m", Answer("x", cost_usd=cost_usd))
    assert play.run().cost_usd == Decimal("0.1")


async def ask_twice(_given: Any, context: Context) -> str:
    await context.model("writer", "one")
    return (await context.model("writer", "two")).text


def test_a_handler_that_waits_for_the_outside_ends_at_its_time() -> None:
    play = Play({"pipeline": "p", "nodes": {"a": {"type": "python", "handler": "m:f"}}})

    async def waits() -> None:
        await asyncio.Event().wait()

    play.node("a", waits)
    played = play.run(deadline_ms=5_000)
    assert (played.status, played.took_ms) == ("expired", 5_000)
    assert issubclass(PlayStuck, Exception)


async def test_a_play_runs_inside_a_test_that_is_async() -> None:
    assert everything().run({"email": "ada@example.org"}).status == "degraded"


def test_threads_of_a_library_have_time() -> None:
    def slowly() -> str:
        time.sleep(0.005)
        return "done"

    async def threaded() -> str:
        return await anyio.to_thread.run_sync(slowly)

    play = Play({"pipeline": "p", "nodes": {"a": {"type": "python", "handler": "m:f"}}})
    play.node("a", threaded)
    assert play.run().output == "done"


def test_a_model_that_fails_is_the_error_of_its_step() -> None:
    play = Play({"pipeline": "p", "nodes": {"a": {"type": "llm", "model": "m", "prompt": "Hi"}}})
    play.model("m", ModelFails("invalid", code="too_long"))
    played = play.run()
    assert played.error is not None
    assert (played.status, played.error.code) == ("failed", "too_long")


# ---- the pages of constructs say how real runs end ------------------------------------------


@pytest.fixture
def handlers() -> Iterator[Any]:
    sys.path.insert(0, str(EXAMPLES))
    import handlers

    yield handlers
    sys.path.remove(str(EXAMPLES))
    del sys.modules["handlers"]


@pytest.mark.parametrize(
    "session",
    [one for page in PAGES for one in sessions(page) if one.commands[-1][-1] != AFTER_ANOTHER],
    ids=lambda session: " ".join(session.commands[-1]),
)
def test_plays_of_the_examples_end_as_their_pages_say(session: Session, handlers: Any) -> None:
    applied = [EXAMPLES.parents[1] / c[2] for c in session.commands if c[0] == "pipeline"]
    play = Play(applied[-1], pipelines=applied[:-1])

    async def clerk(request: CallRequest) -> Answer:
        return Answer((await handlers.clerk(request)).text, cost_usd="0.05")

    play.model("clerk", by=clerk)
    play.model("planner", by=handlers.planner)
    given: dict[str, Any] = {}
    for command in session.commands:
        if command[0] == "run":
            given = _input_of(command)
        elif command[1] == "approve":
            play.approves(command[3], note=command[5])
        elif command[1] == "refuse":
            play.refuses(command[3], note=command[5])
        elif command[1] == "signal":
            play.signals(command[3], json.loads(command[5]))
    played = play.run(given)
    code = None if played.error is None else played.error.code
    assert (played.status, code) == (session.status, session.code), str(played)
    assert played.output == session.output
    assert play.run(given).trace == played.trace


def _input_of(command: tuple[str, ...]) -> dict[str, Any]:
    words = list(command[2:])
    given: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        if word == "-i":
            name, _, value = words.pop(0).partition("=")
            given[name] = parse_document(value) if value.lstrip("-").isdecimal() else value
        elif word == "--input":
            given |= json.loads(words.pop(0))
    return given


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"z": "\0"}, "`input.z` is not valid: it contains the character U+0000"),
        ({"\0": 1}, "is not valid: it contains the character U+0000"),
        ({"x": float("nan")}, "`input` is not valid: it is not JSON (NaN is not a number in JSON)"),
        ({"x": float("inf")}, "`input` is not valid: it is not JSON"),
        ({"a": "\ud800"}, "`input` is not valid: it cannot be written as JSON"),
        ({"a": object()}, "`input` is not valid: it cannot be written as JSON"),
        ({"a": b"\xff"}, "`input` is not valid: it cannot be written as JSON"),
        ({"a": 10**1_000}, "`input.a` is not valid: an integer has more than 1000 digits"),
        ({"a": {"b": [{"c": "\0"}]}}, "`input.a.b.0.c` is not valid"),
        ({1: 2, "1": 3}, "`input` is not valid: the key `1` is used twice"),
        ([1, 2], "`input` is not valid: it is a list, not an object"),
        ("text", "`input` is not valid: it is a str, not an object"),
    ],
    ids="nul key nan inf half object bytes digits place twice list text".split(),
)
def test_an_input_that_the_platform_refuses_is_refused(given: Any, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        of_one(lambda: 1).run(given)
    assert reason in str(refused.value)


def test_an_input_nests_no_deeper_than_the_platform_allows() -> None:
    deep: Any = 1
    for _ in range(62):
        deep = [deep]
    assert of_one(lambda: 1).run({"a": deep}).status == "succeeded"
    for levels in (1, 1_000, 100_000):
        deeper = deep
        for _ in range(levels):
            deeper = [deeper]
        with pytest.raises(InvalidInput, match="`input"):
            of_one(lambda: 1).run({"a": deeper})


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ({1: 2}, {"1": 2}),
        ({"day": date(2026, 1, 2), "usd": Decimal("1E+2")}, {"day": "2026-01-02", "usd": "1E+2"}),
        ({"a": (1, {2})}, {"a": [1, [2]]}),
        ({"lead": Lead(email="a@b.c")}, {"lead": {"email": "a@b.c"}}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (None, {}),
    ],
)
def test_an_input_arrives_as_the_client_writes_it(given: Any, got: Any) -> None:
    seen: list[Any] = []
    assert of_one(seen.append).run(given).status == "succeeded"
    assert seen == [{"input": got}]


def test_a_payload_that_the_platform_refuses_is_refused() -> None:
    play = of_one(lambda: 1)
    for payload in ({"a": "\0"}, float("nan"), object()):
        with pytest.raises(InvalidInput, match="`payload"):
            play.signals("go", payload)


@pytest.mark.parametrize(
    "text",
    ["a\0b", "\ud800", object(), float("nan"), 10**1_000],
    ids="nul half object nan digits".split(),
)
def test_a_document_that_the_platform_refuses_is_refused(text: Any) -> None:
    node = {"type": "python", "handler": "m:f", "with": {"v": text}}
    with pytest.raises(InvalidInput, match=r"`\(document\)"):
        Play({"pipeline": "p", "nodes": {"a": node}})


def test_a_document_is_taken_as_it_is_when_the_test_gives_it() -> None:
    node: dict[str, Any] = {"type": "python", "handler": "m:f", "with": {"v": [1]}}
    play = Play({"pipeline": "p", "budget_usd": Decimal("1E+2"), "nodes": {"a": node}})
    node["with"]["v"].append(2)
    seen: list[Any] = []
    play.node("a", seen.append)
    play.run()
    assert seen == [{"v": [1]}]


def test_plays_of_one_process_know_nothing_of_each_other() -> None:
    async def told(_given: Any, context: Context) -> list[Any]:
        step = context.step
        return [step.pipeline, step.version, step.priority]

    def play_of(name: str) -> Play:
        node = {"type": "python", "handler": "m:f"}
        play = Play({"pipeline": name, "nodes": {"a": node}, "output": "{{ nodes.a.output }}"})
        play.node("a", told)
        return play

    first, second = play_of("first"), play_of("second")
    assert first.run().output == ["first", 1, "standard"]
    assert second.run().output == ["second", 1, "standard"]
    assert second.run(priority="interactive").output == ["second", 1, "interactive"]
    assert second.run(priority="batch").output == ["second", 1, "batch"]


MOCKS = [Mock, MagicMock, AsyncMock]


@pytest.mark.parametrize("made", MOCKS)
def test_a_mock_is_called_with_the_input(made: type[Mock]) -> None:
    stand_in = made(return_value={"n": 1})
    played = of_one(stand_in).run()
    assert (played.status, played.steps["a"].output) == ("succeeded", {"n": 1})
    stand_in.assert_called_once_with({"input": {}})


@pytest.mark.parametrize("made", MOCKS)
def test_the_error_of_a_mock_is_that_of_its_step(made: type[Mock]) -> None:
    error = of_one(made(side_effect=ValueError("no"))).run().error
    assert error is not None
    assert error.message == "The handler failed with ValueError: no"


def a_step(given: Any, context: Any) -> Any:
    raise AssertionError((given, context))


async def an_async_step(given: Any) -> Any:
    raise AssertionError(given)


@pytest.mark.parametrize(
    "stand_in",
    [
        Mock(spec=a_step, return_value=7),
        AsyncMock(spec=an_async_step, return_value=7),
        create_autospec(a_step, return_value=7),
        create_autospec(an_async_step, return_value=7),
    ],
    ids=["mock", "async mock", "autospec", "async autospec"],
)
def test_a_mock_may_have_the_form_of_a_function(stand_in: Any) -> None:
    assert of_one(stand_in).run().steps["a"].output == 7
    assert stand_in.call_args.args[0] == {"input": {}}


async def all_of_it(*given: Any) -> int:
    return len(given)


@pytest.mark.parametrize(
    "stand_in", [all_of_it, lambda *given, **_: len(given), partial(Mock(return_value=1))]
)
def test_a_function_that_takes_anything_gets_the_input(stand_in: Any) -> None:
    assert of_one(stand_in).run().steps["a"].output == 1


def unread(given: "Unknown") -> None:  # type: ignore[name-defined]  # noqa: F821
    raise AssertionError(given)


@pytest.mark.parametrize(
    ("stand_in", "reason"),
    [
        (7, "its parameters cannot be read"),
        (NonCallableMock(), "its parameters cannot be read"),
        (partial(AsyncMock()), "its parameters cannot be read"),
        (lambda a, b, c, d: 1, "it takes 4 parameters; it may take (input, config, context)"),
        (lambda *, a: 1, "`a` is keyword-only"),
        (unread, "its annotations cannot be read"),
    ],
    ids=["number", "not callable", "partial mock", "four", "keyword", "annotation"],
)
def test_a_stand_in_that_cannot_be_called_is_refused_where_it_is_given(
    stand_in: Any, reason: str
) -> None:
    with pytest.raises(NotPlayable) as refused:
        of_one(stand_in)
    assert f"`a` cannot be played: its stand-in does not fit: {reason}" in str(refused.value)
    assert "It is called as `f()`, `f(input)` or `f(input, context)`" in str(refused.value)


async def exits_in_the_loop() -> None:
    sys.exit(3)


@worker.node("crm.charged")
async def charged(given: dict[str, Any], context: Context) -> str:
    """Charge what the input says."""
    context.charge(given["usd"])
    return "done"


def paying(**fields: Any) -> dict[str, Any]:
    """Return a pipeline that pays for a tool, and then for a model."""
    nodes = {
        "tool": {"type": "crm.charged", "with": {"usd": "{{ input.usd }}"}},
        "ask": {"type": "llm", "model": "writer", "prompt": "Hi", "needs": ["tool"]},
    }
    output = "{{ nodes.ask.output.text }}"
    return {"pipeline": "pay", "slo_ms": 30_000, "nodes": nodes, "output": output, **fields}


@pytest.mark.parametrize(
    ("charged_usd", "status", "left_usd"),
    [("0.30", "succeeded", None), ("0.31", "failed", "0.19")],
)
def test_a_model_call_cannot_spend_what_a_tool_has_charged(
    charged_usd: str, status: str, left_usd: str | None
) -> None:
    play = Play(paying(budget_usd="0.50"), worker=worker)
    play.model("writer", Answer("fine", cost_usd="0.20"))
    done = play.run({"usd": charged_usd})
    assert done.status == status, str(done)
    if left_usd is not None:
        assert done.error is not None
        assert done.error.code == "budget_exceeded"
        assert f"has {left_usd} of 0.50 USD left" in done.error.message


def test_the_calls_of_a_step_together_spend_no_more_than_its_tools_have_left() -> None:
    @worker.node("crm.asks_twice")
    async def asks_twice(_given: dict[str, Any], context: Context) -> int:
        for word in ("one", "two"):
            await context.model("writer", word)
        return 2

    spec = paying(budget_usd="0.50")
    spec["nodes"]["ask"] = {"type": "crm.asks_twice", "needs": ["tool"]}
    spec["output"] = "{{ nodes.ask.output }}"
    play = Play(spec, worker=worker)
    play.model("writer", *[Answer("fine", cost_usd="0.06")] * 2)
    done = play.run({"usd": "0.40"})
    assert (done.status, done.error and done.error.code) == ("failed", "budget_exceeded")
    assert done.cost_usd == Decimal("0.46")


@pytest.mark.parametrize(("budget_usd", "status"), [("0.40", "succeeded"), ("0.39", "failed")])
def test_sub_runs_side_by_side_spend_no_more_than_the_budget_at_the_top(
    budget_usd: str, status: str
) -> None:
    one = {"type": "llm", "model": "writer", "prompt": "Hi"}
    below = {"pipeline": "one", "nodes": {"ask": one}, "output": "{{ nodes.ask.output.text }}"}
    nodes = {name: {"type": "pipeline", "pipeline": "one"} for name in ("left", "right")}
    top = {"pipeline": "both", "slo_ms": 30_000, "budget_usd": budget_usd, "nodes": nodes}
    play = Play(
        {**top, "output": "{{ nodes.left.output }}"}, pipelines=[{**below, "slo_ms": 9_000}]
    )
    play.model("writer", *[Answer("fine", cost_usd="0.20", takes_ms=500)] * 2)
    assert play.run({}).status == status


def test_a_handler_that_exits_has_failed_and_the_test_run_goes_on() -> None:
    for function in (exits_in_the_loop, lambda: sys.exit(3)):
        play = Play({"pipeline": "p", "nodes": {"a": {"type": "python", "handler": "nowhere:a"}}})
        play.node("a", function)
        played = play.run()
        assert played.status == "failed"
        assert played.error is not None
        assert played.error.message == "The handler failed with SystemExit: 3"


class Unwritable(BaseModel):
    number: int = 1

    @field_serializer("number")
    def write(self, _number: int) -> int:
        raise RuntimeError("cannot write")


async def interrupts(_given: Any) -> None:
    raise KeyboardInterrupt


def interrupts_in_a_thread(_given: Any) -> None:
    raise KeyboardInterrupt


async def cannot_be_written(_given: Any) -> Unwritable:
    return Unwritable()


def of_one(function: Any, *, timeout_ms: float = 2_000) -> Play:
    node = {"type": "python", "handler": "m:f", "timeout_ms": timeout_ms}
    play = Play({"pipeline": "p", "slo_ms": 60_000, "nodes": {"a": node}})
    play.node("a", function)
    return play


@pytest.mark.parametrize("function", [interrupts, interrupts_in_a_thread, cannot_be_written])
def test_whatever_a_handler_raises_or_returns_is_its_own_failure(function: Any) -> None:
    error = of_one(function).run().error
    assert error is not None
    assert error.code == "handler_failed"


def test_ctrl_c_ends_a_play() -> None:
    async def handler(_given: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        of_one(handler).run()


def test_a_handler_that_ignores_its_cancellation_does_not_hold_up_the_play() -> None:
    async def handler(_given: Any) -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)

    error = of_one(handler).run().error
    assert error is not None
    assert error.code == "attempt_timeout"


def test_the_decimal_context_of_a_handler_is_its_own() -> None:
    async def handler(_given: Any, context: Context) -> str:
        getcontext().prec = 2
        await context.model("m", "a")
        await context.model("m", "b")
        context.charge("123.456")
        return "done"

    play = of_one(handler)
    play.model("m", Answer("a", cost_usd="1.2345"), Answer("b", cost_usd="0.0123"))
    before = getcontext().prec
    assert play.run().cost_usd == Decimal("124.7028")
    assert getcontext().prec == before


def test_a_function_in_a_thread_may_run_a_loop_but_not_use_its_context_there() -> None:
    def own(_given: Any) -> int:
        return asyncio.run(asyncio.sleep(0, 7))

    def shared(_given: Any, context: Context) -> Any:
        return asyncio.run(_now(context))

    async def beside(_given: Any, context: Context) -> Any:
        return await asyncio.to_thread(asyncio.run, _now(context))

    assert of_one(own).run().steps["a"].output == 7
    for function in (shared, beside):
        error = of_one(function).run().error
        assert error is not None
        assert error.code == "other_event_loop"
        assert "Make the handler async" in error.message


async def _now(context: Context) -> str:
    return str(await context.now())


def test_what_a_handler_leaves_running_can_do_nothing_more() -> None:
    tried: dict[str, str] = {}
    tasks: list[asyncio.Task[None]] = []

    async def tries(name: str, act: Callable[[], Any]) -> None:
        await asyncio.sleep(1)
        try:
            done = act()
            if inspect.isawaitable(done):
                await done
        except HocketError as error:
            tried[name] = error.code

    async def waits(context: Context) -> None:  # since before the handler ended
        try:
            await context.wait_for_signal("never")
        except HocketError as error:
            tried["waiting"] = error.code

    async def handler(_given: Any, context: Context) -> None:
        acts: dict[str, Callable[[], Any]] = {
            "charge": lambda: context.charge("5"),
            "step": lambda: context.step("late", str),
            "sleep": lambda: context.sleep(6),
            "signal": lambda: context.wait_for_signal("go", timeout_s=1),
        }
        tasks.extend(asyncio.create_task(tries(*each)) for each in acts.items())
        tasks.append(asyncio.create_task(waits(context)))
        await asyncio.sleep(0)

    async def afterwards(_given: Any) -> None:
        await asyncio.wait(tasks)

    nodes = {
        "a": {"type": "python", "handler": "m:f"},
        "b": {"type": "python", "handler": "m:g", "needs": ["a"]},
    }
    play = Play({"pipeline": "p", "slo_ms": 60_000, "nodes": nodes})
    play.node("a", handler)
    play.node("b", afterwards)
    played = play.run()
    assert played.status == "succeeded", str(played)
    assert tried == dict.fromkeys(("charge", "step", "sleep", "signal", "waiting"), "attempt_ended")
    assert played.cost_usd == 0
