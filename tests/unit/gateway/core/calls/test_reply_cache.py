"""Remembered replies stay inside their limits."""

from typing import Any

import pytest

from hocket.gateway.core.calls.reply_cache import RecentReplies, size_bytes
from hocket.schemas.messages import CallReply


def test_a_reply_is_found_until_it_is_too_old() -> None:
    replies = RecentReplies[bytes](max_age_ms=100)
    replies.keep("c", b"x", 1, now_ms=0)
    assert (replies.find("c", 100), replies.find("c", 101)) == (b"x", None)


def test_the_oldest_reply_falls_out_beyond_the_count() -> None:
    replies = RecentReplies[bytes](max_replies=2)
    for call in ("a", "b", "c"):
        replies.keep(call, b"x", 1, now_ms=0)
    assert [replies.find(call, 0) for call in ("a", "b", "c")] == [None, b"x", b"x"]


def test_the_oldest_replies_fall_out_beyond_the_bytes() -> None:
    replies = RecentReplies[bytes](max_bytes=10)
    replies.keep("a", b"x" * 6, 6, now_ms=0)
    replies.keep("b", b"x" * 6, 6, now_ms=0)
    assert (replies.find("a", 0), len(replies)) == (None, 1)


def test_old_replies_are_let_go_when_a_new_one_comes() -> None:
    replies = RecentReplies[bytes](max_age_ms=100)
    replies.keep("a", b"x", 1, now_ms=0)
    replies.keep("b", b"x", 1, now_ms=200)
    assert len(replies) == 1


def test_a_reply_kept_twice_counts_once() -> None:
    replies = RecentReplies[bytes](max_bytes=10)
    replies.keep("a", b"x" * 6, 6, now_ms=0)
    replies.keep("a", b"y" * 6, 6, now_ms=1)
    assert replies.find("a", 1) == b"y" * 6


def test_an_answer_counts_with_all_its_values() -> None:
    numbers = {"data": [{"embedding": [0.5] * 10_000}]}
    nested: dict[str, Any] = {"data": [{"embedding": [[]] * 10_000}]}
    for one, most in ((numbers, 1_000_000), (nested, 2_000_000)):
        for reply in (CallReply(call_id="c", openai=one), CallReply(call_id="c", data=one)):
            size = size_bytes(reply, 100_000)
            assert size is not None
            assert 300_000 < size < most
            assert size_bytes(reply) is None


@pytest.mark.parametrize(
    "data",
    [
        ["x", "y" * 100_000] * 8,
        {"k" * 1_000_000: 1},
        {str(number): "" if number < 64 else "y" * 100_000 for number in range(80)},
        [dict.fromkeys(map(str, range(64))), *[{}] * 80, ["y" * 1_000_000]],
    ],
    ids=["every second text", "a name", "the last fields", "what comes late"],
)
def test_nothing_that_is_large_goes_uncounted(data: Any) -> None:
    size = size_bytes(CallReply(call_id="c", data=data))
    assert size is not None
    assert size > 800_000
