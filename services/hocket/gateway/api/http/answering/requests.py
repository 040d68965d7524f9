"""Dispatches each request: who sends it, whether it is let in, and which handler answers it."""

import structlog
from aiohttp import web

from hocket.gateway.api.http import connections, identity
from hocket.gateway.api.http.answering.calls import HttpCalls
from hocket.gateway.api.http.answering.checks import RequestChecks
from hocket.gateway.api.http.answering.paths import DOCUMENT, POSTS, PREFIX, path_of
from hocket.gateway.api.http.answering.reads import HttpReads
from hocket.gateway.api.http.answering.replies import Failures
from hocket.gateway.api.http.errors import MethodNotAllowed
from hocket.gateway.api.http.keys import DoorKeys
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.config.access import Key
from hocket.gateway.core.errors import GatewayBroken, GatewayFull
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.process import clock
from hocket.kit.request_turns import Turn, Turns
from hocket.schemas.errors import HocketError

MAX_REQUESTS = 4_096
"""The most requests handled at once; calls have a limit of their own."""
BUSY_RETRY_MS = 1_000.0

log = structlog.get_logger()


class HttpRequests:
    """Answers requests until told to take no more."""

    def __init__(
        self,
        registry: CallRegistry,
        keys: DoorKeys,
        metrics: GatewayMetrics,
        checks: RequestChecks,
        reads: HttpReads,
    ) -> None:
        self._keys = keys
        self._metrics = metrics
        self._checks = checks
        self._failures = Failures(metrics)
        self._reads = reads
        self._calls = HttpCalls(registry, self._failures)
        self._requests = 0
        self._turns = Turns()
        self._closing = False

    def take_no_more(self) -> None:
        """Refuse new requests from now on."""
        self._closing = True

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request when it is its caller's turn."""
        self._requests += 1
        self._metrics.http_requests.inc()
        turn: Turn | None = None
        try:
            self._checks.check_page(request)
            key = await self._key(request)
            turn = self._turns.turn(*_caller_of(request, key))
            await turn.take()
            with self._keys.open(key):
                return await self._answered(request, key, turn)
        except MethodNotAllowed as error:
            refused = self._failures.answer(error.info())
            refused.headers["Allow"] = error.fields["allowed"]
            return refused
        except HocketError as error:
            return self._failures.answer(error.info())
        except ConnectionError:
            raise
        except Exception as error:
            log.exception("http_request_crashed", path=request.path)
            broken = GatewayBroken(reason=type(error).__name__, component="gateway").info()
            return self._failures.answer(broken)
        finally:
            if turn is not None:
                turn.give_back()
            self._requests -= 1

    async def _key(self, request: web.BaseRequest) -> Key | None:
        """Return the key of a request; the API document needs none."""
        if request.path.removeprefix(PREFIX) == DOCUMENT:
            self._keys.limit_stranger(_address_of(request))
            return None
        return await self._keys.key(request.headers)

    async def _answered(
        self, request: web.BaseRequest, key: Key | None, turn: Turn
    ) -> web.StreamResponse:
        path = path_of(request)
        if self._requests > MAX_REQUESTS or self._closing:
            raise GatewayFull(
                limit=MAX_REQUESTS,
                component="gateway",
                retry_at_ms=clock.now_ms() + BUSY_RETRY_MS,
            )
        if request.method == "POST" and path in POSTS:
            self._checks.check_call(request, key)
            return await self._calls.answer(path, request, key, turn)
        return self._reads.answer(request, path, key)


def _caller_of(request: web.BaseRequest, key: Key | None) -> tuple[object, str, str]:
    """Return connection, address and tenant of a request, as far as they are known."""
    transport = request.transport
    connection = transport.get_extra_info("peername") if transport is not None else None
    tenant = key.tenant if key is not None else None
    return connection, _address_of(request), tenant or request.headers.get(identity.TENANT) or ""


def _address_of(request: web.BaseRequest) -> str:
    return connections.address_of(request.transport) if request.transport is not None else ""
