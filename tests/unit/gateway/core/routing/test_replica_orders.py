"""What operators want of replicas: what follows from each word, and that calls go elsewhere."""

import json

from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.config.table import BackendSpec, ModelSpec, RoutingTable
from hocket.gateway.core.routing.membership_records import ORDER, expected
from hocket.gateway.core.routing.replica_choice import CallFacts, Obstacle, View, choose
from hocket.gateway.core.routing.replica_orders import MAX_WARM_MS, ReplicaOrder, order_of
from hocket.kit.nats.kv.bucket import MAX_VALUE_BYTES
from hocket.schemas.messages import ReplicaControl

NOW_MS = 1_800_000_000_000.0
HOUR_MS = 3_600_000.0


def control(action: str, **fields: object) -> ReplicaControl:
    return ReplicaControl.model_validate({"action": action, "backend": "b", **fields})


def backend(name: str) -> BackendSpec:
    return BackendSpec(name, "openai", "m", base_url="http://x", limit=4)


def test_a_drain_lasts_until_it_is_resumed_whatever_else_is_said() -> None:
    order = ReplicaOrder("b").after(control("drain", by="key:ops", reason="new driver"), NOW_MS)
    assert (order.drained, order.blame) == (True, "by key:ops: new driver")
    order = order.after(control("reset"), NOW_MS + 1).after(control("warm", for_ms=5), NOW_MS + 2)
    assert order.drained
    assert not order.after(control("resume"), NOW_MS + 3).drained


def test_warmth_is_counted_from_when_it_was_said_last_and_has_a_bound() -> None:
    order = ReplicaOrder("b").after(control("warm", for_ms=HOUR_MS), NOW_MS)
    assert order.warm_until_ms == NOW_MS + HOUR_MS
    assert order.after(control("warm", for_ms=5.0), NOW_MS).warm_until_ms == NOW_MS + 5
    assert order.after(control("warm", for_ms=0.0), NOW_MS).warm_until_ms == 0
    endless = order.after(control("warm", for_ms=1e12), NOW_MS)
    assert endless.warm_until_ms == NOW_MS + MAX_WARM_MS


def test_two_resets_are_two_also_where_the_clock_went_back() -> None:
    first = ReplicaOrder("b").after(control("reset"), NOW_MS)
    second = first.after(control("reset"), NOW_MS - 5_000)
    assert second.reset_at_ms > first.reset_at_ms


@given(
    st.sampled_from(("drain", "resume", "warm", "reset")),
    st.text(max_size=256),
    st.text(st.characters(exclude_categories=("C",)), max_size=256),
)
def test_every_order_is_one_that_the_bucket_takes_and_reads_back(
    action: str, reason: str, by: str
) -> None:
    order = ReplicaOrder("b/1").after(control(action, reason=reason, by=by), NOW_MS)
    value = json.dumps(order.content(), separators=(",", ":")).encode()
    assert expected(ORDER + "0123456789ab", value)
    assert len(value) <= MAX_VALUE_BYTES
    assert order_of(json.loads(value)) == order


def test_what_is_no_order_is_not_taken() -> None:
    for value in (b"{}", b'{"drained": 1}', b"[]", b'{"drained": true, "replica": "b"}'):
        assert not expected(ORDER + "0123456789ab", value)


def test_calls_go_elsewhere_and_are_told_who_drained_a_replica_and_why() -> None:
    table = RoutingTable({"writer": ModelSpec((backend("one"), backend("two")))})
    view = View(0.0, drained={"one": "by key:ops: new driver"})
    decision = choose(table, CallFacts("writer"), view)
    assert decision.chosen is not None
    assert decision.chosen.key == "two"
    refused = {one.backend: one.refused for one in decision.candidates}
    assert refused["one"] == "is drained by key:ops: new driver"


def test_where_all_replicas_are_drained_a_call_waits_for_them() -> None:
    table = RoutingTable({"writer": ModelSpec((backend("one"),))})
    decision = choose(table, CallFacts("writer"), View(0.0, drained={"one": ""}))
    assert (decision.chosen, decision.unroutable) == (None, False)
    assert decision.obstacles == {Obstacle.DRAINED}
    assert decision.pools == {"one"}


def test_a_fallback_takes_the_calls_of_a_drained_replica() -> None:
    table = RoutingTable(
        {
            "writer": ModelSpec((backend("one"),), fallbacks=("spare",)),
            "spare": ModelSpec((backend("two"),)),
        }
    )
    decision = choose(table, CallFacts("writer"), View(0.0, drained={"one": ""}))
    assert decision.chosen is not None
    assert decision.chosen.key == "two"
