"""The requests of one connection that wait for their answers, which come to one inbox.

A request of nats-py's client has a timer, a turn of its flusher and a queued message each; here it is a
line written and a future, which ends where the answer is read. Who asks bounds the wait.
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
"""How the server begins its answer to a request that nobody is subscribed for."""


class Answers:
    """What was asked over a connection. What comes to the subjects below `inbox` is for `answered`."""

    def __init__(self, client: ReconnectingClient, writer: SocketWriter) -> None:
        self.inbox = client.new_inbox()
        """Where answers come, each under a token of its own."""
        self._client = client
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, tuple[str, asyncio.Future[RawMessage]]] = {}
        self._count = 0

    def ask(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None
    ) -> asyncio.Future[RawMessage]:
        """Send a request; see `Bus.ask`."""
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
        """End a request with its answer."""
        subject, answer = self._waiting.get(message.subject.rpartition(".")[2], ("", None))
        if answer is None or answer.done():
            return
        if message.head.startswith(NOBODY_LISTENS):
            answer.set_exception(BusUnavailable(reason=f"nobody listens on {subject}"))
        else:
            answer.set_result(message)

    def give_up(self) -> None:
        """End all requests with BusUnavailable: their connection is closed."""
        for _, answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(BusUnavailable(reason="the connection was closed"))
                answer.exception()  # a caller that does not wait for it need not hear of it
