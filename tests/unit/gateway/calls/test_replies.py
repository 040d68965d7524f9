"""Replies that are remembered under one id, to different questions."""

import pytest

from hocket.gateway.calls import replies
from hocket.gateway.calls.replies import MAX_QUESTIONS, RememberedReplies
from hocket.gateway.core.calls.call_key import digest
from hocket.gateway.core.calls.reply_cache import MAX_AGE_MS
from hocket.kit.process import clock
from hocket.schemas.messages import CallReply, CallRequest, ChatMessage
from support.gateway.routing_rig import request


def asked(number: int) -> CallRequest:
    question = ChatMessage(role="user", content=f"question {number}")
    return request("c").model_copy(update={"messages": (question,)})


def told(number: int) -> CallReply:
    return CallReply(call_id="c", model="writer", text=f"answer {number}")


def test_each_reply_has_an_age_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 0.0
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms)
    remembered = RememberedReplies()
    for number in range(3):
        now_ms = number * 0.9 * MAX_AGE_MS
        remembered.keep(asked(number), told(number), digest(asked(number)))
    assert [remembered.of(asked(number)) for number in range(3)] == [None, told(1), told(2)]


def test_the_oldest_goes_where_one_id_has_too_many_or_too_large_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remembered = RememberedReplies()
    for number in range(MAX_QUESTIONS + 1):
        remembered.keep(asked(number), told(number), digest(asked(number)))
    assert remembered.of(asked(0)) is None
    assert remembered.of(asked(1)) == told(1)
    monkeypatch.setattr(replies, "MAX_KEY_BYTES", 1)
    remembered.keep(asked(9), told(9), digest(asked(9)))
    assert [remembered.of(asked(number)) for number in (4, 9)] == [None, told(9)]
