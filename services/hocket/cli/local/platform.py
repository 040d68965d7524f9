"""A whole platform on one machine: servers, migrations, streams and processes, inside `async with`.

States: stopped -> starting -> ready -> stopping -> stopped. Starting does at once what can be done at
once and ends when every process says that it is ready; a fault on the way stops what was started and
raises (`ProcessNotReady`, `ServerNotReady`, `DataFolderInUse` ...). Stopping goes against the stream:
no new tasks, then the workers' last steps, then what they report to, then the servers. Where the
parent is killed, the kernel ends the children.
"""

import asyncio
import os
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from hocket.cli.local.capability_key import CAPABILITY_KEY, USAGE_KEY, kept_key
from hocket.cli.local.facts import PlatformFacts, remove_facts, write_facts
from hocket.cli.local.processes import READY_TIMEOUT_S, STOP_TIMEOUT_S, PlatformProcess
from hocket.cli.terminal.errors import ProcessUnknown
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.embedded.ports import LOOPBACK, port_is_free, remembered_port
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.process.disk_space import MIN_FREE_MIB
from hocket.kit.process.log_files import keep_short
from hocket.kit.process.settings import read
from hocket.schemas.capabilities import usage_key_of
from hocket.schemas.pipeline.handlers import AllowedHandlers

MODULES = {
    "coordinator": "hocket.coordinator",
    "worker": "hocket.workers",
    "gateway": "hocket.gateway",
    "ledger": "hocket.ledger",
    "admin": "hocket.admin",
}
INLINE_GATEWAY = "hocket.cli.local.inline_gateway"
"""What a worker process runs that has a gateway in it."""
SERVICES = tuple(MODULES)
STOP_ORDER = (("admin",), ("worker",), ("coordinator", "gateway"), ("ledger",))
KEYED = ("coordinator", "gateway", "admin", "ledger")
"""Who gets the key of the capabilities. A worker with a gateway inside gets the one of usage records."""
MAX_WORKERS = 64
STREAM_REPLICAS = "HOCKET_STREAM_REPLICAS"
NO_PORT = "-1"
MAX_COORDINATORS = 16

log = structlog.get_logger(__name__)


class Platform:
    """Servers and processes over one data folder.

    `workers` processes take steps; the first is named `worker`, the others `worker-2` and so on;
    `coordinators` share the partitions likewise.
    `worker_types` are the node types that they run; all where none is named.
    `handlers` are the modules and functions that `python` nodes may run, besides Hocket's own few.
    `services` chooses which kinds of process run. `env` adds to the processes' environment.
    `nats_url` and `database_url` replace the embedded servers. `nats_port`, `api_port` and
    `gateway_port`: 0 means any free port; a port that is taken is replaced by a free one.
    `inline_gateway`: each worker process has a gateway in it, and there is none beside them; the first
    has the HTTP door.
    `ready_timeout_s` bounds the start of each part.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        workers: int = 1,
        coordinators: int = 1,
        worker_types: Sequence[str] = (),
        handlers: Sequence[str] = (),
        services: Collection[str] = SERVICES,
        env: Mapping[str, str] | None = None,
        nats_url: str | None = None,
        database_url: str | None = None,
        nats_port: int = 0,
        api_host: str = LOOPBACK,
        api_port: int = 0,
        gateway_port: int = 0,
        inline_gateway: bool = False,
        config: Path | None = None,
        log_level: str = "info",
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        for service in services:
            if service not in MODULES:
                raise ProcessUnknown(process=service, known=", ".join(MODULES))
        assert 1 <= workers <= MAX_WORKERS, "the number of workers is checked by the caller"
        assert 1 <= coordinators <= MAX_COORDINATORS, "so is that of coordinators"
        self.data_dir = data_dir.expanduser().absolute()
        self.processes: dict[str, PlatformProcess] = {}
        self._numbers = {"worker": workers, "coordinator": coordinators}
        self._worker_types = tuple(worker_types)
        wanted = set(services) - ({"gateway"} if inline_gateway else set())
        AllowedHandlers.of(handlers, "--handlers")
        self._handlers = tuple(handlers)
        self._services = tuple(service for service in SERVICES if service in wanted)
        self._extra_env = dict(env or {})
        self._given_nats, self._given_database = nats_url, database_url
        self._nats_port = nats_port
        self._api_host, self._api_port = api_host, api_port
        self._gateway_port = gateway_port
        self._modules = {**MODULES, "worker": INLINE_GATEWAY} if inline_gateway else MODULES
        self._config = config
        self._log_level = log_level
        self._ready_timeout_s = ready_timeout_s
        self._servers: EmbeddedServers | None = None
        self._keeping_short: asyncio.Task[None] | None = None
        self._key, self._usage_key = "", ""
        self._is_ready = False

    @property
    def servers(self) -> EmbeddedServers:
        """The embedded servers, to kill or restart them; only where at least one is embedded."""
        assert self._servers is not None, "both servers are the user's own, or nothing runs yet"
        return self._servers

    @property
    def nats_url(self) -> str:
        """The URL for NATS clients."""
        return self._given_nats or self.servers.nats_url

    @property
    def nats_url_file(self) -> Path | None:
        """The file with the embedded server's URL and password; None where NATS is the user's own."""
        return None if self._given_nats else self.servers.nats.url_file

    @property
    def _stream_replicas(self) -> int:
        """On how many servers streams and buckets are kept; the embedded server is one."""
        if self._given_nats is None:
            return 1
        named = self._extra_env.get(STREAM_REPLICAS)
        return read(**({} if named is None else {"stream_replicas": named})).stream_replicas

    @property
    def database_url(self) -> str:
        """The URL of the platform's database."""
        return self._given_database or self.servers.database_url

    @property
    def api_url(self) -> str:
        """The URL of the REST API."""
        assert "admin" in self._services, "the API is not among the services that run"
        host = LOOPBACK if self._api_host in ("", "0.0.0.0", "::") else self._api_host
        return f"http://{host}:{self._api_port}"

    @property
    def gateway_url(self) -> str:
        """The base URL of the gateway's OpenAI-compatible API."""
        host_service = "worker" if self._modules["worker"] == INLINE_GATEWAY else "gateway"
        assert host_service in self._services, "the gateway is not among the services that run"
        host = LOOPBACK if self._api_host in ("", "0.0.0.0", "::") else self._api_host
        return f"http://{host}:{self._gateway_port}/v1"

    @property
    def log_dir(self) -> Path:
        """The folder of the processes' logs, one `<name>.log` each."""
        return self.data_dir / "logs"

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop()

    def process(self, name: str) -> PlatformProcess:
        """Return a process by name, or raise ProcessUnknown."""
        if name not in self.processes:
            raise ProcessUnknown(process=name, known=", ".join(self.processes))
        return self.processes[name]

    async def kill(self, name: str) -> None:
        """Kill a process as a crash would; it is started again."""
        await self.process(name).kill()

    async def wait_ready(self, *, timeout_s: float | None = None) -> None:
        """Wait until every process that is not stopped says that it is ready."""
        bound = timeout_s or self._ready_timeout_s
        await _all(process.wait_ready(timeout_s=bound) for process in self.processes.values())

    async def _start(self) -> None:
        await asyncio.gather(self._start_servers(), asyncio.to_thread(_import_migrations))
        await _all((self._migrate(), self._make_streams()))
        self._choose_ports()
        run_dir = self.data_dir / "run"
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in run_dir.glob("*-*.json"):  # this folder's processes have all ended
            leftover.unlink(missing_ok=True)
        env = self._environment()
        for name, service in self._names():
            self.processes[name] = PlatformProcess(
                name,
                self._modules[service],
                *self._arguments(service),
                env={**env, **self._own_environment(name)},
                run_dir=run_dir,
                log_path=self.log_dir / f"{name}.log",
                on_restart=self._write_facts,
            )
        await _all(process.start() for process in self.processes.values())
        await self.wait_ready()
        self._is_ready = True
        self._write_facts()
        self._keeping_short = asyncio.create_task(keep_short(self._logs), name="log-files")
        log.info("platform_ready", data_dir=str(self.data_dir), processes=len(self.processes))

    def _logs(self) -> list[Path]:
        """Return the logs of processes and embedded servers."""
        return [*self.log_dir.glob("*.log"), *self.data_dir.glob("*/*.log")]

    async def _start_servers(self) -> None:
        if self._given_nats and self._given_database:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            return
        servers = EmbeddedServers(
            self.data_dir,
            nats=not self._given_nats,
            postgres=not self._given_database,
            nats_port=self._nats_port,
        )
        await servers.__aenter__()
        self._servers = servers

    async def _migrate(self) -> None:
        await import_module("hocket.kit.postgres.migrations").migrate(self.database_url)

    async def _make_streams(self) -> None:
        bus = await Bus.connect(self.nats_url, name="hocket-up")
        try:
            await ensure_streams(bus, replicas=self._stream_replicas)
        finally:
            await bus.close()

    def _choose_ports(self) -> None:
        self._api_port = self._free_port("api", self._api_port)
        self._gateway_port = self._free_port("gateway", self._gateway_port)

    def _free_port(self, name: str, wanted: int) -> int:
        if wanted and port_is_free(wanted):
            return wanted
        port = remembered_port(self.data_dir / f"{name}.port")
        if wanted:
            log.warning(f"{name}_port_taken", taken=wanted, port=port)
        return port

    def _environment(self) -> dict[str, str]:
        env: dict[str, str] = {
            **os.environ,
            "NATS_URL": self.nats_url,
            "DATABASE_URL": self.database_url,
            "HOCKET_NATS_URL": self.nats_url,
            "HOCKET_DATABASE_URL": self.database_url,
            "HOCKET_DATA_DIR": str(self.data_dir),
            "HOCKET_API_HOST": self._api_host,
            "HOCKET_API_PORT": str(self._api_port),
            "HOCKET_GATEWAY_HOST": self._api_host,
            "HOCKET_GATEWAY_PORT": str(self._gateway_port),
            "HOCKET_HEALTH_PORT": "0",
            STREAM_REPLICAS: str(self._stream_replicas),
            "HOCKET_HANDLERS": ",".join(self._handlers),
            "HOCKET_LOG_FORMAT": "json",
            "HOCKET_LOG_LEVEL": self._log_level,
            "PYTHONUNBUFFERED": "1",
        }
        self._key = env.pop(CAPABILITY_KEY, "") or kept_key(self.data_dir)
        self._usage_key = env.pop(USAGE_KEY, "")
        if self._servers is not None:
            env.setdefault("HOCKET_MIN_FREE_DISK_MIB", str(MIN_FREE_MIB))
        if self._config is not None:
            env["HOCKET_CONFIG"] = str(self._config.absolute())
        return {**env, **self._extra_env}

    def _own_environment(self, name: str) -> dict[str, str]:
        own = {"HOCKET_INSTANCE": name}
        if name.partition("-")[0] in KEYED:
            own[CAPABILITY_KEY] = self._key
            if self._usage_key:
                own[USAGE_KEY] = self._usage_key
        elif self._modules["worker"] == INLINE_GATEWAY:
            own[USAGE_KEY] = self._usage_key or usage_key_of(self._key)
        if name.startswith("worker-"):  # only the first has the HTTP door, if any has one
            own["HOCKET_GATEWAY_PORT"] = NO_PORT
        return own

    def _names(self) -> Iterator[tuple[str, str]]:
        for service in self._services:
            yield service, service
            for number in range(2, self._numbers.get(service, 1) + 1):
                yield f"{service}-{number}", service

    def _arguments(self, service: str) -> tuple[str, ...]:
        if service == "worker" and self._worker_types:
            return ("--types", ",".join(self._worker_types))
        return ()

    def _write_facts(self) -> None:
        """Tell other commands where everything is: once all are ready, and after each restart."""
        if not self._is_ready:
            return
        facts = PlatformFacts(
            pid=os.getpid(),
            version=version("hocket"),
            data_dir=str(self.data_dir),
            nats_url=self.nats_url,
            database_url=self.database_url,
            api_url=self.api_url if "admin" in self._services else None,
            processes={
                name: process.pid for name, process in self.processes.items() if process.runs
            },
        )
        write_facts(self.data_dir, facts)

    async def _stop(self) -> None:
        self._is_ready = False
        remove_facts(self.data_dir)
        if self._keeping_short is not None:
            self._keeping_short.cancel()
        faults: list[BaseException] = []
        for kinds in STOP_ORDER:
            stopping = [
                process.stop(timeout_s=STOP_TIMEOUT_S)
                for name, process in self.processes.items()
                if name.partition("-")[0] in kinds
            ]
            results = await asyncio.gather(*stopping, return_exceptions=True)
            faults += [result for result in results if result is not None]
        self.processes.clear()
        if self._servers is not None:
            servers, self._servers = self._servers, None
            await servers.__aexit__(None, None, None)
        if faults:
            raise faults[0]


async def _all(waits: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all; at the first fault cancel the others and raise it."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _import_migrations() -> None:
    """Import what takes a second to import while the servers start."""
    import_module("hocket.kit.postgres.migrations")
    import_module("alembic.command")
    import_module("sqlalchemy.dialects.postgresql")
