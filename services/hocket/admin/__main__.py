"""`python -m hocket.admin`: the REST API as a process.

It starts once the broker and the database can be reached. If either is lost, `/readyz` shows it and
requests get 503 until it is back. After a stop signal it is no longer ready, and goes on for
`HOCKET_DRAIN_DELAY_S`; then it accepts no new requests, answers those in progress within
`DRAIN_TIMEOUT_S`, and ends waits early with a receipt.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import asyncpg
import uvicorn
from pydantic import SecretStr

from hocket.admin.app import make_app
from hocket.admin.background import working
from hocket.admin.connections import WatchedConnection, watch
from hocket.admin.context import Context
from hocket.admin.keys.answering import KeysDoor
from hocket.admin.nats_access.service import nats_access
from hocket.admin.node_types.registry import NodeTypes
from hocket.admin.requests.forwarded import Forwarded
from hocket.kit.access import key_store
from hocket.kit.access.audit_log import Actor
from hocket.kit.access.key_book import KeyBook
from hocket.kit.access.key_source import DatabaseKeys
from hocket.kit.access.key_store import NewKey
from hocket.kit.access.secret_box import SecretBox
from hocket.kit.identity.configured import (
    cli_client_of,
    closed_at_the_end,
    sign_in_of,
    token_bearers_of,
)
from hocket.kit.postgres.migrations import wait_current
from hocket.kit.process import config
from hocket.kit.process.capability_key import platform_capabilities, usage_seals_of
from hocket.kit.process.handler_allowlist import allowed_handlers, handler_queues
from hocket.kit.process.installation import agree_on_partitions
from hocket.kit.process.lifecycle import Service, run
from hocket.kit.web_requests import WebRules, in_url
from hocket.schemas.access.keys import parts_of
from hocket.schemas.errors import ErrorClass, HocketError

POOL_SIZE = 10
RESERVED_SIZE = 2
"""Connections that no request takes, so that revocations and probes wait for no tenant's queries."""
TABLES_TIMEOUT_MS = 120_000.0
DRAIN_TIMEOUT_S = 5
BACKLOG = 1_024
KEEP_ALIVE_S = 30
WATCH_INTERVAL_S = 2.0
FIRST_KEY = "first"


async def main(service: Service) -> None:
    """Serve the API until the service is asked to stop."""
    settings = service.settings
    service.health.report("started", ok=False)
    listener = _listen(settings.api_host, settings.api_port)
    bus, reserved = await asyncio.gather(service.bus(), service.pool(RESERVED_SIZE))
    pool = await service.pool(POOL_SIZE)  # the first one tells whether Postgres answers
    await wait_current(settings.database_url, TABLES_TIMEOUT_MS, service.health.report)
    await agree_on_partitions(pool, settings.partitions)
    capabilities = await platform_capabilities(settings, pool)
    sections = config.load(settings.config)
    context = Context(
        bus=bus,
        pool=pool,
        partitions=settings.partitions,
        max_task_bytes=settings.max_task_bytes,
        stopping=service.stopping,
        leaving=service.leaving,
        handlers=allowed_handlers(settings, sections),
        node_types=NodeTypes(handler_queues(sections)),
        disk=service.disk,
        capabilities=capabilities,
        reserved=reserved,
        secrets=SecretBox(capabilities.derived("secrets of webhooks")),
        webhook_private_hosts=frozenset(name.lower() for name in settings.webhook_private_hosts),
        usage_seals=usage_seals_of(settings),
    )
    await _make_first_key(pool, settings.admin_key)
    stored = DatabaseKeys(reserved)
    book = KeyBook(stored, service.health.report)
    tokens = token_bearers_of(settings, service.health.report)
    rules = WebRules.of(settings.api_host, settings.allowed_hosts, settings.allowed_origins)
    server = _Server(
        uvicorn.Config(
            Forwarded(
                make_app(
                    context,
                    service.telemetry.registry,
                    book,
                    rules,
                    key_requests_per_s=settings.key_requests_per_s,
                    root_path=settings.root_path,
                    tokens=tokens,
                    sign_in=sign_in_of(settings, tokens),
                    cli_client=cli_client_of(settings),
                    public_url=settings.public_url,
                )
            ),
            http=WatchedConnection,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            proxy_headers=False,  # `Forwarded` reads them
            timeout_graceful_shutdown=DRAIN_TIMEOUT_S,
            timeout_keep_alive=KEEP_ALIVE_S,
            backlog=BACKLOG,
        ),
        on_started=partial(_started, service, listener),
    )
    async with (
        closed_at_the_end(tokens),
        book.running(),
        KeysDoor(bus, stored, context.usage_seals).open(),
        context.live.running(bus, service.stopping),
        nats_access(service, bus, book),
        working(context, service.telemetry.registry),
    ):
        await _serve(service, server, listener)


async def _serve(service: Service, server: "_Server", listener: socket.socket) -> None:
    begin_to_listen(listener)
    watching = asyncio.create_task(_watch(service), name="watch")
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="serve")
    connections = asyncio.create_task(watch(server.server_state.connections), name="connections")
    stopping = asyncio.create_task(service.stopping.wait(), name="stopping")
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    for task in (stopping, watching):
        task.cancel()
    await serving
    connections.cancel()


def _started(service: Service, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    service.started()
    service.log.info("api_ready", url=f"http://{host}:{port}")


async def _watch(service: Service) -> None:
    """Keep reporting whether the broker can be reached and accepts messages."""
    while True:
        service.look()
        await asyncio.sleep(WATCH_INTERVAL_S)


async def _make_first_key(pool: asyncpg.Pool, text: SecretStr | None) -> None:
    """Create the first admin's key if the settings name one; several processes may do this at once."""
    if text is None:
        return
    wanted, parts = NewKey(FIRST_KEY, "admin", None), parts_of(text.get_secret_value())
    assert parts is not None, "the setting was checked"
    async with pool.acquire() as connection:
        actor = Actor("HOCKET_ADMIN_KEY", "local")
        await key_store.adopt(connection, *parts, wanted, actor)


class ApiPortTaken(HocketError):
    """The API cannot listen on {host}:{port}: {reason}. Choose another port with HOCKET_API_PORT,
    or with `--api-port` of `hocket up`."""

    code = "api_port_taken"
    error_class = ErrorClass.UNAVAILABLE


class _Server(uvicorn.Server):
    """Uvicorn that reports when it is serving and installs no signal handlers (the lifecycle handles
    signals)."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ApiPortTaken(host=in_url(host), port=port, reason=error.strerror) from error
    return listener


def begin_to_listen(listener: socket.socket) -> None:
    """Listen on a bound socket; raise ApiPortTaken if another process that bound the same port listens
    on it by now. uvloop would close the socket then, and say nothing."""
    host, port = listener.getsockname()[:2]
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ApiPortTaken(host=in_url(host), port=port, reason=error.strerror) from error


if __name__ == "__main__":
    run("admin", main, has_door=True)
