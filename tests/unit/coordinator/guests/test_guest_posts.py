"""Results that workers with a key post, as the log gets them."""

from typing import Any

import pytest

from hocket.coordinator.guests.posts import GuestPosts
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas import ids, subjects
from hocket.schemas.messages import AttemptFinished, AttemptsFinished
from hocket.schemas.structs.results import FinishedAttempt, write

PARTITIONS = 4
RUN = ids.run_id("acme", "one")


def posted(body: bytes) -> tuple[str, bytes]:
    """Return the subject and body of what is posted to the log for a message."""
    bus: Any = None  # nothing is sent
    post = GuestPosts(bus, partitions=PARTITIONS, now_s=lambda: 1.0).result(
        "k1", RawMessage("hocket.guest.result.k1", "", body, b"")
    )
    return post.subject, post.body


@pytest.mark.parametrize("step", ["a", "results"])
@pytest.mark.parametrize("write_one", [write, lambda one: b" {" + write(one)[1:]])
def test_one_result_or_several_are_told_apart_whatever_their_steps_are_called(
    step: str, write_one: Any
) -> None:
    one = write_one(FinishedAttempt(RUN, step, 1))
    partition = ids.partition_of(RUN, PARTITIONS)
    assert posted(one) == (subjects.log(partition, AttemptFinished.kind), one)
    for several in (b'{"results":[%b,%b]}', b'{ "results" : [%b,%b]}'):
        body = several % (one, one)
        assert posted(body) == (subjects.log(partition, AttemptsFinished.kind), body)


@pytest.mark.parametrize("body", [b"", b'{"step": ', b"x" * 100_000])
def test_a_message_that_cannot_be_read_goes_to_the_log_of_the_attempt_that_its_id_names(
    body: bytes,
) -> None:
    bus: Any = None  # nothing is sent
    posts = GuestPosts(bus, partitions=PARTITIONS, now_s=lambda: 1.0)
    msg_id = f"{RUN}:a:1:1700000000000123:f:0c"
    head = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % msg_id.encode()
    post = posts.result("k1", RawMessage("hocket.guest.result.k1", "", body, head))
    log = subjects.log(ids.partition_of(RUN, PARTITIONS), AttemptFinished.kind)
    assert (post.subject, post.body, post.msg_id) == (log, body, msg_id)
    with pytest.raises(ValueError, match="JSON"):
        posts.result("k2", RawMessage("hocket.guest.result.k2", "", body, b""))
