"""JetStream publishing that loses nothing while the process lives.

A post is kept until the server acknowledges it. It is published again, with the same `Nats-Msg-Id`,
after a reconnect and when no acknowledgement came within `ACK_TIMEOUT_S` (the stream drops the repeat).
A post that a stream refuses for now (it is full, has no leader, or does not exist yet) is retried
every REFUSED_RETRY_S and the refusal is logged; one that can never succeed fails with PublishRefused.

A post with its acknowledgement costs 9 us of CPU; nats-py's `publish_async` costs 21 us and never
retries.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.connection.client import ReconnectingClient
from hocket.kit.nats.connection.commands import MSG_ID, publish_command
from hocket.kit.nats.connection.post_answers import PubAck, read_post_answer
from hocket.kit.nats.connection.socket_writer import SocketWriter
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.kit.nats.protocol import RawMessage

ACK_TIMEOUT_S = 5.0
"""How long a post waits for its acknowledgement before it is published again."""
REFUSED_RETRY_S = 0.5
"""How soon a post that a stream refused for now is published again."""
STALLED_S = 2 * ACK_TIMEOUT_S
"""How long a post may wait before its connection reports it as stalled."""
SWEEP_S = 0.5
TEMPORARY = frozenset({503})
"""API error codes after which the same post may succeed: no leader, no space yet, restarting."""
IN_PROCESS = 10_158
"""JetStream's code for a repeated post while the servers still agree on the first try, which can still
fail with its leader: only another try shows whether it is stored."""

log = structlog.get_logger(__name__)


class _Post:
    __slots__ = (
        "command",
        "due_at",
        "future",
        "made_at",
        "refusal",
        "repeated",
        "sent",
        "subject",
    )

    def __init__(
        self,
        command: bytes,
        subject: str,
        future: asyncio.Future[PubAck],
        made_at: float,
        sent: bool,
    ) -> None:
        self.command = command
        self.subject = subject
        self.future = future
        self.made_at = made_at
        self.due_at = made_at + ACK_TIMEOUT_S
        self.sent = sent
        self.repeated = False
        self.refusal = ""


class DurablePublisher:
    """The posts of one connection that are not acknowledged yet, at most `window` if callers wait for
    capacity. Messages on the subjects below `inbox` go to `acknowledged`."""

    def __init__(
        self, client: ReconnectingClient, writer: SocketWriter, reports: Reporting, *, window: int
    ) -> None:
        self._client = client
        self._writer = writer
        self._reports = reports
        self.window = window
        """How many posts may be unacknowledged before `wait_for_capacity` waits."""
        self.inbox = client.new_inbox()
        """The prefix of the subjects for acknowledgements; each post adds a token of its own."""
        self._posts: dict[str, _Post] = {}
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closing = False
        self.is_held = False
        """Whether posts are kept until `publish_again`, because the connection was lost."""
        self.is_full = False
        """Whether too many posts are unacknowledged for another one."""
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()

    @property
    def unacknowledged(self) -> int:
        """How many posts wait for their acknowledgement."""
        return len(self._posts)

    @property
    def stalled(self) -> str:
        """Which post no stream has acknowledged for STALLED_S, and why; empty while all is well. A
        stream that met a full disk answers nobody until its server is restarted."""
        if not self._posts:
            return ""
        oldest = next(iter(self._posts.values()))
        waits_s = self._loop.time() - oldest.made_at
        if waits_s < STALLED_S:
            return ""
        why = oldest.refusal or (
            "its stream does not answer; if the disk of NATS was full, free space and restart it"
        )
        return f"`{oldest.subject}` is not acknowledged for {waits_s:.0f} s: {why}"

    def publish(
        self,
        subject: str,
        payload: bytes,
        msg_id: str | None,
        headers: Mapping[str, str] | None,
        reserve_bytes: int,
    ) -> asyncio.Future[PubAck]:
        """Publish and return the future of the acknowledgement, as described in
        `Bus.publish_durable`."""
        if self._closing:
            raise BusUnavailable(reason="the connection was closed")
        self._count += 1
        token = str(self._count)
        reply = f"{self.inbox}.{token}"
        client, loop = self._client, self._loop
        limit_bytes = client.max_payload - reserve_bytes
        named = headers is not None and MSG_ID in headers
        known_as = None if named else msg_id or reply
        command = publish_command(subject, payload, reply, headers, limit_bytes, known_as)
        future: asyncio.Future[PubAck] = loop.create_future()
        sends = client.is_connected and not self.is_held
        self._posts[token] = _Post(command, subject, future, loop.time(), sends)
        if len(self._posts) >= self.window:
            self.is_full = True
            self._has_capacity.clear()
        if self._sweeping is None:
            self._sweeping = loop.call_later(SWEEP_S, self._sweep)
        if sends:
            self._writer.write(command)
        return future

    async def wait_for_capacity(self) -> None:
        """Wait while too many posts are unacknowledged."""
        while len(self._posts) >= self.window:
            await self._has_capacity.wait()

    def refusal_of(self, future: asyncio.Future[PubAck] | None) -> str:
        """Return why a stream refuses a post for now; empty if it does not."""
        posts = self._posts.values()
        return next((post.refusal for post in posts if post.future is future), "")

    def publish_again(self) -> None:
        """Publish all unacknowledged posts again, after a reconnect."""
        self.is_held = False
        self._repeat(list(self._posts.values()))

    def stop_accepting(self) -> None:
        """Refuse further posts."""
        self._closing = True

    async def until_acknowledged(self) -> None:
        """Wait until all current posts are acknowledged or have failed."""
        futures = [post.future for post in self._posts.values() if not post.future.done()]
        if futures:
            await asyncio.wait(futures)

    def give_up(self) -> None:
        """Fail all posts with BusUnavailable, because their connection is closed."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        lost = [post.future for post in self._posts.values() if not post.future.done()]
        if lost:
            log.warning("bus_closed_with_posts", unacknowledged=len(lost))
        for future in lost:
            future.set_exception(BusUnavailable(reason="the connection was closed"))
            future.exception()  # mark it as retrieved, in case no caller waits: the loss is logged above
        self._posts.clear()
        self.is_full = False
        """Whether too many posts are unacknowledged for another one."""
        self._has_capacity.set()

    def acknowledged(self, frame: RawMessage) -> None:
        """Resolve a post with its stream's answer, or schedule another try."""
        token, data = frame.subject.rsplit(".", 1)[1], frame.data
        post = self._posts.get(token)
        if post is None:
            return
        if not data:  # "no responders"
            self._refused_for_now(post, "no stream takes this subject")
            return
        answer = read_post_answer(data)
        error = answer.error
        if error is not None and _is_temporary(error):
            self._refused_for_now(post, error.get("description", ""))
            return
        self._forget(token)
        future = post.future
        if future.done():
            return
        if error is None:
            future.set_result(PubAck(answer.stream, answer.seq, answer.duplicate, post.repeated))
        else:
            refused = PublishRefused(
                subject=post.subject,
                reason=error.get("description", ""),
                err_code=error.get("err_code", 0),
            )
            future.set_exception(refused)

    def _refused_for_now(self, post: _Post, reason: str) -> None:
        post.due_at = self._loop.time() + REFUSED_RETRY_S
        post.refusal = reason
        if self._reports.due(reason):
            log.warning("bus_post_refused_for_now", subject=post.subject, reason=reason)

    def _forget(self, token: str) -> None:
        self._posts.pop(token, None)
        if self.is_full and len(self._posts) < self.window:
            self.is_full = False
            self._has_capacity.set()

    def _sweep(self) -> None:
        self._sweeping = None
        try:
            for token in [t for t, post in self._posts.items() if post.future.cancelled()]:
                self._forget(token)
            now = self._loop.time()
            if self._client.is_connected and not self.is_held and not self._writer.is_behind:
                self._repeat([post for post in self._posts.values() if post.due_at <= now])
        finally:  # even if memory ran out this time
            if self._posts and not self._client.is_closed:
                self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)

    def _repeat(self, posts: list[_Post]) -> None:
        due_at = self._loop.time() + ACK_TIMEOUT_S
        for post in posts:
            post.due_at, post.sent, post.repeated = due_at, True, post.sent
            self._writer.write(post.command)


def _is_temporary(error: Mapping[str, Any]) -> bool:
    """Return whether the same post may succeed later."""
    return error.get("code") in TEMPORARY or error.get("err_code") == IN_PROCESS
