"""A model's answer as JSON, whatever the model wrote."""

import asyncio
import json
from typing import Any

import pytest

from hocket.schemas.messages import CallReply
from hocket.workers.errors import ModelReplyCut, ModelReplyInvalid
from hocket.workers.nodes.prompts import structured
from hocket.workers.nodes.prompts.structured import (
    MAX_VALUES,
    READ_IN_THREAD_CHARS,
    READ_IN_THREAD_VALUES,
    data_of,
    read_data,
)


def reply(text: str, **fields: Any) -> CallReply:
    return CallReply(call_id="c", model="m", text=text, **fields)


def test_an_answer_of_very_many_values_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_of(reply(json.dumps([0] * MAX_VALUES)), {}) == [0] * MAX_VALUES
    many = reply(f"[{'[],' * MAX_VALUES}[]]")
    monkeypatch.setattr(structured.json, "loads", None)
    with pytest.raises(ModelReplyInvalid, match=f"it has more than {MAX_VALUES} values"):
        data_of(many, {})
    with pytest.raises(ModelReplyCut):
        data_of(many.model_copy(update={"finish_reason": "length"}), {})


@pytest.mark.parametrize(
    ("text", "data", "in_thread"),
    [
        ('{"a": 1}', None, False),
        (json.dumps(["x" * READ_IN_THREAD_CHARS]), None, True),
        ("", {"a": [0] * READ_IN_THREAD_VALUES}, True),
        ("", {"a": [0]}, False),
    ],
    ids=["small", "long text", "large data", "small data"],
)
async def test_a_large_answer_is_read_in_a_thread(
    text: str, data: Any, in_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    to_thread = asyncio.to_thread

    async def counted(function: Any, *arguments: Any) -> Any:
        threads.append(function)
        return await to_thread(function, *arguments)

    monkeypatch.setattr(structured.asyncio, "to_thread", counted)
    answer = reply(text, data=data)
    assert await read_data(answer, {}) == data_of(answer, {})
    assert bool(threads) == in_thread
    with pytest.raises(ModelReplyInvalid):
        await read_data(answer, {"type": "string"})
