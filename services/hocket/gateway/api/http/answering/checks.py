"""Checks on a request before its body is read."""

from aiohttp import web

from hocket.gateway.api.http.answering.paths import check_query
from hocket.gateway.core.config.access import Key
from hocket.kit.process.limits.disk_space import DiskSpace
from hocket.kit.web_requests import WebRules, check_encoding, check_media_type
from hocket.schemas.access.roles import Permission


class RequestChecks:
    """Checks who may send requests, and in what form.

    `rules` say which web pages may send requests; `disk` tells whether there is room to book calls.
    """

    def __init__(self, rules: WebRules, disk: DiskSpace) -> None:
        self._rules = rules
        self._disk = disk

    def check_page(self, request: web.BaseRequest) -> None:
        """Raise if the request comes from a web page of another origin, or uses a foreign host name."""
        headers = request.headers
        self._rules.check(
            request.method,
            host=headers.getall("Host", ()),
            origin=headers.getall("Origin", ()),
            fetch_site=headers.get("Sec-Fetch-Site"),
            fetch_mode=headers.get("Sec-Fetch-Mode"),
            fetch_dest=headers.get("Sec-Fetch-Dest"),
        )

    def check_call(self, request: web.BaseRequest, key: Key | None) -> None:
        """Raise if a call cannot be accepted, as far as its head tells."""
        self._disk.check()
        check_query(request)
        if key is not None:
            key.needs(Permission.MODELS_CALL)
        check_media_type(request.headers.getall("Content-Type", ()))
        check_encoding(request.headers.getall("Content-Encoding", ()))
