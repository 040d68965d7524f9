"""What `hocket doctor` says of clocks."""

import pytest

from hocket.cli.doctor.clocks import ClockReading, difference, reading
from hocket.cli.doctor.findings import Verdict


def read(of: str, ahead_s: float, waited_s: float = 0.002) -> ClockReading:
    """What a machine said in the middle of the time for which it was waited."""
    return ClockReading(of, 1_000 + waited_s / 2 + ahead_s, 1_000, 1_000 + waited_s)


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "said"),
    [
        (0.0, Verdict.OK, "n1 within 0.25 s"),
        (0.5, Verdict.NOTE, "n1 is 0.5 s ahead of this machine"),
        (-0.5, Verdict.NOTE, "n1 is 0.5 s behind this machine"),
        (3.0, Verdict.FAILED, "n1 is 3.0 s ahead of this machine"),
        (-90.0, Verdict.FAILED, "n1 is 90.0 s behind this machine"),
    ],
)
def test_a_clock_that_differs_is_told_by_how_much(
    ahead_s: float, verdict: Verdict, said: str
) -> None:
    (found,) = difference([read("n1", ahead_s)])
    assert found.verdict is verdict
    assert said in found.found


def test_a_late_answer_is_no_difference_and_the_prompter_of_two_counts() -> None:
    assert difference([read("n1", 0.0, waited_s=5)])[0].verdict is Verdict.OK
    both = [read("n1", 0.4, waited_s=0.01), read("n1", 0.4, waited_s=2)]
    assert difference(both)[0].verdict is Verdict.OK  # the second one leaves it open
    assert difference([]) == []


def test_the_time_of_nats_is_read_and_what_is_none_is_left_out() -> None:
    (found,) = reading("n1", "1970-01-01T00:16:40.123456789Z", 1_000.1, 1_000.2)
    assert found.ahead_s == 0
    assert reading("n1", "", 0, 1) == []
