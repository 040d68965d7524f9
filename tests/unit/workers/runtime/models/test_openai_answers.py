"""An answer that no framework could read is an error of the model's server, and is asked for again."""

import json
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import pytest

from hocket.schemas.messages import Attribution, CallReply, CallRequest, OpenAIBody
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.models.attempt_calls import AttemptCalls
from hocket.workers.runtime.models.openai_client import _answered

CHAT = "chat/completions"
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def chat(message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message}]}


MALFORMED = [
    ({}, "choices"),
    ({"choices": None}, "choices"),
    ({"choices": [None]}, "choices"),
    ({"choices": {"a": 1}}, "choices"),
    ({"choices": [{"text": "x"}]}, "choices.0.message"),
    (chat("x"), "choices.0.message"),
    (chat({"tool_calls": {}}), "choices.0.message.tool_calls"),
    (chat({"tool_calls": ["x"]}), "choices.0.message.tool_calls"),
]
WELL_FORMED = [
    {"choices": []},
    chat({"content": "x"}),
    chat({"content": None, "tool_calls": None}),
    chat({"tool_calls": [CALL]}),
]


def reply(answer: dict[str, Any]) -> CallReply:
    return CallReply(call_id="c", model="writer", openai=answer, cost_usd=Decimal("0.25"))


async def asked(answer: dict[str, Any], path: str, **fields: Any) -> tuple[int, bytes]:
    async def ask(_path: str, _body: dict[str, Any]) -> CallReply:
        return reply(answer)

    content = json.dumps({"model": "writer", **fields}).encode()
    status, _, body = await _answered(f"/v1/{path}", content, ask)
    return status, body


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("answer", "field"), MALFORMED)
async def test_what_cannot_be_read_is_answered_with_a_typed_error(
    answer: dict[str, Any], field: str, stream: bool
) -> None:
    status, body = await asked(answer, CHAT, stream=stream)
    error = json.loads(body)["error"]
    assert (status, error["code"], error["param"]) == (502, "model_answer_malformed", field)
    assert error["hocket"]["retryable"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answer", WELL_FORMED)
async def test_what_can_be_read_is_passed_on(answer: dict[str, Any], stream: bool) -> None:
    status, body = await asked(answer, CHAT, stream=stream)
    assert status == 200
    assert body.startswith(b"data: ") if stream else json.loads(body)["choices"] is not None


async def test_other_endpoints_have_their_own_shape() -> None:
    assert (await asked({"choices": [{"text": "x"}]}, "completions", stream=True))[0] == 200
    assert (await asked({"choices": [None]}, "completions", stream=True))[0] == 502
    assert (await asked({"data": []}, "embeddings", stream=True))[0] == 200


class Gateway:
    """Gives one answer to each call."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    async def make(self, request: CallRequest, headers: dict[str, str]) -> CallReply:
        return reply(self._answer)


@pytest.mark.parametrize(
    ("answer", "fails"), [(MALFORMED[1][0], True), (MALFORMED[-1][0], True), (chat({}), False)]
)
async def test_it_is_journaled_as_a_failure_that_was_paid_for(
    answer: dict[str, Any], fails: bool
) -> None:
    told: list[tuple[Any, Decimal, bool]] = []

    async def once(_: str, __: str, do: Callable[[], Awaitable[Any]]) -> tuple[Any, None]:
        told.append(await do())
        return told[-1][0], None

    step = RequestedStep(
        run_id="r1", tenant="t", pipeline="p", version=1, step="a", node="a", type="python",
        attempt=1, input={}, config={}, deadline_at_ms=1e12, slack_ms=0.0, timeout_ms=1.0,
        priority="standard", partition=0, epoch=1,
    )  # fmt: skip
    calls = AttemptCalls(
        Gateway(answer),  # type: ignore[arg-type]
        step,
        attempt_id="r1:a:1",
        delivery=1,
        deadline_at_ms=1e12,
        attribution=Attribution(tenant="t", run_id="r1"),
        traceparent="",
    )
    request = calls.request("writer", openai=OpenAIBody(path=CHAT, body={"model": "writer"}))
    given = await calls.reply(request, once)
    assert (given.error is not None) == fails
    ((value, cost_usd, has_failed),) = told
    assert (cost_usd, has_failed, "openai" in value) == (Decimal("0.25"), fails, not fails)
