"""How much work the built-in model does, and that it stops."""

import asyncio
import threading
from itertools import product
from typing import Any

import pytest

from hocket.schemas.messages import CallRequest, ChatMessage, Document
from hocket.schemas.pipeline.node_parts import CatalogParam, CatalogQuery
from hocket.workers.extractive import answering, model, planning
from hocket.workers.extractive.answering import answer
from hocket.workers.extractive.drafts import Draft
from hocket.workers.extractive.effort import Check, GivenUp
from hocket.workers.extractive.model import complete, completion_of
from hocket.workers.extractive.planning import MAX_BINDINGS, plan_question
from hocket.workers.extractive.words import covers, sentences

METALS = "gold silver iron copper zinc lead tin nickel cobalt boron".split()
SELECT = "SELECT name FROM element"


class Counted(str):
    """A text that counts the characters that are copied out of it."""

    copied = 0

    def __getitem__(self, place: Any) -> str:
        found = super().__getitem__(place)
        self.copied += len(found)
        return found


def measurements(count: int) -> Document:
    text = " ".join(f"Measured density {number} gold samples." for number in range(count))
    return Document(id="P1", title="Gold", source="a", text=text)


def call(**fields: Any) -> CallRequest:
    question = ChatMessage(role="user", content="What is the density of gold samples?")
    return CallRequest(
        call_id="c", model="m", messages=(question,), task="answer", deadline_at_ms=0, **fields
    )


def test_the_work_for_sentences_grows_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def counted(present: Any, one: str) -> float:
        nonlocal compared
        compared += 1
        return covers(present, one)

    monkeypatch.setattr(answering, "covers", counted)
    question = "Which density has been measured for gold samples?"
    few, many = measurements(50), measurements(200)
    answer(question, [few], [])
    for_few, compared = compared, 0
    answer(question, [many], [])
    assert compared <= 4.5 * for_few


def test_a_text_of_many_paragraphs_is_copied_a_few_times_only() -> None:
    text = Counted("ab.\n\n" * 1_000)
    assert len(list(sentences(text))) == 1_000
    assert text.copied < 10 * len(text)


def test_only_the_bindings_that_are_used_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def counted(*choices: Any) -> Any:
        nonlocal made
        for row in product(*choices):
            made += 1
            yield row

    monkeypatch.setattr(planning, "product", counted)
    asks = CatalogQuery(
        name="compare",
        description="compare the density of elements",
        sql="SELECT 1",
        params={f"p{number}": CatalogParam(values=SELECT) for number in range(4)},
    )
    question = f"What is the density of {', '.join(METALS)}? Compare the density of them"
    plan = plan_question(question, [asks], {SELECT: METALS}, max_queries=9)
    firsts = [tuple(query.params.values()) for query in plan.queries]
    assert firsts == [("gold", "gold", "gold", last) for last in METALS[:MAX_BINDINGS]]
    assert made <= 2 * MAX_BINDINGS  # for each of the two parts


@pytest.mark.parametrize("task", ["answer", "plan"])
def test_work_that_nobody_waits_for_stops(task: str) -> None:
    def given_up() -> None:
        raise GivenUp

    catalog = [{"name": "a", "description": "density", "sql": "SELECT 1"}]
    request = call(documents=(measurements(3),), context={"catalog": catalog})
    with pytest.raises(GivenUp):
        completion_of(request.model_copy(update={"task": task}), given_up)


async def test_a_call_that_is_given_up_is_told_so_and_delays_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, stopped, may_look = threading.Event(), threading.Event(), threading.Event()

    def endless(_question: str, _passages: Any, _tables: Any, check: Check) -> Draft:
        began.set()
        try:
            while True:
                may_look.wait()
                check()
        except GivenUp:
            stopped.set()
            raise

    monkeypatch.setattr(model, "answer", endless)
    calls = [asyncio.create_task(complete(call())) for _ in range(100)]
    try:
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(began.wait, 60)
            for one in calls:
                one.cancel()
            await asyncio.wait(calls)
        may_look.set()
        assert await asyncio.to_thread(stopped.wait, 60)
    finally:
        may_look.set()
        for one in calls:
            one.cancel()
