"""nats-py's client, which tells nobody its password in plain text where TLS is wanted.

nats-py upgrades a connection only if the server's first message asks for it, which is not encrypted:
whoever stands between could leave that out. Here, a connection on which TLS is wanted and did not begin
fails before anything is sent over it.
"""

from nats.aio.client import Client
from nats.errors import Error as NatsError


class EncryptedClient(Client):
    """A client that fails where `tls` is given, or a server's URL begins with `tls:`, and the server
    does not offer TLS."""

    def _connect_command(self) -> bytes:
        server = self._current_server
        scheme = "" if server is None else server.uri.scheme
        if (self.options.get("tls") or scheme == "tls") and scheme != "wss":
            writer = getattr(self._transport, "_io_writer", None)
            if writer is None or writer.get_extra_info("ssl_object") is None:
                raise NatsError("the server does not offer TLS, which its URL asks for")
        command: bytes = super()._connect_command()
        return command
