"""A real Envoy with deploy/envoy/envoy.yaml, changed only in its addresses, and servers behind it."""

import asyncio
import json
import shutil
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from hocket.kit.embedded.ports import LOOPBACK, remembered_port
from support.places import ROOT
from support.servers.certificates import Authority

CONFIG = ROOT / "deploy" / "envoy" / "envoy.yaml"
PROGRAM = ROOT / ".venv-deploy" / "bin" / "envoy"
TLS = "/etc/envoy/tls"
LISTENERS = ("rest", "models", "metrics")
BOUND_S = 60.0

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Upstream:
    """One of our servers or a stand-in: the port for requests, and the port for health checks."""

    def __init__(self, port: int, health_port: int) -> None:
        self.port = port
        self.health_port = health_port
        self.heard: list[str] = []
        """The paths of the requests that it received."""
        self.runners: list[web.ServerRunner] = []

    async def lose(self) -> None:
        """Stop listening for requests, while health checks still succeed."""
        await self.runners[0].cleanup()


@asynccontextmanager
async def upstream(answer: Answer) -> AsyncIterator[Upstream]:
    """Run a server that gives these answers, and reports that it is ready."""
    found = Upstream(0, 0)

    async def heard(request: web.Request) -> web.StreamResponse:
        found.heard.append(request.path)
        return await answer(request)

    async def ready(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="ready")

    for handler in (heard, ready):
        runner = web.ServerRunner(web.Server(handler))  # type: ignore[arg-type]
        await runner.setup()
        site = web.TCPSite(runner, LOOPBACK, 0)
        await site.start()
        found.runners.append(runner)
    found.port, found.health_port = (runner.addresses[0][1] for runner in found.runners)
    try:
        yield found
    finally:
        for runner in found.runners:
            await runner.cleanup()


def configuration(
    folder: Path,
    ports: Mapping[str, int],
    admin: Sequence[Upstream],
    gateway: Sequence[Upstream],
) -> dict[str, Any]:
    """Return Envoy's configuration with other addresses; `ports` are those of its listeners."""
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text().replace(TLS, str(folder)))
    own = ports["admin"]
    config["admin"]["address"]["socket_address"]["port_value"] = own
    for listener in config["static_resources"]["listeners"]:
        port = ports[listener["name"]]
        listener["address"]["socket_address"] = {"address": LOOPBACK, "port_value": port}
    behind = {"admin": admin, "gateway": gateway, "this_envoy": [Upstream(own, own)]}
    for cluster in config["static_resources"]["clusters"]:
        (endpoints,) = cluster["load_assignment"]["endpoints"]
        endpoints["lb_endpoints"] = [
            {
                "endpoint": {
                    "address": {"socket_address": {"address": LOOPBACK, "port_value": one.port}},
                    "health_check_config": {"port_value": one.health_port},
                }
            }
            for one in behind[cluster["name"]]
        ]
    return config


def put_certificate(folder: Path) -> Authority:
    """Put Envoy's certificate and key where its configuration expects them; return their authority."""
    authority = Authority(folder / "authority")
    for made, name in zip(
        authority.issue("edge", "localhost"), ("tls.crt", "tls.key"), strict=True
    ):
        shutil.copy(made, folder / name)
    return authority


class Envoy:
    """A client of a running Envoy."""

    def __init__(self, ports: Mapping[str, int], session: aiohttp.ClientSession) -> None:
        self._ports = ports
        self._session = session

    def url(self, listener: str) -> str:
        """Return the address of a listener."""
        scheme = "http" if listener == "metrics" else "https"
        return f"{scheme}://{LOOPBACK}:{self._ports[listener]}"

    async def ask(self, listener: str, path: str, **more: Any) -> tuple[int, str]:
        """GET a path; return the status and the body."""
        async with self._session.get(self.url(listener) + path, **more) as answer:
            return answer.status, await answer.text()

    async def metric(self, name: str, cluster: str) -> float:
        """Return one of Envoy's Prometheus metrics for a cluster."""
        _, text = await self.ask("metrics", "/stats/prometheus")
        start = f'envoy_cluster_{name}{{envoy_cluster_name="{cluster}"}}'
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(start))

    async def until(self, name: str, cluster: str, value: float) -> None:
        """Wait until such a metric has the given value."""
        async with asyncio.timeout(BOUND_S):
            while await self.metric(name, cluster) != value:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@asynccontextmanager
async def envoy(
    folder: Path, admin: Sequence[Upstream], gateway: Sequence[Upstream]
) -> AsyncIterator[Envoy]:
    """Run an Envoy in front of these servers; when it yields, Envoy knows that all of them are healthy.
    x"""
    authority = Authority(folder / "authority")
    for made, name in zip(
        authority.issue("edge", "localhost"), ("tls.crt", "tls.key"), strict=True
    ):
        shutil.copy(made, folder / name)
    config = folder / "envoy.json"
    ports = {name: remembered_port(folder / f"{name}.port") for name in (*LISTENERS, "admin")}
    config.write_text(json.dumps(configuration(folder, ports, admin, gateway)))
    command = (PROGRAM, "--config-path", config, "--log-level", "warn")
    with (folder / "envoy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, "--use-dynamic-base-id", "--concurrency", "1", stdout=log, stderr=log
        )
    trusted = ssl.create_default_context(cafile=str(authority.certificate))
    trusted.check_hostname = False
    connector = aiohttp.TCPConnector(ssl=trusted)
    try:
        async with aiohttp.ClientSession(connector=connector) as session:
            found = Envoy(ports, session)
            async with asyncio.timeout(BOUND_S):
                while not await _is_ready(found):
                    assert process.returncode is None, (folder / "envoy.log").read_text()
                    await asyncio.sleep(0.05)
            await found.until("membership_healthy", "admin", len(admin))
            await found.until("membership_healthy", "gateway", len(gateway))
            yield found
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _is_ready(found: Envoy) -> bool:
    try:
        status, _ = await found.ask("metrics", "/ready")
    except aiohttp.ClientError:
        return False
    return status == 200
