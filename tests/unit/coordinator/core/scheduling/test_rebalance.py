"""The balancing rule: fair shares, few moves, and nobody takes what another holds."""

from hypothesis import given
from hypothesis import strategies as st

from hocket.coordinator.core.scheduling.rebalance import Plan, View, plan, shares

NAMES = ("a", "b", "c", "d", "e")


@st.composite
def views(draw: st.DrawFn) -> View:
    partitions = draw(st.integers(1, 24))
    live = frozenset(draw(st.sets(st.sampled_from(NAMES))))
    leaving = frozenset(draw(st.sets(st.sampled_from(sorted(live))))) if live else frozenset()
    owner = st.sampled_from((*NAMES, ""))
    owners = {n: draw(owner) for n in range(partitions) if draw(st.booleans())}
    return View(partitions, live, leaving, {n: who for n, who in owners.items() if who in live})


def settled(view: View) -> View:
    """Let every coordinator do what it should until nothing is left to do."""
    owners = dict(view.owners)
    for _ in range(3):
        seen = View(view.partitions, view.live, view.leaving, dict(owners))
        for name in sorted(view.live):
            for number in plan(name, seen).release:
                del owners[number]
        seen = View(view.partitions, view.live, view.leaving, dict(owners))
        for name in sorted(view.live):
            for number in plan(name, seen).take:
                assert number not in owners
                owners[number] = name
    return View(view.partitions, view.live, view.leaving, owners)


def test_the_first_takes_all_and_the_second_gets_half() -> None:
    alone = View(4, frozenset("a"), frozenset(), {})
    assert plan("a", alone) == Plan(take=(0, 1, 2, 3))
    both = View(4, frozenset("ab"), frozenset(), dict.fromkeys(range(4), "a"))
    assert plan("a", both) == Plan(release=(2, 3))
    assert plan("b", both) == Plan()
    let_go = View(4, frozenset("ab"), frozenset(), {0: "a", 1: "a"})
    assert plan("b", let_go) == Plan(take=(2, 3))


def test_what_a_dead_one_owned_is_shared_out() -> None:
    view = View(6, frozenset("bc"), frozenset(), {0: "b", 1: "b", 2: "c", 3: "c"})
    assert plan("b", view) == Plan(take=(4,))
    assert plan("c", view) == Plan(take=(5,))


def test_one_that_leaves_lets_go_of_all_and_takes_nothing() -> None:
    view = View(4, frozenset("ab"), frozenset("a"), {0: "a", 1: "a", 2: "b"})
    assert plan("a", view) == Plan(release=(0, 1))
    assert plan("b", view) == Plan(take=(3,))


def test_the_last_one_that_leaves_lets_go_of_all() -> None:
    view = View(2, frozenset("a"), frozenset("a"), {0: "a", 1: "a"})
    assert plan("a", view) == Plan(release=(0, 1))


def test_one_that_knows_nobody_not_even_itself_does_nothing() -> None:
    assert plan("a", View(2, frozenset(), frozenset(), {})) == Plan()


@given(views())
def test_shares_differ_by_at_most_one_and_cover_every_partition(view: View) -> None:
    wanted = shares(view)
    staying = view.live - view.leaving
    if not staying:
        assert wanted == {}
        return
    assert sorted(wanted) == list(range(view.partitions))
    sizes = [sum(1 for who in wanted.values() if who == name) for name in staying]
    assert max(sizes) - min(sizes) <= 1


@given(views())
def test_no_more_partitions_move_than_fair_shares_demand(view: View) -> None:
    staying = view.live - view.leaving
    wanted = shares(view)
    moved = sum(1 for n, who in view.owners.items() if who in staying and wanted[n] != who)
    if not staying:
        return
    least, more = divmod(view.partitions, len(staying))
    held = sorted((sum(1 for w in view.owners.values() if w == s) for s in staying), reverse=True)
    bound = sum(max(0, n - least - (rank < more)) for rank, n in enumerate(held))
    assert moved == bound


@given(views())
def test_two_never_want_to_take_the_same_partition_and_nobody_one_that_is_owned(view: View) -> None:
    takes = [number for name in sorted(view.live) for number in plan(name, view).take]
    assert len(takes) == len(set(takes))
    assert not set(takes) & set(view.owners)


@given(views())
def test_doing_what_the_rule_says_ends_with_fair_shares_and_nothing_to_do(view: View) -> None:
    end = settled(view)
    assert all(plan(name, end) == Plan() for name in view.live)
    staying = view.live - view.leaving
    if staying:
        assert set(end.owners) == set(range(view.partitions))
        assert set(end.owners.values()) <= staying
