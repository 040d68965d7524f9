"""nats-py's client, which no answer of a service can break for the others that share the connection.

It overrides undocumented parts of nats-py, which is why the version of nats-py is pinned.
"""

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from hocket.kit.nats.connection.encrypted_client import EncryptedClient
from hocket.kit.nats.protocol import headers_of, text_of

MAX_HEADER_BYTES = 64 * 1024
"""The limit on the headers of an answer."""


class UnreadHeaders(dict[str, str]):
    """In place of headers that are larger than MAX_HEADER_BYTES."""


class ServiceClient(EncryptedClient):
    """A client that reads any headers and subjects, and is closed once it can read nothing more."""

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        # the client's own method raises on bytes that are not UTF-8, which would end the read loop
        if not headers:
            return None
        if len(headers) > MAX_HEADER_BYTES:
            return UnreadHeaders()
        return headers_of(headers) or None

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        return self.msg_class(
            subject=text_of(subject),
            reply=text_of(reply),
            data=data,
            headers=headers,
            _client=self,
            _sid=sid,
        )

    async def _read_loop(self) -> None:
        await super()._read_loop()
        task = self._reading_task
        if self.is_connected and task is not None and not task.cancelling():
            await self._process_op_err(NatsError("what the server sends could not be read"))
