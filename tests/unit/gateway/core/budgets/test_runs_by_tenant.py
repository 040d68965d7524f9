"""What is remembered of runs: bounded, and nobody's runs at the cost of another's."""

from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.budgets.runs_by_tenant import RunsByTenant

LIMIT = 6


def made(runs: RunsByTenant[list[str]], tenant: str, run_id: str) -> None:
    runs.of(tenant, run_id, lambda: [run_id])


def test_the_runs_of_a_busy_tenant_push_out_only_its_own_oldest() -> None:
    runs: RunsByTenant[list[str]] = RunsByTenant(LIMIT)
    made(runs, "modest", "r1")
    for number in range(20):
        made(runs, "busy", f"r{number}")
        if number % 2:
            made(runs, "busy", "r0")  # the latest used stays
    assert (len(runs), runs.get("modest", "r1")) == (LIMIT, ["r1"])
    assert [name for name in range(20) if ("busy", f"r{name}") in runs] == [0, 16, 17, 18, 19]


def test_a_new_tenant_gets_room_from_the_one_with_the_most() -> None:
    runs: RunsByTenant[list[str]] = RunsByTenant(LIMIT)
    for number in range(4):
        made(runs, "busy", f"r{number}")
    made(runs, "modest", "r0")
    made(runs, "modest", "r1")
    made(runs, "new", "r0")
    assert runs.get("busy", "r0") is None
    assert [len(runs), ("modest", "r0") in runs, ("new", "r0") in runs] == [LIMIT, True, True]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from("123456789"))))
def test_no_more_is_remembered_than_the_limit_and_what_was_forgotten_is_gone(
    steps: list[tuple[bool, str, str]],
) -> None:
    runs: RunsByTenant[list[str]] = RunsByTenant(LIMIT)
    for adds, tenant, run_id in steps:
        if adds:
            made(runs, tenant, run_id)
            assert runs.get(tenant, run_id) == [run_id]
        else:
            assert (runs.get(tenant, run_id) is None) is (runs.pop(tenant, run_id) is None)
            assert (tenant, run_id) not in runs
        left = [(one, two) for one in "abc" for two in "123456789" if (one, two) in runs]
        assert len(left) == len(runs) <= LIMIT
