"""One NATS server or a cluster, with mutual TLS, and for each of our processes a user with a password
and permissions, as in docs/reference/nats-access.md."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from hocket.cli.local.backing_servers import BackingServers
from hocket.kit.access.account_files import ACCOUNTS, SEED, kept_accounts
from hocket.kit.embedded.ports import LOOPBACK, remembered_port
from hocket.schemas.access.nats_table import ACCESS_USER, OWNER
from support.servers.certificates import Authority

CLIENT = "client"
CLIENTS = -1
"""Stands for all clients where otherwise the number of the calling server is given."""
CLOSED_PORT = 1
ELECTED = re.compile(
    r"\[\d+\] (\S+ \S+) \[INF\] JetStream cluster new (?:stream leader for '\S+ > (?:TASKS|LOG|STEPS)'"
    r"|consumer leader for '\S+ > (?:TASKS > intake|STEPS > step-python-\S+)')"
)
"""The lines of a server's log about new leaders that runs of Python steps depend on."""
LOG_TIME = "%Y/%m/%d %H:%M:%S.%f"


class NatsCluster:
    """Servers in a folder, each in its own process. `links` maps (caller, called) to the port of a
    proxy; all other connections are direct."""

    def __init__(
        self, folder: Path, servers: int, links: Mapping[tuple[int, int], int] | None = None
    ) -> None:
        self._folder = folder
        self._links = links or {}
        self._files = folder / "tls"
        """The files that servers and clients read; certificates are created elsewhere and copied here.
        x"""
        self._files.mkdir(parents=True, exist_ok=True)
        self._authorities = 0
        self._ports, self._routes = ports_of(folder, servers)
        self._authority = self._new_authority()
        shutil.copy(self._authority.certificate, self._files / "ca.crt")
        self._put_certificates()
        kept_accounts(folder / "users", self._servers_url())
        for number in range(servers):
            self._config_file(number).write_text(self._config(number))
        self.processes = [self._started(number) for number in range(servers)]

    def url_of(self, user: str) -> str:
        """Return a user's URL: all servers, with the user's password and TLS files."""
        return (self._folder / "users" / f"{user}.url").read_text("ascii").strip()

    @property
    def access_seed(self) -> str:
        """The secret of the process that decides which keys may connect."""
        return (self._folder / "users" / SEED).read_text("ascii").strip()

    def restart(self, number: int, *, wiped: bool = False) -> None:
        """Kill a server and start it again, with an empty disk if `wiped`."""
        self.processes[number].kill()
        self.processes[number].wait(10)
        if wiped:
            shutil.rmtree(self._folder / f"js{number}")
        self.processes[number] = self._started(number)

    def trust_another_authority(self) -> None:
        """First part of a rotation: certificates of a new authority are accepted as well."""
        self._authority = self._new_authority()
        bundle = self._files / "ca.crt"
        bundle.write_text(bundle.read_text() + self._authority.certificate.read_text())
        self._reload()

    def show_its_certificates(self) -> None:
        """Second part: servers and clients present certificates of the new authority."""
        self._put_certificates()
        self._reload()

    def trust_it_alone(self) -> None:
        """Last part: certificates of the old authority are rejected."""
        shutil.copy(self._authority.certificate, self._files / "ca.crt")
        self._reload()

    def elected(self, after: float, within_s: float) -> float | None:
        """Return when the last of the required streams and durable consumers got a new leader (wall
        clock), considering elections in the `within_s` seconds from `after`; None if there was none."""
        found: list[float] = []
        for number in range(len(self.processes)):
            for line in self._log_file(number).read_text().splitlines():
                if (elected := ELECTED.match(line)) is not None:
                    moment = datetime.strptime(elected[1], LOG_TIME).replace(tzinfo=UTC)
                    found.append(moment.timestamp())
        return max((one for one in found if after <= one < after + within_s), default=None)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(10)

    def _reload(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGHUP)

    def _new_authority(self) -> Authority:
        self._authorities += 1
        return Authority(self._folder / f"authority-{self._authorities}")

    def _put_certificates(self) -> None:
        names = [CLIENT, *(f"n{number}" for number in range(len(self._ports)))]
        for name in names:
            for made in self._authority.issue(name, "localhost"):
                shutil.copy(made, self._files / made.name)

    def _servers_url(self) -> str:
        ports = (self._links.get((CLIENTS, n), port) for n, port in enumerate(self._ports))
        servers = ",".join(f"tls://{LOOPBACK}:{port}" for port in ports)
        files = self._files
        return f"{servers}?ca={files}/ca.crt&cert={files}/{CLIENT}.crt&key={files}/{CLIENT}.key"

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        server = Path(sys.executable).parent / "nats-server"
        command = [server, "-c", self._config_file(number), "-l", self._log_file(number)]
        return subprocess.Popen(command)

    def _log_file(self, number: int) -> Path:
        return self._folder / f"n{number}.log"

    def _config_file(self, number: int) -> Path:
        return self._folder / f"n{number}.conf"

    def _config(self, number: int) -> str:
        files = self._files
        tls = (
            f'tls {{ cert_file: "{files}/n{number}.crt", key_file: "{files}/n{number}.key", '
            f'ca_file: "{files}/ca.crt", verify: true, timeout: 5 }}'
        )
        ports = (
            self._links.get((number, other), port)
            for other, port in enumerate(self._routes)
            if other != number
        )
        routes = ", ".join(f"nats-route://{LOOPBACK}:{port}" for port in ports)
        # servers must not advertise their addresses: clients would bypass the proxies
        told = f'no_advertise: true, advertise: "{LOOPBACK}:{CLOSED_PORT}", '
        cluster = (
            f"cluster {{ name: hocket, listen: {LOOPBACK}:{self._routes[number]}, "
            f"{told if self._links else ''}routes: [{routes}], {tls} }}\n"
        )
        return (
            f"server_name: n{number}\nlisten: {LOOPBACK}:{self._ports[number]}\n{tls}\n"
            "logtime_utc: true\n"
            f"{cluster if len(self._ports) > 1 else ''}"
            f"jetstream {{ store_dir: {self._folder}/js{number}, max_file_store: 30GB }}\n"
            f"include users/{ACCOUNTS}\n"
        )


def ports_of(folder: Path, servers: int) -> tuple[list[int], list[int]]:
    """Return the ports on which the servers of a folder listen for clients, and for each other."""
    folder.mkdir(parents=True, exist_ok=True)
    clients = [remembered_port(folder / f"{n}.port") for n in range(servers)]
    return clients, [remembered_port(folder / f"{n}.route") for n in range(servers)]


class GivenServers(BackingServers):
    """That cluster and a Postgres; each process connects as its own NATS user."""

    def __init__(self, folder: Path, cluster: NatsCluster, database_url: str) -> None:
        super().__init__(
            folder,
            nats_url=cluster.url_of(OWNER),
            database_url=database_url,
            nats_port=0,
            replicas=str(len(cluster.processes)),
        )
        self._cluster = cluster

    def nats_url_of(self, user: str) -> str:
        return self._cluster.url_of(user)

    @property
    def nats_access(self) -> tuple[str, str]:
        return self._cluster.url_of(ACCESS_USER), self._cluster.access_seed
