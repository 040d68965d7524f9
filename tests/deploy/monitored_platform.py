"""A platform with a real Prometheus beside it.

It has NATS with its monitoring port, Postgres, both exporters, and the rules of deploy/monitoring sixty
times as fast, so that an alert that takes five minutes takes five seconds. Thresholds are unchanged."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import nats
import yaml
from nats.aio.client import Client

from deploy.test_monitoring import MONITORING
from hocket.cli.local.platform import Platform
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.embedded.ports import LOOPBACK, remembered_port
from support.places import ROOT

FASTER = 60
MAX_RUNS = 200
SECONDS = {"s": 1, "m": 60, "h": 3_600}
NEEDED = ("prometheus", "prometheus-postgres-exporter")
PORTS = ("nats", "http", "nats-exporter", "postgres-exporter", "prometheus", "model")


def compressed(rules: dict[str, Any]) -> dict[str, Any]:
    """Return rules whose windows and waits are FASTER times shorter."""

    def shorter(text: str) -> str:
        number, unit = int(text[:-1]), text[-1]
        seconds = number * SECONDS[unit] / FASTER
        assert seconds == int(seconds) >= 1, f"{text} is no whole number of seconds then"
        return f"{int(seconds)}s"

    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = re.sub(
                r"\[(\d+[smh])\]", lambda found: f"[{shorter(found[1])}]", rule["expr"]
            )
            if "for" in rule:
                rule["for"] = shorter(rule["for"])
    return rules


def keda_queries() -> dict[str, str]:
    """Return the queries that KEDA sends to Prometheus, according to the chart with
    `examples/keda.yaml`."""
    chart = ROOT / "deploy" / "chart"
    helm = ROOT / ".venv-deploy" / "bin" / "helm"
    command = [helm, "template", "hocket", chart, "--values", chart / "examples" / "keda.yaml"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return {
        f"KEDA: {one['metadata']['name']}": trigger["metadata"]["query"]
        for one in yaml.safe_load_all(text)
        if one and one["kind"] == "ScaledObject"
        for trigger in one["spec"]["triggers"]
    }


class _Model(BaseHTTPRequestHandler):
    """Gives the same answer to every request."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "yes"}
        body = {
            "id": "1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
        }  # fmt: skip
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def _model_served(port: int = 0) -> Iterator[str]:
    with ThreadingHTTPServer((LOOPBACK, port), _Model) as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        yield f"http://{LOOPBACK}:{model.server_port}/v1"
        model.shutdown()


class MonitoredPlatform:
    """A platform, a client of its NATS, and a Prometheus that scrapes everything once a second."""

    platform: Platform
    servers: EmbeddedServers
    client: Client

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = AsyncExitStack()
        self._port = {name: remembered_port(folder / f"{name}.port") for name in PORTS}
        self._targets = folder / "hocket.json"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            url = stack.enter_context(_model_served())
            nats_url = self._nats_started(stack)
            self.servers = await stack.enter_async_context(
                EmbeddedServers(self._folder / "servers", nats=False)
            )
            self.platform = Platform(
                self._folder / "platform",
                nats_url=nats_url,
                database_url=self.servers.database_url,
                config=self._configured(url),
                env={"HOCKET_MAX_RUNS": str(MAX_RUNS), "HOCKET_WEBHOOK_PRIVATE_HOSTS": LOOPBACK},
                ready_timeout_s=180,
            )
            await stack.enter_async_context(self.platform)
            self.client = await nats.connect(nats_url)
            stack.push_async_callback(self.client.close)
            self._exporters_started(stack)
            self._prometheus_started(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def comes_back(self, calls: AbstractAsyncContextManager[None]) -> None:
        """Serve the model that was down, and keep calling it, until the platform is closed."""
        self._stack.enter_context(_model_served(self._port["model"]))
        await self._stack.enter_async_context(calls)

    async def query(self, text: str) -> list[Any]:
        """Return the series of a query's result."""
        text = text.replace("$__rate_interval", "30s").replace("$namespace", ".*")
        found = await self._asked(f"query?{urllib.parse.urlencode({'query': text})}")
        series: list[Any] = found["result"]
        return series

    async def firing(self) -> set[str]:
        """Return the names of the alerts that are firing."""
        found = await self._asked("alerts")
        return {one["labels"]["alertname"] for one in found["alerts"] if one["state"] == "firing"}

    def write_targets(self) -> None:
        """Write the addresses of the processes' health servers for Prometheus; they change with a
        restart."""
        facts = [json.loads(f.read_text()) for f in self._folder.glob("platform/run/*-*.json")]
        targets = [urllib.parse.urlsplit(one["health_url"]).netloc for one in facts]
        part = self._targets.with_suffix(".new")
        part.write_text(json.dumps([{"targets": targets}]))
        part.rename(self._targets)

    async def _asked(self, path: str) -> Any:
        url = f"http://{LOOPBACK}:{self._port['prometheus']}/api/v1/{path}"

        def ask() -> Any:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]

        return await asyncio.to_thread(ask)

    def _configured(self, model_url: str) -> Path:
        def backend(url: str, price: str) -> dict[str, Any]:
            prices = {"input_usd_per_mtok": price, "output_usd_per_mtok": price}
            return {"backends": [{"base_url": url, "model": "m", "prices": prices}]}

        models = {
            "good": backend(model_url, "10"),
            "dear": backend(model_url, "10000"),
            "away": backend(f"http://{LOOPBACK}:{self._port['model']}/v1", "10"),
        }
        path = self._folder / "hocket.yaml"
        path.write_text(
            yaml.safe_dump({"models": models, "node_types": {"python": {"concurrency": 2}}})
        )
        return path

    def _start(
        self, stack: AsyncExitStack, name: str, *command: str | Path, **environment: str
    ) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdout=log, stderr=log
            )
        stack.callback(process.wait, 30)
        stack.callback(process.terminate)

    def _nats_started(self, stack: AsyncExitStack) -> str:
        config = self._folder / "nats.conf"
        config.write_text(
            f"listen: {LOOPBACK}:{self._port['nats']}\nhttp: {LOOPBACK}:{self._port['http']}\n"
            f"jetstream {{ store_dir: {self._folder}/js, max_file_store: 40GB }}\n"
        )
        self._start(stack, "nats", Path(sys.executable).parent / "nats-server", "-c", config)
        return f"nats://{LOOPBACK}:{self._port['nats']}"

    def _exporters_started(self, stack: AsyncExitStack) -> None:
        exporter = MONITORING / "nats_exporter.py"
        monitored = f"http://{LOOPBACK}:{self._port['http']}"
        port = str(self._port["nats-exporter"])
        self._start(stack, "nats-exporter", sys.executable, exporter, monitored, port)
        listen = f"--web.listen-address={LOOPBACK}:{self._port['postgres-exporter']}"
        source = f"{self.servers.database_url}?sslmode=disable"
        name = "prometheus-postgres-exporter"
        self._start(stack, name, name, listen, DATA_SOURCE_NAME=source)

    def _prometheus_started(self, stack: AsyncExitStack) -> None:
        self.write_targets()
        rules = self._folder / "rules.yaml"
        rules.write_text(
            yaml.safe_dump(compressed(yaml.safe_load((MONITORING / "rules.yaml").read_text())))
        )
        config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
        config["global"] = {
            "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s",
        }  # fmt: skip
        config["rule_files"] = [str(rules)]
        for job in config["scrape_configs"]:
            if job["job_name"] == "hocket":
                del job["static_configs"]
                files = [str(self._targets)]
                job["file_sd_configs"] = [{"files": files, "refresh_interval": "1s"}]
            else:
                port = self._port[f"{job['job_name']}-exporter"]
                job["static_configs"] = [{"targets": [f"{LOOPBACK}:{port}"]}]
        path = self._folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        self._start(
            stack,
            "prometheus",
            "prometheus",
            f"--config.file={path}",
            f"--storage.tsdb.path={self._folder}/tsdb",
            f"--web.listen-address={LOOPBACK}:{self._port['prometheus']}",
        )


def missing() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in NEEDED if not shutil.which(name)]
