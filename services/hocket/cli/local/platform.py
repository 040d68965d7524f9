"""A whole platform on one machine: servers, migrations, streams and processes, inside `async with`.

States: stopped -> starting -> ready -> stopping -> stopped. Starting does as much as possible
concurrently, and is complete when every process reports that it is ready; an error stops what was
started and is raised (`ProcessNotReady`, `ServerNotReady`, `DataFolderInUse` ...). Stopping proceeds
against the flow of work: no new tasks, then the workers' last steps, then the processes they report to,
then the servers. If the parent is killed, the kernel kills the children.
"""

import asyncio
import os
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from hocket.cli.local.admin_key import kept_admin_key
from hocket.cli.local.backing_servers import BackingServers, import_migrations
from hocket.cli.local.process_plan import STREAM_REPLICAS, ProcessPlan
from hocket.cli.local.processes import READY_TIMEOUT_S, PlatformProcess
from hocket.cli.local.service_modules import MODULES
from hocket.cli.remote.api import Api
from hocket.cli.terminal.errors import ProcessUnknown
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.embedded.ports import LOOPBACK, port_is_free, remembered_port
from hocket.kit.logs.log_files import keep_short
from hocket.kit.process.platform_facts import PlatformFacts, remove_facts, write_facts
from hocket.kit.web_requests import in_url
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.handlers import AllowedHandlers

SERVICES = tuple(MODULES)
STOP_ORDER = (("admin",), ("worker",), ("coordinator", "gateway"), ("ledger",))
DEFAULT_TENANT = "default"
MAX_WORKERS = 64
MAX_COORDINATORS = 16

log = structlog.get_logger(__name__)


class Platform:
    """Servers and processes over one data folder.

    `workers` is the number of processes that take steps; the first is named `worker`, the others
    `worker-2` and so on. `coordinators` is the number of processes that share the partitions, named
    likewise. `worker_types` are the node types that workers run; empty means all. `handlers` are the
    modules and functions that `python` nodes may run, in addition to a few built-in ones. `services`
    selects the kinds of processes to run. `env` adds to the processes' environment. `nats_url` and
    `database_url` replace the embedded servers. `nats_port`, `api_port` and `gateway_port`: 0 means any
    free port; a port in use is replaced by a free one. `inline_gateway`: each worker process contains a
    gateway, and there are no separate ones; the first has the HTTP door. `ready_timeout_s` bounds the
    start of each part.
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
        wanted = set(services) - ({"gateway"} if inline_gateway else set())
        AllowedHandlers.of(handlers, "--handlers")
        self._services = tuple(service for service in SERVICES if service in wanted)
        extra_env = dict(env or {})
        self._plan = ProcessPlan(
            services=self._services,
            numbers={"worker": workers, "coordinator": coordinators},
            worker_types=tuple(worker_types),
            handlers=tuple(handlers),
            extra_env=extra_env,
            inline_gateway=inline_gateway,
            config=config,
            log_level=log_level,
        )
        self.backing = BackingServers(
            self.data_dir,
            nats_url=nats_url,
            database_url=database_url,
            nats_port=nats_port,
            replicas=extra_env.get(STREAM_REPLICAS),
        )
        """NATS and Postgres."""
        self._api_host, self._api_port = api_host, api_port
        self._gateway_port = gateway_port
        self._gateway_host = "worker" if inline_gateway else "gateway"
        """The process that serves the gateway's HTTP door."""
        self._ready_timeout_s = ready_timeout_s
        self._keeping_short: asyncio.Task[None] | None = None
        self._is_ready = False
        self._api_key = ""

    @property
    def servers(self) -> EmbeddedServers:
        """The embedded servers, for killing or restarting them; only valid if at least one is
        embedded."""
        return self.backing.embedded

    @property
    def nats_url(self) -> str:
        """The URL for NATS clients."""
        return self.backing.nats_url

    @property
    def database_url(self) -> str:
        """The URL of the platform's database."""
        return self.backing.database_url

    @property
    def api_url(self) -> str:
        """The URL of the REST API."""
        assert "admin" in self._services, "the API is not among the services that run"
        return f"http://{_reached_at(self._api_host)}:{self._api_port}"

    @property
    def api_key(self) -> str:
        """The platform's admin key, a key of all tenants."""
        assert self._api_key, "the platform has not started"
        return self._api_key

    def api(self, tenant: str = DEFAULT_TENANT) -> Api:
        """Return a client of the REST API with the admin key."""
        return Api(self.api_url, tenant, self.api_key)

    @property
    def gateway_url(self) -> str:
        """The base URL of the gateway's OpenAI-compatible API."""
        assert self._gateway_host in self._services, (
            "the gateway is not among the services that run"
        )
        return f"http://{_reached_at(self._api_host)}:{self._gateway_port}/v1"

    @property
    def log_dir(self) -> Path:
        """The folder of the processes' logs, one `<name>.log` per process."""
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
        """Kill a process like a crash; it is restarted."""
        await self.process(name).kill()

    async def wait_ready(self, *, timeout_s: float | None = None) -> None:
        """Wait until every process that is not stopped reports that it is ready."""
        bound = timeout_s or self._ready_timeout_s
        await _all(process.wait_ready(timeout_s=bound) for process in self.processes.values())

    async def _start(self) -> None:
        checking = asyncio.to_thread(_warn_of_unread, self._plan.config)  # importing takes a second
        await asyncio.gather(self.backing.start(), import_migrations(), checking)
        await _all((self.backing.migrate(), self.backing.make_streams()))
        self._api_key = await kept_admin_key(self.data_dir, self.database_url)
        host = self._api_host
        self._api_port = _free_port(self.data_dir / "api.port", self._api_port, host)
        self._gateway_port = _free_port(self.data_dir / "gateway.port", self._gateway_port, host)
        run_dir = self.data_dir / "run"
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in run_dir.glob("*-*.json"):  # this folder's processes have all ended
            leftover.unlink(missing_ok=True)
        remove_facts(self.data_dir)  # if the last one was killed: it is being started again
        planned = self._plan.processes(
            self.data_dir,
            self.backing,
            host=host,
            api_port=self._api_port,
            gateway_port=self._gateway_port,
        )
        for one in planned:
            self.processes[one.name] = PlatformProcess(
                one.name,
                one.module,
                *one.arguments,
                env=one.env,
                run_dir=run_dir,
                log_path=self.log_dir / f"{one.name}.log",
                on_restart=self._write_facts,
                stop_timeout_s=one.stop_timeout_s,
            )
        await _all(process.start() for process in self.processes.values())
        await self.wait_ready()
        self._is_ready = True
        self._write_facts()
        self._keeping_short = asyncio.create_task(
            keep_short(partial(_logs, self.data_dir)), name="log-files"
        )
        log.info("platform_ready", data_dir=str(self.data_dir), processes=len(self.processes))

    def _write_facts(self) -> None:
        """Write for other commands where everything is: once all are ready, and after each restart."""
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
        write_facts(self.data_dir, facts, blobs=self._plan.blobs_folder(self.data_dir))

    async def _stop(self) -> None:
        self._is_ready = False
        remove_facts(self.data_dir)
        if self._keeping_short is not None:
            self._keeping_short.cancel()
        faults: list[BaseException] = []
        for kinds in STOP_ORDER:
            stopping = [
                process.stop()
                for name, process in self.processes.items()
                if name.partition("-")[0] in kinds
            ]
            results = await asyncio.gather(*stopping, return_exceptions=True)
            faults += [result for result in results if result is not None]
        self.processes.clear()
        await self.backing.stop()
        if faults:
            raise faults[0]


async def _all(waits: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all; on the first error cancel the others and raise it."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _reached_at(host: str) -> str:
    """Return the host of a URL for an address to listen on."""
    if host in ("", "0.0.0.0", "::"):
        return LOOPBACK
    return in_url(host)


def _warn_of_unread(config: Path | None) -> None:
    """Warn of sections that no process reads: a misspelled one would leave out models or databases."""
    if config is None:
        return
    from hocket.cli.local.config_check import unknown_sections

    with suppress(InvalidInput):  # who needs the file says what is wrong with it
        for section, reason, cure in unknown_sections(config):
            log.warning("config_section_unread", section=section, reason=reason, cure=cure)


def _free_port(file: Path, wanted: int, host: str) -> int:
    """Return the wanted port if it is free on the host, otherwise that of the file."""
    if wanted and port_is_free(wanted, host):
        return wanted
    port = remembered_port(file, host)
    if wanted:
        log.warning(f"{file.stem}_port_taken", taken=wanted, port=port)
    return port


def _logs(data_dir: Path) -> list[Path]:
    """Return the logs of processes and embedded servers."""
    return [*data_dir.glob("logs/*.log"), *data_dir.glob("*/*.log")]
