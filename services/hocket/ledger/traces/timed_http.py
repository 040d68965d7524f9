"""HTTP connections that limit the total time in which the head of an answer must arrive.

A socket's timeout restarts with each byte, so a server that sends a head byte by byte could
otherwise take hours.
"""

import socket
import threading
from contextlib import suppress
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import HTTPResponse


class _TimedHttp(HTTPConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # typed as in urllib3
        """Return an answer; raise TimeoutError if its head does not arrive within `timeout`."""
        is_late = threading.Event()
        wire = self.sock

        def cut() -> None:
            is_late.set()
            with suppress(OSError):  # already closed
                socket.socket.shutdown(wire, socket.SHUT_RDWR)

        watch = threading.Timer(float(self.timeout or 0), cut)
        watch.daemon = True
        watch.start()
        try:
            answer = super().getresponse()
        finally:
            watch.cancel()
        if is_late.is_set():  # a cut-off head can look complete
            answer.close()
            raise TimeoutError("the head of the answer took too long")
        return answer


class _TimedHttps(_TimedHttp, HTTPSConnection):
    """The same as `_TimedHttp`, over TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _TimedHttp


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TimedHttps


class TimedAdapter(HTTPAdapter):
    """Gives a `requests` session such connections; connections through a proxy are the usual ones."""

    def init_poolmanager(self, *given: Any, **options: Any) -> None:
        """Create the connection pools."""
        super().init_poolmanager(*given, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
