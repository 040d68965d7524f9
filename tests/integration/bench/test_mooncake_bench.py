"""The routing rule on the Mooncake trace: what it must hold, and that one shared block does not mislead
it. Without the trace (`HOCKET_DATA`) there is nothing to test."""

from types import ModuleType

import pytest

from bench.gateway import mooncake
from support.places import DATA

REPLICAS = 8


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    if not (DATA / mooncake.TRACE).exists():
        pytest.skip(f"the Mooncake trace is not in {DATA}; set HOCKET_DATA to its folder")
    return mooncake


def test_the_rule_beats_load_alone_on_hits_mean_and_tail(bench: ModuleType) -> None:
    found = bench.replay(bench.trace(DATA), REPLICAS, bench.Router(REPLICAS).pick)
    assert found.hit_share >= 0.33
    assert found.mean_s <= 1.20
    assert found.p99_s <= 9.4


def test_a_block_that_all_requests_share_costs_nothing(bench: ModuleType) -> None:
    requests = bench.shared_by_all(bench.trace(DATA))
    rule = bench.replay(requests, REPLICAS, bench.Router(REPLICAS).pick)
    least_loaded = bench.replay(requests, REPLICAS, bench.least_loaded)
    assert rule.mean_s <= 1.1 * least_loaded.mean_s
    assert rule.p99_s <= 1.1 * least_loaded.p99_s


def test_the_policies_to_compare_with_measure_what_the_data_says_of_them(bench: ModuleType) -> None:
    requests = bench.trace(DATA)
    robin = bench.replay(requests, REPLICAS, bench.round_robin)
    loaded = bench.replay(requests, REPLICAS, bench.least_loaded)
    assert robin.hit_share == pytest.approx(0.108, abs=0.001)
    assert (robin.mean_s, robin.p99_s) == (
        pytest.approx(3.08, abs=0.02),
        pytest.approx(17.4, abs=0.1),
    )
    assert (loaded.mean_s, loaded.p99_s) == (
        pytest.approx(1.62, abs=0.03),
        pytest.approx(10.6, abs=0.1),
    )
