"""The gateway's metrics."""

from typing import Any

from prometheus_client import CollectorRegistry

from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.structs.usage import RecordedUsage


def test_tokens_are_counted_by_kind() -> None:
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry)
    fields: dict[str, Any] = dict.fromkeys(RecordedUsage.__struct_fields__, 0) | {
        "model": "m",
        "backend": "b",
    }
    counts = {"input": 100, "output": 10, "cached": 40, "cache_write": 20}
    fields |= {f"{kind}_tokens": count for kind, count in counts.items()}
    for _ in range(2):
        metrics.observe(RecordedUsage(**fields | {"status": "ok"}))
    by = {"model": "m", "backend": "b"}
    assert {
        kind: registry.get_sample_value("hocket_gateway_tokens_total", by | {"kind": kind})
        for kind in counts
    } == {kind: 2 * count for kind, count in counts.items()}
