"""Requests by route, method and status, for Prometheus."""

import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
UNROUTED = "(none)"


class RequestMetrics:
    """ASGI middleware: counts requests and times them until their last byte. The route is its template
    (`/v1/runs/{run_id}`), so that there are only a few label values."""

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry) -> None:
        self._app = app
        self._served = Counter(
            "hocket_api_requests_total",
            "Requests answered by the API.",
            ("route", "method", "status"),
            registry=registry,
        )
        self._latency = Histogram(
            "hocket_api_request_seconds",
            "Time from a request's header to the last byte of its response.",
            ("route", "method"),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._meters: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        """Counter and histogram by their labels; cached, because looking them up takes longer than
        counting."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", UNROUTED)
            served, latency = self._labelled(route, scope["method"], status)
            served.inc()
            latency.observe(time.perf_counter() - began)

    def _labelled(self, route: str, method: str, status: int) -> tuple[Counter, Histogram]:
        found = self._meters.get((route, method, status))
        if found is None:
            served = self._served.labels(route, method, status)
            found = served, self._latency.labels(route, method)
            self._meters[route, method, status] = found
        return found
