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
