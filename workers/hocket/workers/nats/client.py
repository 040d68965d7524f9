"""nats-py's client, which no answer of a service can break for the others that share the connection.

It overrides undocumented parts of nats-py, which is why the version of nats-py is pinned.
"""

from nats.errors import ConnectionClosedError
from nats.errors import Error as NatsError

from hocket.kit.nats.connection.lenient_client import LenientClient

MAX_HEADER_BYTES = 64 * 1024
"""The limit on the headers of an answer."""


class UnreadHeaders(dict[str, str]):
    """In place of headers that are larger than MAX_HEADER_BYTES."""


class ConnectionBroke(ConnectionClosedError):
    """A connection ended while requests over it had no answer."""

    def __str__(self) -> str:
        return "the connection broke before the answer came"


class ServiceClient(LenientClient):
    """A client that is closed once it can read nothing more; requests without an answer then fail."""

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        if headers and len(headers) > MAX_HEADER_BYTES:
            return UnreadHeaders()
        return await super()._process_headers(headers)

    async def _read_loop(self) -> None:
        await super()._read_loop()
        task = self._reading_task
        if self.is_connected and task is not None and not task.cancelling():
            await self._process_op_err(NatsError("what the server sends could not be read"))

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        for answer in list(self._resp_map.values()):
            if not answer.done():
                answer.set_exception(ConnectionBroke())
                answer.exception()  # whoever asked may no longer wait for it
        await super()._close(status, do_cbs)
