"""Plans which processes a platform runs, and with which arguments and environment."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hocket.cli.local.backing_servers import BackingServers
from hocket.cli.local.capability_key import CAPABILITY_KEY, USAGE_KEY, kept_key
from hocket.cli.local.service_modules import MODULES
from hocket.cli.remote.target import KEY_ENV
from hocket.kit.process import config
from hocket.kit.process.limits.disk_space import MIN_FREE_MIB
from hocket.schemas.capabilities import usage_key_of
from hocket.schemas.errors import HocketError

INLINE_GATEWAY = "hocket.cli.local.inline_gateway"
"""The module of a worker process that contains a gateway."""
KEYED = ("coordinator", "gateway", "admin", "ledger")
"""The services that get the capability key. A worker that contains a gateway gets the key of usage
records."""
NATS_ACCESS = ("HOCKET_NATS_ACCESS_URL", "HOCKET_NATS_ACCESS_SEED")
"""Settings that allow a process to decide which keys may connect to NATS."""
OF_REST = (*NATS_ACCESS, "HOCKET_ADMIN_KEY", "HOCKET_OIDC_CLIENT_SECRET")
"""Secrets that only the REST service gets."""
STREAM_REPLICAS = "HOCKET_STREAM_REPLICAS"
NO_PORT = "-1"
SERVICE_STOP_S = 30.0
"""How long a process may take to stop, as Kubernetes allows by default: a gateway finishes the calls in
progress, and records what they cost (docs/how-to/gateway.md)."""
AFTER_DRAIN_S = 20.0
"""How much longer than `workers.drain_s` a worker may take to stop."""


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One process: `python -m <module> <arguments>`, killed if it takes longer than `stop_timeout_s` to
    stop."""

    name: str
    module: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    stop_timeout_s: float


@dataclass(frozen=True)
class ProcessPlan:
    """The options of a platform that concern its processes. `numbers`: the number of processes of a
    kind, one if not named. See `Platform` for the rest."""

    services: Sequence[str]
    numbers: Mapping[str, int]
    worker_types: Sequence[str]
    handlers: Sequence[str]
    extra_env: Mapping[str, str]
    inline_gateway: bool
    config: Path | None
    log_level: str

    def processes(
        self,
        data_dir: Path,
        servers: BackingServers,
        *,
        host: str,
        api_port: int,
        gateway_port: int,
    ) -> Iterator[PlannedProcess]:
        """Yield all processes; the servers must be running."""
        env: dict[str, str] = {
            **os.environ,
            "DATABASE_URL": servers.database_url,
            "HOCKET_DATABASE_URL": servers.database_url,
            "HOCKET_DATA_DIR": str(data_dir),
            "HOCKET_API_HOST": host,
            "HOCKET_API_PORT": str(api_port),
            "HOCKET_GATEWAY_HOST": host,
            "HOCKET_GATEWAY_PORT": str(gateway_port),
            "HOCKET_HEALTH_PORT": "0",
            STREAM_REPLICAS: str(servers.stream_replicas),
            "HOCKET_HANDLERS": ",".join(self.handlers),
            "HOCKET_LOG_FORMAT": "json",
            "HOCKET_LOG_LEVEL": self.log_level,
            "PYTHONUNBUFFERED": "1",
        }
        key = env.pop(CAPABILITY_KEY, "") or kept_key(data_dir)
        usage_key = env.pop(USAGE_KEY, "")
        env.pop(KEY_ENV, None)  # the key of the command line
        worker_stop_s = max(SERVICE_STOP_S, _drain_s(self.config) + AFTER_DRAIN_S)
        of_rest = {name: env.pop(name) for name in OF_REST if name in env}
        if servers.are_embedded:
            env.setdefault("HOCKET_MIN_FREE_DISK_MIB", str(MIN_FREE_MIB))
        if self.config is not None:
            env["HOCKET_CONFIG"] = str(self.config.expanduser().absolute())
        for name, service in self._names():
            own = self._own_environment(name, key, usage_key)
            nats = self._nats_environment(service, servers)
            if service == "admin":
                nats = {**of_rest, **nats}
            given = {**env, **nats, **self.extra_env, **own}
            stop_s = worker_stop_s if service == "worker" else SERVICE_STOP_S
            module, arguments = self._module(service), self._arguments(service)
            yield PlannedProcess(name, module, arguments, given, stop_s)

    def blobs_folder(self, data_dir: Path) -> Path | None:
        """Return the folder in which workers keep large values, or None if they keep them elsewhere."""
        from hocket.workers.configuration import parse

        named = {**os.environ, **self.extra_env}.get("HOCKET_CONFIG")
        try:
            blobs = parse(config.load(self.config or (Path(named) if named else None))).blobs
        except HocketError:  # reported by the workers
            return None
        return (blobs.folder or data_dir / "blobs").absolute() if blobs.store == "file" else None

    def _names(self) -> Iterator[tuple[str, str]]:
        for service in self.services:
            yield service, service
            for number in range(2, self.numbers.get(service, 1) + 1):
                yield f"{service}-{number}", service

    def _nats_environment(self, service: str, servers: BackingServers) -> dict[str, str]:
        """Return the environment with which a process connects to NATS."""
        user = "worker-gateway" if service == "worker" and self.inline_gateway else service
        alone = service == "worker" and "coordinator" not in self.services
        url = servers.nats_url if alone else servers.nats_url_of(user)
        found = {"NATS_URL": url, "HOCKET_NATS_URL": url}
        if service == "admin" and servers.nats_access is not None:
            found |= zip(NATS_ACCESS, servers.nats_access, strict=True)
        return found

    def _module(self, service: str) -> str:
        return INLINE_GATEWAY if service == "worker" and self.inline_gateway else MODULES[service]

    def _arguments(self, service: str) -> tuple[str, ...]:
        if service == "worker" and self.worker_types:
            return ("--types", ",".join(self.worker_types))
        return ()

    def _own_environment(self, name: str, key: str, usage_key: str) -> dict[str, str]:
        own = {"HOCKET_INSTANCE": name}
        if name.partition("-")[0] in KEYED:
            own[CAPABILITY_KEY] = key
            if usage_key:
                own[USAGE_KEY] = usage_key
        elif self.inline_gateway:
            own[USAGE_KEY] = usage_key or usage_key_of(key)
        if name.startswith("worker-"):  # only the first has the HTTP door, if any
            own["HOCKET_GATEWAY_PORT"] = NO_PORT
        return own


def _drain_s(path: Path | None) -> float:
    """Return for how long workers finish their steps; 0 for a file with errors, which workers report."""
    from hocket.workers.configuration import parse

    try:
        return parse(config.load(path)).workers.drain_s
    except HocketError:
        return 0.0
