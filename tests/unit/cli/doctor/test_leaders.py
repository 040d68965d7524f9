"""How leaders of streams are spread over the servers of a cluster."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hocket.cli.doctor.nats.leaders import Led, Move, moves

SERVERS = ("n1", "n2", "n3")
ON_THE_WAY = ("TASKS", "LOG", "STEPS")


def led(**leaders: str) -> dict[str, Led]:
    return {stream: Led(server, frozenset(SERVERS)) for stream, server in leaders.items()}


def after(before: dict[str, Led], made: list[Move]) -> dict[str, str]:
    leaders = {stream: one.leader for stream, one in before.items()}
    for move in made:
        assert leaders[move.stream] == move.before
        leaders[move.stream] = move.after
    return leaders


def test_streams_that_runs_pass_come_first_and_what_is_spread_stays() -> None:
    before = led(TASKS="n1", LOG="n1", STEPS="n1", EVENTS="n2", DLQ="n3")
    made = moves(before)
    assert len(made) == 2
    assert set(after(before, made).values()) == set(SERVERS)
    assert moves(led(TASKS="n1", LOG="n2", STEPS="n3", EVENTS="n1")) == []


def test_a_server_whose_copy_is_not_current_leads_nothing_more() -> None:
    servers = frozenset({"n1", "n2"})
    before = {stream: Led("n1", servers) for stream in ON_THE_WAY}
    assert Counter(after(before, moves(before)).values()) == {"n1": 2, "n2": 1}


@given(
    st.dictionaries(
        st.sampled_from([*ON_THE_WAY, *(f"S{n}" for n in range(12))]), st.sampled_from(SERVERS)
    )
)
def test_wherever_they_are_they_are_even_afterwards_by_the_fewest_moves(
    leaders: dict[str, str],
) -> None:
    before = led(**leaders)
    made = moves(before)
    end = after(before, made)
    first = Counter(dict.fromkeys(SERVERS, 0))
    first.update(end[stream] for stream in ON_THE_WAY if stream in end)
    assert max(first.values()) - min(first.values()) <= 1
    every = Counter(dict.fromkeys(SERVERS, 0))
    every.update(end.values())
    movable = [stream for stream in end if stream not in ON_THE_WAY]
    assert max(every.values()) - min(every.values()) <= 1 or not movable
    assert len({move.stream for move in made}) == len(made), "none is moved twice"
    assert moves({s: Led(end[s], frozenset(SERVERS)) for s in end}) == []
