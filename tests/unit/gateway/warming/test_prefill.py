"""A prompt that is expected of a tenant which may not use the model is not read ahead of time."""

from typing import Any, cast
from unittest.mock import Mock

from nats.aio.msg import Msg
from prometheus_client import CollectorRegistry

from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.errors import ModelNotGranted
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.warming.prefill import Prefilling
from hocket.schemas.messages import ChatMessage, PromptExpected

SERVER = {"base_url": "http://x/v1", "model": "m", "prefix_cache": {"tokens": 100_000}}


async def test_a_model_that_the_tenant_may_not_use_is_asked_for_nothing_and_counted() -> None:
    expected = PromptExpected(
        run_id="r1",
        tenant="acme",
        pipeline="report",
        version=1,
        node="draft",
        model="writer",
        messages=(ChatMessage(role="user", content="x" * 10_000),),
        deadline_at_ms=1_800_000_000_000.0,
    )
    registry = CollectorRegistry()
    scheduler, calls = Mock(), Mock()
    scheduler.caches.most_cached.return_value = 0
    scheduler.queue.lines.waiting.return_value = False
    calls.begin.side_effect = ModelNotGranted(tenant="acme", model="writer")
    prefilling = Prefilling(
        Mock(),
        Mock(leads=True),
        scheduler,
        calls,
        lambda: parse({"writer": {"backends": [SERVER]}}, {}),
        lambda: 0.0,
        GatewayMetrics(registry),
    )
    message = Msg(cast(Any, None), data=expected.model_dump_json().encode())
    await prefilling._on_prompt(message)
    labels = {"outcome": "not_granted"}
    assert registry.get_sample_value("hocket_gateway_prefills_total", labels) == 1.0
