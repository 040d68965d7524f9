"""`make monitoring-test`: a loaded platform, a real Prometheus that scrapes it, and every query of rules
and dashboards asked of it: each must return series. Needs Debian's prometheus and its exporter for
Postgres."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from contextlib import AsyncExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from deploy.test_monitoring import ALERTS, MONITORING, queries
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.embedded.ports import LOOPBACK, remembered_port

SECONDS = 45
BOUND_S = 60
COMPARED = re.compile(r"\s*(?:>|<|==)=?\s*[\d.]+\s*$")


class Model(BaseHTTPRequestHandler):
    """A model that says the same to everybody, at a price."""

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


def pipelines() -> list[dict[str, Any]]:
    sleep = {"type": "python", "handler": "hocket.workers.builtin:sleep"}
    llm = {"type": "llm", "prompt": "say yes", "max_tokens": 5}
    given: dict[str, Any] = {"type": "object"}
    return [
        *(
            {
                "pipeline": f"sleep_{name}", "class": name, "slo_ms": 60_000, "input": given,
                "nodes": {"one": {**sleep, "with": {"seconds": 0.02}}},
            }
            for name in ("interactive", "standard", "batch")
        ),
        *(
            {
                "pipeline": name, "slo_ms": 60_000, "input": given,
                "nodes": {"one": {**llm, "model": model}},
            }
            for name, model in (("says", "good"), ("fails", "broken"))
        ),
    ]  # fmt: skip


def sides(query: str) -> list[str]:
    """Return what a rule compares, without the comparisons: one that does not fire returns nothing."""
    return [COMPARED.sub("", side) for side in re.split(r"\s+and\s+", query)]


def asked(port: int, query: str) -> list[Any]:
    query = query.replace("$__rate_interval", "30s")
    url = f"http://{LOOPBACK}:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        result: list[Any] = json.load(answer)["data"]["result"]
        return result


def load(api: Api) -> None:
    for one in pipelines():
        api.post("/v1/pipelines", one)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for one in pipelines():
            for _ in range(1 if one["pipeline"] in ("says", "fails") else 6):
                with suppress(Exception):  # shed, for instance: the platform is meant to be loaded
                    api.post("/v1/runs", {"pipeline": one["pipeline"], "input": {}})
        api.get("/v1/runs")


async def main() -> None:
    wanted = ("prometheus", "prometheus-postgres-exporter")
    if missing := [name for name in wanted if not shutil.which(name)]:
        sys.exit(f"monitoring-test needs Debian's {', '.join(missing)}: apt-get install them")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hocket-monitoring-")))
        port = {
            name: remembered_port(folder / f"{name}.p")
            for name in ("nats", "http", "nx", "px", "p")
        }
        model = ThreadingHTTPServer((LOOPBACK, 0), Model)
        threading.Thread(target=model.serve_forever, daemon=True).start()
        prices = {"input_usd_per_mtok": "1000", "output_usd_per_mtok": "1000"}
        good = {
            "base_url": f"http://{LOOPBACK}:{model.server_port}/v1",
            "model": "m",
            "prices": prices,
        }
        broken = {"base_url": f"http://{LOOPBACK}:9/v1", "model": "m"}
        config = {
            "models": {"good": {"backends": [good]}, "broken": {"backends": [broken]}},
            "node_types": {"python": {"concurrency": 2}},
        }
        (folder / "hocket.yaml").write_text(yaml.safe_dump(config))
        (folder / "nats.conf").write_text(
            f"listen: {LOOPBACK}:{port['nats']}\nhttp: {LOOPBACK}:{port['http']}\n"
            f"jetstream {{ store_dir: {folder}/js }}\n"
        )
        bin_folder = Path(sys.executable).parent

        def start(name: str, *command: str | Path, **environment: str) -> None:
            with (folder / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    command, env={**os.environ, **environment}, stdout=log, stderr=log
                )
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)

        start("nats", bin_folder / "nats-server", "-c", folder / "nats.conf")
        servers = await stack.enter_async_context(EmbeddedServers(folder / "servers"))
        platform = Platform(
            folder / "platform",
            nats_url=f"nats://{LOOPBACK}:{port['nats']}",
            database_url=servers.database_url,
            config=folder / "hocket.yaml",
        )
        await stack.enter_async_context(platform)
        exporter = str(MONITORING / "nats_exporter.py")
        start("nx", sys.executable, exporter, f"http://{LOOPBACK}:{port['http']}", str(port["nx"]))
        start(
            *(
                "px",
                "prometheus-postgres-exporter",
                f"--web.listen-address={LOOPBACK}:{port['px']}",
            ),
            DATA_SOURCE_NAME=f"{servers.database_url}?sslmode=disable",
        )
        facts = [json.loads(f.read_text()) for f in (folder / "platform" / "run").glob("*-*.json")]
        targets = [urllib.parse.urlsplit(one["health_url"]).netloc for one in facts]
        scraped = {"hocket": targets, "nats": [f"{LOOPBACK}:{port['nx']}"]}
        scraped["postgres"] = [f"{LOOPBACK}:{port['px']}"]
        prometheus = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
        prometheus["global"] = {"scrape_interval": "2s", "evaluation_interval": "2s"}
        prometheus["rule_files"] = [str(MONITORING / "rules.yaml")]
        for job in prometheus["scrape_configs"]:
            job["static_configs"] = [{"targets": scraped[job["job_name"]]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(prometheus))
        start(
            *("prometheus", "prometheus", f"--config.file={folder}/prometheus.yml"),
            *(f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address={LOOPBACK}:{port['p']}"),
        )
        await asyncio.to_thread(load, Api(platform.api_url, "default", platform.api_key))
        left = {f"{at}#{n}": side for at, q in queries().items() for n, side in enumerate(sides(q))}
        total, until = len(left), time.monotonic() + BOUND_S
        while left and time.monotonic() < until:
            found = {at: await asyncio.to_thread(asked, port["p"], q) for at, q in left.items()}
            left = {at: left[at] for at, series in found.items() if not series}
            await asyncio.sleep(1)
        print(f"{total - len(left)} of {total} queries return series ({len(ALERTS)} alerts)")
        for at, query in left.items():
            print(f"  nothing: {at}: {query}")
    sys.exit(bool(left))


if __name__ == "__main__":
    asyncio.run(main())
