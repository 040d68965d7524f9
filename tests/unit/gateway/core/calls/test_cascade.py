"""Cheap first: the stages of a cascade, what accepts an answer, and what is booked for the others."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.gateway.backends.protocol import Chunk
from hocket.gateway.core.calls.cascade import cascade_of
from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.errors import RoutingInvalid
from hocket.schemas.messages import Completion
from support.gateway.routing_rig import Rig, backend, breaks, request, says

SURE = "'sure' in answer.text"


def models(accept: str = SURE, **fields: Any) -> dict[str, Any]:
    return {
        "small": {"backends": [backend("s", **fields)]},
        "large": {"backends": [backend("l")]},
        "writer": {"cascade": {"models": ["small", "large"], "accept": accept}},
    }


async def test_an_accepted_cheap_answer_is_the_only_call() -> None:
    rig = Rig(models(), s=says("sure, Brest"), l=says("Brest"))
    reply = await rig.make()
    assert (reply.text, reply.model) == ("sure, Brest", "writer")
    assert rig.booked() == [("c", "s", "ok", "call")]


async def test_a_refused_cheap_answer_is_booked_as_cascade_and_the_better_model_answers() -> None:
    rig = Rig(models(), s=says("perhaps Brest"), l=says("Brest"))
    reply = await rig.make()
    assert (reply.text, reply.backend) == ("Brest", "l")
    assert rig.booked() == [("c", "s", "ok", "cascade"), ("c:r1", "l", "ok", "call")]
    assert reply.cost_usd == Decimal("0.004")  # twice 1000 tokens in and out, at 1 USD a million
    decision = rig.records[1].decision
    assert decision is not None
    assert decision.because == "stage 2 of 2 (`large`), as `small` was not accepted"


async def test_a_stage_that_fails_leads_to_the_next_one() -> None:
    rig = Rig(models(), s=breaks(), l=says("Brest"))
    reply = await rig.make()
    assert reply.text == "Brest"
    assert rig.booked() == [("c", "s", "error", "call"), ("c:r1", "l", "ok", "call")]


async def test_a_stage_below_the_quality_floor_is_not_asked() -> None:
    rig = Rig(models(quality=0.2), s=says("sure"), l=says("Brest"))
    rig.calls.replace(
        rig.routes(
            {
                "small": {"backends": [backend("s", quality=0.2)]},
                "large": {"backends": [backend("l", quality=0.9)]},
                "writer": {"cascade": {"models": ["small", "large"], "accept": SURE}},
            }
        )
    )
    reply = await rig.make(requires={"min_quality": 0.5})
    assert (reply.text, rig.backends["s"].requests) == ("Brest", [])


async def test_the_last_answer_is_not_asked_about() -> None:
    rig = Rig(models("false"), s=says("a"), l=says("b"))
    assert (await rig.make()).text == "b"


async def test_only_the_last_stage_speaks_before_its_answer_is_whole() -> None:
    heard: list[str] = []

    async def take(chunk: Chunk) -> None:
        heard.append(chunk.text)

    rig = Rig(models(), s=says("perhaps"), l=says("Brest"))
    await rig.make(chunks=take)
    assert heard == ["Brest"]


@pytest.mark.parametrize(
    ("accept", "answer", "accepted"),
    [
        ("answer.data.confidence >= 0.8", Completion(text='{"confidence": 0.9}'), True),
        ("answer.data.confidence >= 0.8", Completion(text='{"confidence": 0.1}'), False),
        ("answer.data.confidence >= 0.8", Completion(text="no JSON"), False),
        ("{{ answer.finish_reason == 'stop' }}", Completion(finish_reason="stop"), True),
        ("answer.tool_calls | length > 0", Completion(tool_calls=({"id": "1"},)), True),
        ("call.node == 'draft' and answer.output_tokens < 9", Completion(output_tokens=8), True),
        ("answer.text | length < 1 / 0", Completion(text="x"), False),
    ],
)
def test_an_expression_accepts_by_the_answer_and_what_fails_does_not(
    accept: str, answer: Completion, accepted: bool
) -> None:
    cascade = cascade_of(("a", "b"), accept, "models.writer.cascade.accept")
    assert cascade.accepts(request(), answer) is accepted


@pytest.mark.parametrize(
    ("cascade", "field", "reason"),
    [
        ({"models": ["small"], "accept": SURE}, "cascade.models", "not a list of models"),
        ({"models": ["small", "poet"], "accept": SURE}, "cascade.models", "`poet` is not a model"),
        ({"models": ["small", "writer"], "accept": SURE}, "cascade.models", "`writer` is not"),
        ({"models": ["small", "large"], "accept": "a ("}, "cascade.accept", "does not parse"),
        ({"models": ["small", "large"], "accept": "run.x"}, "cascade.accept", "reads `run`"),
        ({"models": ["small", "large"]}, "cascade.accept", "missing"),
    ],
)
def test_a_wrong_cascade_is_refused_with_its_field(
    cascade: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(RoutingInvalid, match=reason) as refused:
        parse({**models(), "writer": {"cascade": cascade}}, {})
    assert refused.value.fields["field"] == f"models.writer.{field}"
