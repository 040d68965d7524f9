"""The rule of shared limits: never more than the limit, fair, and quiet when nobody is short."""

from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.routing.shares import Line, cap, fair, is_short, next_line

NAMES = ("a", "b", "c", "d")
wishes_of = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 40), min_size=1)


def test_one_gateway_has_the_whole_limit() -> None:
    assert fair(8, {"a": 0}) == {"a": 8}


def test_who_wants_little_leaves_the_rest_to_who_wants_more() -> None:
    assert fair(12, {"a": 2, "b": 30, "c": 30}) == {"a": 2, "b": 5, "c": 5}


def test_what_nobody_wants_is_spread_evenly() -> None:
    assert fair(12, {"a": 4, "b": 0, "c": 0}) == {"a": 6, "b": 3, "c": 3}


def test_one_place_goes_round_among_those_who_want_it() -> None:
    holders = [
        next(k for k, n in fair(1, {"a": 3, "b": 0, "c": 1}, t).items() if n) for t in range(6)
    ]
    assert set(holders) == {"a", "c"}


def test_where_places_are_few_those_who_want_none_get_none() -> None:
    assert fair(3, {"a": 0, "b": 5, "c": 0}) == {"a": 0, "b": 3, "c": 0}


def test_nothing_moves_while_nobody_is_short() -> None:
    lines = {"a": Line(9, 5), "b": Line(3, 2)}
    assert next_line("a", 12, lines, wish=8, in_use=8) == Line(9, 8)
    assert next_line("b", 12, lines, wish=0, in_use=0) == Line(3, 0)


def test_one_in_need_gets_what_another_lets_go_of_and_not_before() -> None:
    lines = {"a": Line(12, 4), "b": Line(0, 6)}
    assert next_line("b", 12, lines, wish=6, in_use=0) == Line(0, 6)
    assert next_line("a", 12, lines, wish=4, in_use=9) == Line(9, 4)
    assert cap("a", 12, lines, wish=4) == 5
    let_go = {"a": Line(5, 4), "b": Line(0, 6)}
    assert next_line("b", 12, let_go, wish=6, in_use=0) == Line(7, 6)


def test_a_gateway_without_a_line_may_use_nothing() -> None:
    assert cap("b", 12, {"a": Line(12, 4)}, wish=3) == 0


@given(st.integers(1, 60), wishes_of, st.integers(0, 9))
def test_shares_add_up_to_the_limit(limit: int, wishes: dict[str, int], turn: int) -> None:
    assert sum(fair(limit, wishes, turn).values()) == limit


@given(st.integers(1, 60), wishes_of, st.integers(0, 9))
def test_nobody_short_has_less_than_another_has_beyond_its_wish(
    limit: int, wishes: dict[str, int], turn: int
) -> None:
    shares = fair(limit, wishes, turn)
    for name, share in shares.items():
        if share < wishes[name]:
            for other, theirs in shares.items():
                assert theirs <= max(share + 1, 1), (name, other)


@st.composite
def plays(draw: st.DrawFn) -> tuple[int, list[tuple[str, str, int]]]:
    """A limit, and what happens: a gateway wants so many places, uses, ends, writes, dies."""
    acts = st.sampled_from(("wish", "use", "end", "write", "write", "write", "die"))
    what = st.tuples(st.sampled_from(NAMES), acts, st.integers(0, 12))
    return draw(st.integers(1, 12)), draw(st.lists(what, max_size=60))


@given(plays())
def test_together_they_never_use_more_than_the_limit(
    play: tuple[int, list[tuple[str, str, int]]],
) -> None:
    limit, acts = play
    lines: dict[str, Line] = {}
    wish = dict.fromkeys(NAMES, 0)
    used = dict.fromkeys(NAMES, 0)
    for turn, (name, act, number) in enumerate(acts):
        if act == "wish":
            wish[name] = number
        elif act == "use":
            room = cap(name, limit, lines, wish=wish[name], turn=turn) - used[name]
            used[name] += max(min(room, number), 0)
        elif act == "end":
            used[name] -= min(used[name], number)
        elif act == "write":  # on the condition that nobody wrote meanwhile
            lines[name] = next_line(
                name, limit, lines, wish=wish[name], in_use=used[name], turn=turn
            )
        else:
            lines.pop(name, None)
            used[name] = 0
        assert sum(line.held for line in lines.values()) <= limit
        assert sum(used.values()) <= limit
        assert all(used[one] <= lines.get(one, Line(0, 0)).held for one in NAMES)


@given(st.integers(1, 20), wishes_of)
def test_after_a_few_rounds_nobody_is_short(limit: int, wishes: dict[str, int]) -> None:
    lines: dict[str, Line] = {sorted(wishes)[0]: Line(limit, 0)}
    for _ in range(4):
        for name in sorted(wishes):
            lines[name] = next_line(name, limit, lines, wish=wishes[name], in_use=0)
    shares = fair(limit, wishes)
    assert not any(is_short(line, shares[name]) for name, line in lines.items())
