"""Who waits, who is next, and who has to go."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.routing.queue import PATIENCE_MS, QueueClass, Ticket, WaitQueue
from hocket.schemas.messages import Priority

FAR_MS = 10_000_000.0
GPU = frozenset({"gpu"})


def ticket(
    order: int,
    *,
    priority: Priority = Priority.STANDARD,
    deadline: float = FAR_MS,
    expected: float = 0.0,
    entered: float = 0.0,
    fast: bool = False,
    pools: frozenset[str] = GPU,
    tenant: str = "",
) -> Ticket:
    return Ticket(order, priority, pools, deadline, expected, entered, fast, tenant)


def room(*tickets: Ticket) -> WaitQueue:
    made = WaitQueue()
    for one in tickets:
        made.enter(one)
    return made


def orders(tickets: Sequence[Ticket]) -> list[int]:
    return [one.order for one in tickets]


def test_the_least_slack_goes_first() -> None:
    waiting = room(
        ticket(1, deadline=30_000),
        ticket(2, deadline=40_000, expected=35_000),
        ticket(3, deadline=20_000),
    )
    assert orders(waiting.line("gpu", 9)) == [2, 3, 1]


def test_with_time_to_spare_the_class_decides() -> None:
    classes = (Priority.BATCH, Priority.STANDARD, Priority.INTERACTIVE)
    waiting = room(*(ticket(i, priority=priority) for i, priority in enumerate(classes)))
    assert orders(waiting.line("gpu", 9)) == [2, 1, 0]


def test_a_batch_call_is_due_before_interactive_ones_that_came_after_its_patience() -> None:
    late_ms = PATIENCE_MS[Priority.BATCH]
    waiting = room(
        ticket(1, priority=Priority.BATCH),
        *(ticket(i, priority=Priority.INTERACTIVE, entered=late_ms) for i in range(2, 9)),
    )
    assert orders(waiting.line("gpu", 1)) == [1]


def test_those_who_wait_are_counted_by_their_class() -> None:
    classes = (Priority.BATCH, Priority.STANDARD, Priority.BATCH, Priority.INTERACTIVE)
    waiting = room(*(ticket(i, priority=priority) for i, priority in enumerate(classes)))
    assert waiting.waiting_by_class("gpu") == {"batch": 2, "standard": 1, "interactive": 1}
    assert waiting.waiting_by_class("other") == {}


def test_fast_calls_can_be_asked_for_alone() -> None:
    waiting = room(ticket(1), ticket(2, fast=True), ticket(3))
    assert orders(waiting.line("gpu", 9, (QueueClass.FAST,))) == [2]


def test_a_fast_call_is_found_behind_any_number_of_others() -> None:
    waiting = room(*(ticket(i) for i in range(100)), ticket(100, fast=True, entered=9.0))
    assert orders(waiting.line("gpu", 4, (QueueClass.FAST,))) == [100]


def test_the_lowest_class_with_the_latest_due_goes_when_the_room_is_full() -> None:
    waiting = room(
        ticket(1, priority=Priority.BATCH, deadline=500),
        ticket(2, priority=Priority.BATCH),
        ticket(3),
    )
    newcomer = ticket(4, priority=Priority.INTERACTIVE, entered=9_999)
    assert waiting.to_shed(newcomer, "gpu").order == 2


def test_the_newcomer_goes_where_nobody_is_less_urgent() -> None:
    waiting = room(ticket(1, priority=Priority.INTERACTIVE), ticket(2))
    assert waiting.to_shed(ticket(3, entered=1.0), "gpu").order == 3


def test_a_tenant_that_fills_the_room_leaves_it_to_others_whatever_it_calls_urgent() -> None:
    urgent = {"priority": Priority.INTERACTIVE, "deadline": 500.0, "tenant": "greedy"}
    waiting = room(*(ticket(number, **urgent) for number in range(9)), ticket(9, tenant="modest"))
    newcomer = ticket(10, priority=Priority.BATCH, entered=1.0, tenant="modest")
    assert waiting.to_shed(newcomer, "gpu").order == 8
    assert waiting.to_shed(ticket(11, entered=1.0, **urgent), "gpu").order == 11


def test_among_tenants_that_have_as_much_the_lowest_class_goes() -> None:
    waiting = room(ticket(1, tenant="a"), ticket(2, priority=Priority.BATCH, tenant="b"))
    assert waiting.to_shed(ticket(3, tenant="c", entered=1.0), "gpu").order == 2


def test_a_call_that_left_one_pool_has_left_them_all() -> None:
    both = ticket(1, pools=frozenset({"gpu", "cloud"}))
    waiting = room(both)
    assert waiting.leave(both)
    assert (waiting.line("gpu", 9), waiting.line("cloud", 9), len(waiting)) == ([], [], 0)


TICKETS = st.builds(
    ticket,
    order=st.integers(0, 1_000_000),
    priority=st.sampled_from(Priority),
    deadline=st.floats(0, 1e6),
    expected=st.floats(0, 1e5),
    entered=st.floats(0, 1e6),
    fast=st.booleans(),
    pools=st.frozensets(st.sampled_from(["a", "b", "c"]), min_size=1),
)


@given(st.lists(TICKETS, unique_by=lambda one: one.order, max_size=30), st.randoms())
def test_everybody_who_entered_leaves_once_and_nobody_is_forgotten(
    tickets: list[Ticket], dice: "st.DataObject"
) -> None:
    waiting = room(*tickets)
    gone = dice.sample(tickets, len(tickets) // 2)  # type: ignore[attr-defined]
    assert all(waiting.leave(one) for one in gone)
    assert not any(waiting.leave(one) for one in gone)
    left = {one.order for one in tickets} - {one.order for one in gone}
    seen = {one.order for pool in waiting.pools() for one in waiting.line(pool, 1_000)}
    assert (seen, len(waiting)) == (left, len(left))
    for pool in ("a", "b", "c"):
        dues = [one.due_ms for one in waiting.line(pool, 1_000)]
        assert dues == sorted(dues)
        assert len(dues) == waiting.waiting(pool)


@given(st.lists(TICKETS, unique_by=lambda one: one.order, min_size=1, max_size=30))
def test_nobody_of_a_higher_class_is_shed_before_one_of_a_lower(tickets: list[Ticket]) -> None:
    *others, newcomer = tickets
    rank = {Priority.INTERACTIVE: 0, Priority.STANDARD: 1, Priority.BATCH: 2}
    shed = room(*others).to_shed(newcomer, "a")
    competing = [newcomer, *(one for one in others if "a" in one.pools)]
    assert rank[shed.priority] == max(rank[one.priority] for one in competing)
