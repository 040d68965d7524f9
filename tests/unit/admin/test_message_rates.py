"""Who says too much to NATS loses his connections for a while; who says much for a moment does not."""

from dataclasses import dataclass

import pytest

from hocket.admin.nats_access.message_rates import BARRED_S, Heard, MessageRates, TooManyMessages
from hocket.schemas.access.keys import Principal

PER_S, BURST = 100.0, 1_000.0


@dataclass
class Book:
    """Two keys of a tenant, and one of a worker."""

    def of(self, key_id: str) -> Principal | None:
        tenants = {"a1": "acme", "a2": "acme", "w": None}
        if key_id not in tenants:
            return None
        tenant = tenants[key_id]
        role = "worker" if tenant is None else "developer"
        return Principal(key_id, key_id, tenant, role, frozenset())


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def heard(connection: str, key_id: str, messages: int, age_s: float = 0.0) -> Heard:
    return Heard(connection, key_id, messages, age_s)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rates(clock: Clock) -> MessageRates:
    return MessageRates(Book(), clock, per_s=PER_S, burst=BURST)  # type: ignore[arg-type]


def test_a_moment_of_much_is_allowed_and_much_for_long_is_not(
    rates: MessageRates, clock: Clock
) -> None:
    assert rates.looked([heard("c1", "a1", 900)]) == set()
    ended = []
    for total in (1_100, 1_300):
        clock.now_s += 1
        ended.append(rates.looked([heard("c1", "a1", total)]))
    assert ended == [set(), {"c1"}]


def test_all_connections_of_a_tenant_count_together_and_end_together(
    rates: MessageRates, clock: Clock
) -> None:
    clock.now_s = 1
    said = [("c1", "a1", 700), ("c2", "a2", 700), ("c3", "w", 900), ("c4", "gone", 9_000)]
    assert rates.looked([heard(*one) for one in said]) == {"c1", "c2"}
    acme, worker = Book().of("a2"), Book().of("w")
    assert acme is not None
    assert worker is not None
    with pytest.raises(TooManyMessages, match="tenant acme"):
        rates.check(acme)
    rates.check(worker)
    clock.now_s += BARRED_S
    rates.check(acme)
    assert rates.looked([heard("c5", "a1", 10)]) == set()


def test_who_connects_again_and_again_is_counted_all_the_same(
    rates: MessageRates, clock: Clock
) -> None:
    for number in range(4):
        clock.now_s += 0.1
        ended = rates.looked([heard(f"c{number}", "w", 400)])
    assert ended == {"c3"}


def test_what_was_said_long_ago_is_forgotten(rates: MessageRates, clock: Clock) -> None:
    total = 0
    for _ in range(50):
        clock.now_s += 10
        total += 900
        assert rates.looked([heard("c1", "a1", total)]) == set()


def test_what_was_said_before_this_process_looked_bars_nobody(
    rates: MessageRates, clock: Clock
) -> None:
    """Another process of REST has just started, and a worker has been connected for a day."""
    day_s = 86_400.0
    assert rates.looked([heard("c1", "w", 500_000, day_s)]) == set()
    clock.now_s += 1
    assert rates.looked([heard("c1", "w", 500_100, day_s + 1)]) == set()
    clock.now_s += 1
    assert rates.looked([heard("c1", "w", 502_000, day_s + 2)]) == {"c1"}


def test_a_look_that_a_server_does_not_answer_makes_nobody_new(
    rates: MessageRates, clock: Clock
) -> None:
    total = 0
    for second in range(100):
        clock.now_s += 1
        total += 90
        answered = [heard("c1", "a1", total, second + 1.0)] if second != 60 else []
        assert rates.looked(answered) == set()


def test_a_new_connection_is_counted_whole_although_looking_took_a_moment(
    rates: MessageRates, clock: Clock
) -> None:
    rates.looked([])
    clock.now_s += 1
    assert rates.looked([heard("c1", "a1", 1_200, 1.5)]) == {"c1"}
