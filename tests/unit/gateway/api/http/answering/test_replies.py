"""Replies as HTTP answers."""

import json
from decimal import Decimal

from prometheus_client import CollectorRegistry

from hocket.gateway.api.http.answering.replies import Failures, answered, headers_of
from hocket.gateway.core.errors import ModelUnknown
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.messages import CallReply


def test_a_reply_names_its_call_its_backend_and_its_cost() -> None:
    reply = CallReply(call_id="c1", backend="a", cost_usd=Decimal("0.0000001"))
    headers = headers_of(reply)
    assert headers["x-request-id"] == headers["X-Hocket-Call-Id"] == "c1"
    assert (headers["X-Hocket-Backend"], headers["X-Hocket-Cost-Usd"]) == ("a", "0.0000001")


def test_what_json_has_no_number_for_is_null() -> None:
    answer = answered({"n": float("nan"), "i": float("-inf")}, {"x": "1"}, 201)
    assert json.loads(answer.body) == {"n": None, "i": None}
    assert (answer.status, answer.headers["x"]) == (201, "1")
    assert answer.headers["Content-Type"] == "application/json"


def test_an_error_is_told_and_counted_whole_or_within_a_stream() -> None:
    registry = CollectorRegistry()
    failures = Failures(GatewayMetrics(registry))
    error = ModelUnknown(model="gone", known="writer").info()
    whole, within = failures.answer(error), failures.body(error)
    assert json.loads(whole.body) == within
    assert within["error"]["code"] == error.code
    counted = {
        sample.labels["code"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if "http_failures" in sample.name and sample.name.endswith("_total")
    }
    assert counted == {error.code: 2}
