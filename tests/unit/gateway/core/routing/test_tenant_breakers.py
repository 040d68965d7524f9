"""Whom a replica's breakers hold back: the tenant whose calls fail, or all."""

import asyncio

import pytest

from hocket.gateway.backends.http_endpoint import HttpEndpoint
from hocket.gateway.backends.protocol import BackendError
from hocket.gateway.core.routing.breaker import BreakerRule, BreakerState, Outcome
from hocket.gateway.core.routing.tenant_breakers import MAX_TENANTS, ReplicaBreaker

RULE = BreakerRule(failures_in_a_row=3, open_ms=400, max_open_ms=1_000)
OPEN, HALF_OPEN, CLOSED = BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED
FAILED, OK, SLOW, NOTHING = Outcome.FAILED, Outcome.OK, Outcome.SLOW, Outcome.NOTHING


def breaker() -> ReplicaBreaker:
    return ReplicaBreaker(RULE, lambda _: 0.5)


def ends(
    of: ReplicaBreaker, tenant: str, *outcomes: Outcome, at: float = 0.0, unconnected: bool = False
) -> None:
    for outcome in outcomes:
        of.ended(tenant, outcome, at, began_ms=at, unconnected=unconnected)


def admitted(of: ReplicaBreaker, at: float = 0.0) -> str:
    return "".join(tenant for tenant in "abc" if of.admits(tenant, at))


def opened(at: float = 0.0) -> ReplicaBreaker:
    made = breaker()
    ends(made, "a", FAILED, FAILED, at=at)
    ends(made, "b", FAILED, at=at)
    return made


@pytest.mark.parametrize(
    "outcomes",
    [[FAILED] * 3, [OK, FAILED] * 5, [SLOW] * 10],
    ids=["in a row", "rate", "slow"],
)
def test_failures_of_one_tenant_hold_back_that_tenant(outcomes: list[Outcome]) -> None:
    made = breaker()
    ends(made, "b", OK)
    ends(made, "a", *outcomes)
    assert (made.state, admitted(made)) == (OPEN, "bc")
    assert (made.state_for("a"), made.state_for("b")) == (OPEN, CLOSED)
    assert (made.retry_at_ms("a"), made.openings) == (400, 1)


def test_failures_of_two_tenants_in_a_row_hold_back_all() -> None:
    assert admitted(opened()) == ""


def test_a_success_between_them_tells_that_the_server_works() -> None:
    made = breaker()
    ends(made, "a", FAILED, FAILED)
    ends(made, "c", OK)
    ends(made, "b", FAILED)
    assert admitted(made) == "abc"


def test_rates_count_for_all_where_they_hold_without_the_worst_tenant() -> None:
    made = breaker()
    for _ in range(10):
        ends(made, "b", OK)
        ends(made, "a", FAILED, FAILED, OK)
    ends(made, "b", FAILED)
    assert admitted(made) == "bc"
    both = breaker()
    for _ in range(5):
        ends(both, "a", FAILED)
        ends(both, "b", OK, FAILED)
        ends(both, "a", OK)
    assert admitted(both) == ""


def test_what_was_nobodys_request_holds_back_all() -> None:
    made = breaker()
    ends(made, "a", FAILED, FAILED, FAILED, unconnected=True)
    assert admitted(made) == ""


def test_calls_that_hang_hold_back_their_tenant_or_all() -> None:
    made = breaker()
    made.overdue("a", {"a": 10}, {"a": 10, "b": 1}, 0)
    assert admitted(made) == "bc"
    made.overdue("b", {"a": 10, "b": 1}, {"a": 10, "b": 1}, 0)
    assert admitted(made) == ""


def test_a_held_tenant_tries_one_call_at_a_time_and_comes_back_with_a_success() -> None:
    made = breaker()
    ends(made, "a", FAILED, FAILED, FAILED)
    assert [made.admits("a", at) for at in (399, 400)] == [False, True]
    made.began("a", 400)
    assert (made.state_for("a"), admitted(made, 400)) == (HALF_OPEN, "bc")
    ends(made, "b", OK, at=401)
    assert made.state_for("a") is HALF_OPEN
    ends(made, "a", FAILED, at=410)
    assert made.retry_at_ms("a") == 1_210  # twice as long
    made.began("a", 1_210)
    ends(made, "a", OK, at=1_220)
    assert (made.state, admitted(made, 1_220)) == (CLOSED, "abc")


def test_a_trial_that_fails_for_one_tenant_lets_another_one_try_at_once() -> None:
    made = opened()
    assert admitted(made, 399) == ""
    made.began("a", 400)
    assert admitted(made, 400) == ""
    ends(made, "a", FAILED, at=410)
    assert admitted(made, 410) == "bc"
    made.began("b", 410)
    assert admitted(made, 410) == ""  # one trial at a time
    ends(made, "b", OK, at=420)
    assert (made.state, admitted(made, 420)) == (CLOSED, "abc")


@pytest.mark.parametrize("unconnected", [False, True])
def test_when_trials_of_two_tenants_fail_nobody_may_try(unconnected: bool) -> None:
    made = opened()
    made.began("a", 400)
    ends(made, "a", FAILED, at=410)
    made.began("b", 410)
    ends(made, "b", FAILED, at=420, unconnected=unconnected)
    assert (admitted(made, 420), made.retry_at_ms("b")) == ("", 1_420)


def test_it_remembers_so_many_tenants_and_drops_the_one_that_failed_least_recently() -> None:
    made = breaker()
    ends(made, "a", FAILED, FAILED, FAILED)
    for number in range(10 * MAX_TENANTS):
        ends(made, f"fine-{number}", OK)
    assert (made.tenants, made.state_for("a")) == (MAX_TENANTS, OPEN)
    for number in range(MAX_TENANTS - 1):
        ends(made, f"poor-{number}", FAILED)
        ends(made, "b", OK)
    assert (made.tenants, made.state_for("a")) == (MAX_TENANTS, OPEN)
    ends(made, "poor", FAILED)
    assert (made.tenants, made.state, made.state_for("a")) == (MAX_TENANTS, CLOSED, CLOSED)


async def _failure(port: int, *, streamed: bool) -> BackendError:
    """Return how a request of a server at a port fails."""
    endpoint = HttpEndpoint(
        "a", f"http://127.0.0.1:{port}", headers={}, limit=1, now_ms=lambda: 0.0
    )
    try:
        if streamed:
            async with endpoint.opened("POST", "x", b"{}", timeout_ms=60_000):
                pass
        else:
            await endpoint.send("POST", "x", b"{}", timeout_ms=60_000)
    except BackendError as error:
        return error
    finally:
        await endpoint.close()
    raise AssertionError("it was answered")


@pytest.mark.parametrize("streamed", [False, True])
async def test_only_a_connection_that_did_not_come_about_is_nobodys_failure(streamed: bool) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    died = await _failure(port, streamed=streamed)
    server.close()
    await server.wait_closed()
    away = await _failure(port, streamed=streamed)
    assert (died.code, died.unconnected) == ("backend_unreachable", False)
    assert (away.code, away.unconnected) == ("backend_unreachable", True)
