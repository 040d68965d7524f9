"""nats-py's client, which reads any bytes in headers and subjects.

Its own methods raise on those that are not UTF-8, which would end the loop that reads the connection.
It overrides undocumented parts of nats-py, which is why the version of nats-py is pinned.
"""

from nats.aio.msg import Msg

from hocket.kit.nats.connection.encrypted_client import EncryptedClient
from hocket.kit.nats.protocol import headers_of, text_of


class LenientClient(EncryptedClient):
    """A client that no message can stop."""

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        return headers_of(headers) or None if headers else None

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
