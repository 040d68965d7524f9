"""What NATS' monitoring port knows of server and streams, for Prometheus: `nats_exporter.py URL [PORT]`.

Needs the Python of the image alone: `python nats_exporter.py http://nats:8222 7777`. Asks NATS at
each scrape; where it does not answer, `hocket_nats_up` is 0 and nothing else is told."""

import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

TIMEOUT_S = 3.0
LABELS = ("account", "stream")
"""Accounts may have streams of the same name. An account is told by its ID: in a configuration file this
is its name, and names of accounts that are JWTs can be equal."""
SERVER = {
    "connections": "Connections.",
    "mem": "Resident memory in bytes.",
    "cpu": "CPU in per cent.",
    "slow_consumers": "Connections that were closed because they read too slowly.",
}


class NatsCollector(Collector):
    """Asks one server."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up = GaugeMetricFamily("hocket_nats_up", "Whether the server's monitoring port answers.")
        try:
            server = self._asked("/varz")
            streams = self._asked("/jsz?streams=1&config=1")
        except (OSError, ValueError):
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        for name, text in SERVER.items():
            yield GaugeMetricFamily(f"hocket_nats_{name}", text, value=server.get(name, 0))
        yield from _of_streams(streams, server.get("server_name"))

    def _asked(self, path: str) -> Any:
        with urllib.request.urlopen(self._url + path, timeout=TIMEOUT_S) as answer:
            return json.load(answer)


def _of_streams(found: Any, server: str | None) -> Iterator[GaugeMetricFamily]:
    messages = GaugeMetricFamily("hocket_nats_stream_messages", "Messages.", labels=LABELS)
    size = GaugeMetricFamily("hocket_nats_stream_bytes", "Bytes.", labels=LABELS)
    bound = GaugeMetricFamily("hocket_nats_stream_max_bytes", "Its bound.", labels=LABELS)
    refuses = GaugeMetricFamily(
        "hocket_nats_stream_refuses",
        "What a full stream does: 1: refuses, 0: drops its oldest.",
        labels=LABELS,
    )
    leads = GaugeMetricFamily("hocket_nats_stream_leader", "1: leads it.", labels=LABELS)
    consumers = GaugeMetricFamily("hocket_nats_stream_consumers", "Consumers.", labels=LABELS)
    for account in found.get("account_details") or ():
        for one in account.get("stream_detail") or ():
            labels, state = [account["id"], one["name"]], one["state"]
            messages.add_metric(labels, state["messages"])
            size.add_metric(labels, state["bytes"])
            consumers.add_metric(labels, state["consumer_count"])
            if (limit := one.get("config", {}).get("max_bytes", -1)) > 0:
                bound.add_metric(labels, limit)
            refuses.add_metric(labels, one.get("config", {}).get("discard") == "new")
            cluster = one.get("cluster") or {}
            leader = cluster.get("leader")
            leads.add_metric(labels, not cluster or leader == server)
    yield from (messages, size, bound, refuses, consumers, leads)


def main() -> None:
    """Serve until the process is ended."""
    registry = CollectorRegistry()
    registry.register(NatsCollector(sys.argv[1]))
    start_http_server(int(sys.argv[2]) if len(sys.argv) > 2 else 7777, registry=registry)
    while True:
        time.sleep(3_600)


if __name__ == "__main__":
    main()
