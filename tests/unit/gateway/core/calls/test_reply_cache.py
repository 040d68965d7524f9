"""Remembered replies stay inside their limits."""

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


def test_an_answer_in_openais_format_counts_with_all_its_values() -> None:
    numbers = {"data": [{"embedding": [0.5] * 10_000}]}
    nested = {"data": [{"embedding": [[]] * 10_000}]}
    sizes = [size_bytes(CallReply(call_id="c", openai=one)) for one in (numbers, nested)]
    assert 400_000 < sizes[0] < 1_000_000
    assert sizes[1] > 1_000_000


def test_a_large_answer_is_counted_from_a_sample() -> None:
    answer = {"data": [{"embedding": [0.123456789] * 1_000}] * 100}
    reply = CallReply(call_id="c", openai=answer)
    assert 2_000_000 < size_bytes(reply) < 6_000_000
