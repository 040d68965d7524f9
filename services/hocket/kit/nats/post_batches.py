"""Many posts to a stream at once, stored with a single flush of the disk, because flushes are slow.

JetStream holds a batch back until its last message commits it, then stores all of it or nothing. If it
does not store a batch (the stream does not accept batches, is full, already has one of the posts, or
does not answer in time), the messages are posted one by one with the same ids. So a batch is faster, but
guarantees no more than its posts do: each is stored, and only once as long as the stream remembers its
id.
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
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas.errors import HocketError

MIN_POSTS = 50
"""Fewer posts are sent one by one: a batch costs the server as much time as this many flushes."""
MAX_POSTS = 500
"""Posts of one batch. The server accepts 1,000."""
MAX_BYTES = 8 * 1024 * 1024
"""Bytes of the payloads of one batch."""
MAX_AT_ONCE = 8
"""Batches that a process has in flight. The server accepts 50 per stream."""
ANSWER_S = 5.0
BATCH_ID, BATCH_SEQUENCE, BATCH_COMMIT = (
    "Nats-Batch-Id",
    "Nats-Batch-Sequence",
    "Nats-Batch-Commit",
)

log = structlog.get_logger(__name__)


class Post(NamedTuple):
    """A message for a stream, which deduplicates it by its id."""

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
        """Post messages to one stream. Return one entry per post, in order: None if it is stored,
        otherwise the reason why that is not known."""
        until_s = asyncio.get_running_loop().time() + timeout_s
        batches = [self._posted(batch, until_s) for batch in _batches(posts)]
        return [outcome for outcomes in await asyncio.gather(*batches) for outcome in outcomes]

    async def _posted(self, batch: Sequence[Post], until_s: float) -> list[HocketError | None]:
        if len(batch) >= MIN_POSTS and await self._posted_together(batch):
            return [None] * len(batch)
        return await self._posted_one_by_one(batch, until_s)

    async def _posted_together(self, batch: Sequence[Post]) -> bool:
        """Post a batch as a whole; tell whether the stream confirmed that all of it is stored."""
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
            reason = said.get("error", {}).get("description", "it was not recognized as a batch")
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
    """Return why a post is not known to be stored, None if it is. A post that is still waiting is
    cancelled."""
    if not sent.done():
        sent.cancel()
        return BusUnavailable(reason="the broker has not confirmed the task")
    error = sent.exception()
    if error is None or isinstance(error, HocketError):
        return error
    raise error
