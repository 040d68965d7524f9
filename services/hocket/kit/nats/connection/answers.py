"""The requests of one connection that wait for their answers, which arrive on one inbox.

In nats-py, each request needs a timer, a run of the flusher and a queued message. Here it is one line
written to the socket and a future, which is resolved as the answer is parsed. The caller bounds the
wait.
"""

import asyncio
from collections.abc import Mapping

from hocket.kit.nats.connection.client import ReconnectingClient
from hocket.kit.nats.connection.commands import publish_command
from hocket.kit.nats.connection.connection import PENDING_BYTES
from hocket.kit.nats.connection.socket_writer import SocketWriter
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage

NOBODY_LISTENS = b"NATS/1.0 503"
"""The beginning of the server's answer to a request whose subject has no subscriber."""


class Answers:
    """The open requests of a connection. Messages on the subjects below `inbox` go to `answered`."""

    def __init__(self, client: ReconnectingClient, writer: SocketWriter) -> None:
        self.inbox = client.new_inbox()
        """The prefix of the reply subjects; each request adds a token of its own."""
        self._client = client
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, tuple[str, asyncio.Future[RawMessage]]] = {}
        self._count = 0

    def ask(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None
    ) -> asyncio.Future[RawMessage]:
        """Send a request, as described in `Bus.ask`."""
        answer: asyncio.Future[RawMessage] = self._loop.create_future()
        client = self._client
        if client.is_closed:
            answer.set_exception(BusUnavailable(reason="the connection was closed"))
            return answer
        if client.pending_data_size >= PENDING_BYTES:
            answer.set_exception(BusUnavailable(reason="the server does not read what is sent"))
            return answer
        self._count += 1
        token = str(self._count)
        reply = f"{self.inbox}.{token}"
        self._writer.write(publish_command(subject, payload, reply, headers, client.max_payload))
        self._waiting[token] = subject, answer
        answer.add_done_callback(lambda _: self._waiting.pop(token, None))
        return answer

    def answered(self, message: RawMessage) -> None:
        """Resolve a request with its answer."""
        subject, answer = self._waiting.get(message.subject.rpartition(".")[2], ("", None))
        if answer is None or answer.done():
            return
        if message.head.startswith(NOBODY_LISTENS):
            answer.set_exception(BusUnavailable(reason=f"nobody listens on {subject}"))
        else:
            answer.set_result(message)

    def give_up(self) -> None:
        """Fail all requests with BusUnavailable, because their connection is closed."""
        for _, answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(BusUnavailable(reason="the connection was closed"))
                answer.exception()  # mark it as retrieved, in case no caller waits for it
