"""The llm node: what the gateway is asked, and what the step gives back."""

import gc
import weakref
from decimal import Decimal
from typing import Any

import pytest

from hocket.schemas.errors import ErrorClass, ErrorInfo, InvalidInput
from hocket.schemas.messages import CallReply, CallRequest, Document, Priority, Spend
from hocket.schemas.pipeline.expressions import ExpressionFailed
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.errors import ModelReplyCut, ModelReplyInvalid
from hocket.workers.nodes.llm import run_llm
from hocket.workers.nodes.prompts.evidence import MAX_DOCUMENTS, documents_of
from hocket.workers.runtime.execution.context import Context, ModelCallFailed
from hocket.workers.runtime.results.failures import error_info

PASSAGE = {
    "id": "doc:3",
    "text": "It rained.",
    "title": "Weather",
    "source": "w.md",
    "start": 5,
    "end": 15,
}
TABLE = {"name": "rain", "sql": "SELECT 1", "columns": ["day", "mm"], "rows": [["mon", 3]]}


class Answers:
    """A gateway that answers every call alike and keeps what it was asked."""

    def __init__(self, **reply: Any) -> None:
        self.requests: list[CallRequest] = []
        self._reply = reply

    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        self.requests.append(request)
        return CallReply(call_id=request.call_id, model=request.model, backend="b", **self._reply)


def context_of(calls: Answers, step_input: Any, **config: Any) -> Context:
    step = RequestedStep(
        run_id="r1",
        tenant="acme",
        pipeline="p",
        version=2,
        step="draft[1]",
        node="draft",
        type="llm",
        attempt=3,
        input=step_input,
        config={"model": "writer", "prompt": "Answer {{ input.question }}", **config},
        deadline_at_ms=5_000,
        slack_ms=0,
        timeout_ms=1,
        priority=Priority.STANDARD,
        partition=0,
        epoch=0,
        labels={"team": "search"},
    )
    return Context(
        step, step_input, attempt_id="r1:draft[1]:3", delivery=2, deadline_at_ms=4_000, calls=calls
    )


async def test_the_call_carries_prompt_deadline_and_attribution() -> None:
    calls = Answers(text="ok")
    await run_llm(
        context_of(calls, {"question": "why?"}, system="Be {{ input.question }}", max_tokens=9)
    )
    (request,) = calls.requests
    assert [(message.role, message.content) for message in request.messages] == [
        ("system", "Be why?"),
        ("user", "Answer why?"),
    ]
    assert (request.call_id, request.deadline_at_ms, request.max_tokens) == (
        "r1:draft[1]:3:2:1",
        4_000,
        9,
    )
    assert request.attribution.model_dump() == {
        "tenant": "acme",
        "pipeline": "p",
        "version": 2,
        "run_id": "r1",
        "node": "draft",
        "step": "draft[1]",
        "attempt": 3,
        "labels": {"team": "search"},
    }


async def test_the_output_carries_text_model_backend_and_usage() -> None:
    calls = Answers(text="ok", input_tokens=7, output_tokens=2, cost_usd=Decimal("0.00012"))
    output = await run_llm(context_of(calls, {"question": "why?"}))
    assert output == {
        "text": "ok",
        "finish_reason": "stop",
        "model": "writer",
        "backend": "b",
        "usage": {
            "input_tokens": 7,
            "output_tokens": 2,
            "cached_tokens": 0,
            "cost_usd": "0.00012",
            "latency_ms": 0.0,
        },
    }


async def test_the_output_says_that_an_answer_was_cut_off() -> None:
    cut = Answers(text="The tide ri", finish_reason="length")
    output = await run_llm(context_of(cut, {"question": "why?"}))
    assert (output["text"], output["finish_reason"]) == ("The tide ri", "length")


async def test_json_that_was_cut_off_is_an_error_with_the_limit_and_its_cure() -> None:
    cut = Answers(text='{"title": "Tides", "bo', finish_reason="length", output_tokens=5)
    schema = {"type": "object"}
    with pytest.raises(ModelReplyCut) as failed:
        await run_llm(context_of(cut, {"question": "why?"}, response_schema=schema))
    assert str(failed.value) == (
        "The model's answer was cut off at 5 tokens, before its JSON was complete. Raise `max_tokens` "
        "(without it, the limit is the model's own), or ask for a shorter answer."
    )
    assert (failed.value.code, failed.value.error_class) == ("model_reply_cut", ErrorClass.INVALID)


@pytest.mark.parametrize("reply", [{"text": '{"n": 4}\n\n \n'}, {"data": {"n": 4}}])
async def test_json_that_ends_before_the_limit_is_whole(reply: dict[str, Any]) -> None:
    calls = Answers(finish_reason="length", **reply)
    schema = {"type": "object", "required": ["n"]}
    output = await run_llm(context_of(calls, {"question": "why?"}, response_schema=schema))
    assert (output["data"], output["finish_reason"]) == ({"n": 4}, "length")


@pytest.mark.parametrize("text", ["", "null", "12", '{"value":[1,2'])
async def test_an_answer_that_was_cut_off_is_no_null(text: str) -> None:
    schema = {"type": ["array", "null", "number"]}
    cut = Answers(text=text, finish_reason="length")
    with pytest.raises(ModelReplyCut, match="at its limit of tokens"):
        await run_llm(context_of(cut, {"question": "why?"}, response_schema=schema))
    whole = Answers(text="null", finish_reason="stop")
    output = await run_llm(context_of(whole, {"question": "why?"}, response_schema=schema))
    assert output["data"] is None


async def test_every_call_is_added_to_the_spend_of_the_attempt() -> None:
    calls = Answers(text="ok", input_tokens=7, output_tokens=2, cost_usd=Decimal("0.10"))
    context = context_of(calls, {"question": "why?"})
    await run_llm(context)
    await run_llm(context)
    assert (context.spend.calls, context.spend.input_tokens, context.spend.cost_usd) == (
        2,
        14,
        Decimal("0.20"),
    )
    assert [request.call_id[-3:] for request in calls.requests] == ["2:1", "2:2"]


async def test_passages_and_tables_are_numbered_and_citations_point_back() -> None:
    calls = Answers(text="It rained [P1] 3 mm [S1], said nobody [P9]. Again [P1, S1].")
    step_input = {"question": "rain?", "notes": {"passages": [PASSAGE]}, "data": [TABLE]}
    output = await run_llm(
        context_of(calls, step_input, documents=["notes", "data"], task="answer")
    )
    assert [document.id for document in calls.requests[0].documents] == ["P1", "S1"]
    assert output["citations"] == [
        {
            "id": "P1",
            "title": "Weather",
            "source": "w.md",
            "passage": "doc:3",
            "start": 5,
            "end": 15,
        },
        {"id": "S1", "title": "rain", "sql": "SELECT 1"},
    ]


async def test_an_answer_is_read_against_its_schema() -> None:
    schema = {"type": "object", "required": ["n"]}
    calls = Answers(text='```json\n{"n": 4}\n```')
    output = await run_llm(context_of(calls, {"question": "?"}, response_schema=schema))
    assert output["data"] == {"n": 4}


@pytest.mark.parametrize("text", ["no json", '{"m": 4}'])
async def test_an_answer_that_does_not_fit_its_schema_is_a_typed_error(text: str) -> None:
    schema = {"type": "object", "required": ["n"]}
    context = context_of(Answers(text=text), {"question": "?"}, response_schema=schema)
    with pytest.raises(ModelReplyInvalid) as failed:
        await run_llm(context)
    assert failed.value.info().error_class is ErrorClass.INVALID
    assert context.spend.calls == 1


async def test_a_failed_call_gives_the_step_the_gateways_error() -> None:
    error = ErrorInfo(code="backends_busy", message="busy", error_class=ErrorClass.RATE_LIMITED)
    with pytest.raises(ModelCallFailed) as failed:
        await run_llm(context_of(Answers(error=error), {"question": "?"}))
    assert error_info(failed.value).code == "backends_busy"
    assert error_info(failed.value).error_class is ErrorClass.RATE_LIMITED


async def test_a_prompt_that_reads_a_missing_field_is_a_typed_error() -> None:
    with pytest.raises(ExpressionFailed, match="question"):
        await run_llm(context_of(Answers(text="ok"), {}))


def test_evidence_may_be_missing_where_an_optional_step_failed() -> None:
    assert documents_of({"notes": None, "data": []}, ["notes", "data"]) == []


def test_evidence_of_several_retrievals_is_numbered_through() -> None:
    step_input = {"all": [{"passages": [PASSAGE, PASSAGE]}, PASSAGE, TABLE, [TABLE]]}
    found = documents_of(step_input, ["all"])
    assert [document.id for document, _ in found] == ["P1", "P2", "P3", "S1", "S2"]


def test_rows_may_be_lists_or_objects() -> None:
    rows = {"columns": ["a", "b"], "rows": [[1, 2], {"b": 4, "a": 3}]}
    ((document, _),) = documents_of({"data": rows}, ["data"])
    assert document == Document(id="S1", kind="table", columns=("a", "b"), rows=((1, 2), (3, 4)))


@pytest.mark.parametrize(
    ("count", "truncated", "title"),
    [
        (200, False, "orders"),
        (201, False, "orders (only the first 200 of 201 rows)"),
        (201, True, "orders (only the first 200 of 201 or more rows)"),
        (5, True, "orders (only the first 5 rows: the query has more)"),
    ],
)
def test_a_table_says_that_rows_are_missing(count: int, truncated: bool, title: str) -> None:
    rows = {"name": "orders", "columns": ["a"], "rows": [[1]] * count, "truncated": truncated}
    ((document, _),) = documents_of({"data": rows}, ["data"])
    assert document.title == title


@pytest.mark.parametrize(
    "value",
    [
        "text",
        5,
        [{"no": "text"}],
        {"columns": ["a"], "rows": 5},
        {"columns": ["a"], "rows": ["text"]},
        {"columns": "a", "rows": [[1]]},
    ],
)
def test_evidence_of_another_shape_is_refused_with_its_field(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"`input\.notes"):
        documents_of({"notes": value}, ["notes"])


def test_evidence_in_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no such field"):
        documents_of({"notes": []}, ["note"])


def test_evidence_is_bounded() -> None:
    with pytest.raises(InvalidInput, match="the limit is"):
        documents_of({"notes": [PASSAGE] * (MAX_DOCUMENTS + 1)}, ["notes"])


async def test_an_attempt_adds_up_what_its_calls_spent_and_keeps_none_of_their_answers() -> None:
    calls = Answers(text="long" * 1_000, input_tokens=3, output_tokens=2, cost_usd=Decimal("0.25"))
    context = context_of(calls, {})
    answers = [weakref.ref(await context.model("writer", "hi")) for _ in range(4)]
    gc.collect()
    assert [answer() for answer in answers] == [None] * 4
    assert context.spend == Spend(calls=4, input_tokens=12, output_tokens=8, cost_usd=Decimal(1))
