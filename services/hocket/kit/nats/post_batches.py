"""Many posts to a stream at once, stored with one flush of the disk, which takes as long as hundreds.

JetStream keeps a batch aside until its last message says that it is whole, then stores all of it or
nothing. What it does not store so (the stream takes no batches, is full, has a post of it already, or
says nothing in time) is posted one by one with the same ids. So a batch is quicker, and promises no more
than its posts do: each is stored, and once as far as the stream still knows its ids.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

import structlog
from pydantic_core import from_json

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection.commands import MSG_ID
from hocket.kit.nats.connection.durable_publisher import PubAck
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas.errors import HocketError

MIN_POSTS = 50
"""Fewer are posted one by one: making a batch takes the server as long as so many flushes."""
MAX_POSTS = 500
"""In a batch. The server takes 1,000."""
MAX_BYTES = 8 * 1024 * 1024
"""Of their payloads."""
MAX_AT_ONCE = 8
"""Batches of a process that are under way. The server takes 50 of a stream."""
ANSWER_S = 5.0
BATCH_ID, BATCH_SEQUENCE, BATCH_COMMIT = (
    "Nats-Batch-Id",
    "Nats-Batch-Sequence",
    "Nats-Batch-Commit",
)

log = structlog.get_logger(__name__)


class Post(NamedTuple):
    """A message for a stream, known to it by its id."""

    subject: str
    payload: bytes
    msg_id: str
    headers: Mapping[str, str]


class PostBatches:
    """Posts many messages over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._places = asyncio.Semaphore(MAX_AT_ONCE)
        self._reporting = Reporting()

    async def post(self, posts: Sequence[Post], *, timeout_s: float) -> list[HocketError | None]:
        """Post messages of one stream; return for each why it is not known to be stored, None where it
        is."""
        until_s = asyncio.get_running_loop().time() + timeout_s
        batches = [self._posted(batch, until_s) for batch in _batches(posts)]
        return [outcome for outcomes in await asyncio.gather(*batches) for outcome in outcomes]

    async def _posted(self, batch: Sequence[Post], until_s: float) -> list[HocketError | None]:
        if len(batch) >= MIN_POSTS and await self._posted_together(batch):
            return [None] * len(batch)
        return await self._posted_one_by_one(batch, until_s)

    async def _posted_together(self, batch: Sequence[Post]) -> bool:
        """Tell whether the stream has stored a whole batch, as far as it says."""
        batch_id = uuid4().hex
        async with self._places:
            try:
                for place, post in enumerate(batch[:-1], 1):
                    self._bus.publish_nowait(
                        post.subject, post.payload, _headers(post, batch_id, place)
                    )
                last = batch[-1]
                headers = _headers(last, batch_id, len(batch)) | {BATCH_COMMIT: "1"}
                answer = await self._bus.request(
                    last.subject, last.payload, timeout_ms=1_000 * ANSWER_S, headers=headers
                )
                said = from_json(answer.data)
            except (HocketError, ValueError) as error:
                said = {"error": {"description": str(error)}}
        if said.get("count") == len(batch) and "error" not in said:
            return True
        if count := self._reporting.due("batch"):
            reason = said.get("error", {}).get("description", "it was not taken for a batch")
            log.info("posts_not_stored_together", reason=reason, posts=len(batch), count=count)
        return False

    async def _posted_one_by_one(
        self, batch: Sequence[Post], until_s: float
    ) -> list[HocketError | None]:
        sent: list[asyncio.Future[PubAck] | HocketError] = []
        for post in batch:
            try:
                async with asyncio.timeout_at(until_s):
                    await self._bus.wait_for_capacity()
                sent.append(
                    self._bus.publish_durable(
                        post.subject, post.payload, msg_id=post.msg_id, headers=post.headers
                    )
                )
            except TimeoutError:
                sent.append(BusUnavailable(reason="the broker is behind with storing messages"))
            except HocketError as error:
                sent.append(error)
        waiting = [one for one in sent if isinstance(one, asyncio.Future)]
        if waiting:
            left_s = max(until_s - asyncio.get_running_loop().time(), 0.0)
            await asyncio.wait(waiting, timeout=left_s)
        return [one if isinstance(one, HocketError) else _outcome(one) for one in sent]


def _batches(posts: Sequence[Post]) -> Iterator[Sequence[Post]]:
    begin = size_bytes = 0
    for place, post in enumerate(posts):
        size_bytes += len(post.payload)
        if place - begin >= MAX_POSTS or (size_bytes > MAX_BYTES and place > begin):
            yield posts[begin:place]
            begin, size_bytes = place, len(post.payload)
    if begin < len(posts):
        yield posts[begin:]


def _headers(post: Post, batch_id: str, place: int) -> dict[str, str]:
    return {
        **post.headers,
        MSG_ID: post.msg_id,
        BATCH_ID: batch_id,
        BATCH_SEQUENCE: str(place),
    }


def _outcome(sent: "asyncio.Future[PubAck]") -> HocketError | None:
    """Return why a post is not known to be stored; whoever does not wait any more gives it up."""
    if not sent.done():
        sent.cancel()
        return BusUnavailable(reason="the broker has not confirmed the task")
    error = sent.exception()
    if error is None or isinstance(error, HocketError):
        return error
    raise error
