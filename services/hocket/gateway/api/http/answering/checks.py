"""What is checked of a request before it is read."""

from aiohttp import web

from hocket.gateway.api.http.answering.paths import check_query
from hocket.gateway.core.config.access import Key
from hocket.kit.process.limits.disk_space import DiskSpace
from hocket.kit.web_requests import WebRules, check_encoding, check_media_type
from hocket.schemas.access.roles import Permission


class RequestChecks:
    """Who may ask in what form: `rules` say which pages may, `disk` whether a call can be booked."""

    def __init__(self, rules: WebRules, disk: DiskSpace) -> None:
        self._rules = rules
        self._disk = disk

    def check_page(self, request: web.BaseRequest) -> None:
        """Raise where a page of another origin asks, or under a name that is not ours."""
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
        """Raise where a call cannot be taken, as far as its head says."""
        self._disk.check()
        check_query(request)
        if key is not None:
            key.needs(Permission.MODELS_CALL)
        check_media_type(request.headers.getall("Content-Type", ()))
        check_encoding(request.headers.getall("Content-Encoding", ()))
