"""HTTP connections of which an answer's head is whole within their time.

A socket's time begins anew with each byte, so that a head that drips would be waited for over hours.
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
    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 has it
        """Return an answer; raises TimeoutError where its head is not there within `timeout`."""
        is_late = threading.Event()
        wire = self.sock

        def cut() -> None:
            is_late.set()
            with suppress(OSError):  # it is closed already
                socket.socket.shutdown(wire, socket.SHUT_RDWR)

        watch = threading.Timer(float(self.timeout or 0), cut)
        watch.daemon = True
        watch.start()
        try:
            answer = super().getresponse()
        finally:
            watch.cancel()
        if is_late.is_set():  # what was cut off can look like the end of the head
            answer.close()
            raise TimeoutError("the head of the answer took too long")
        return answer


class _TimedHttps(_TimedHttp, HTTPSConnection):
    """The same over TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _TimedHttp


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TimedHttps


class TimedAdapter(HTTPAdapter):
    """Makes such connections, for a session of requests; those through a proxy are the usual ones."""

    def init_poolmanager(self, *given: Any, **options: Any) -> None:
        """Make the pools."""
        super().init_poolmanager(*given, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
