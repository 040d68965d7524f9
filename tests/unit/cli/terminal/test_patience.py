"""What a command does while the API that it looks at does not answer, by a clock of the test."""

from collections.abc import Callable, Iterator

import pytest

from hocket.cli.terminal.errors import ApiRefused, ApiUnreachable, EndUnknown
from hocket.cli.terminal.patience import AWAY_S, INTERVAL_S, MAX_REST_S, TOLD_S, Patience
from hocket.schemas.errors import ErrorInfo, HocketError

TOLD = "The API does not answer. Waiting until it does (Ctrl-C ends)."


class Clock:
    """A time that goes on by what is slept, and how long each sleep was."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def sleep(self, time_s: float) -> None:
        self.now_s += time_s
        self.slept.append(time_s)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def patience(clock: Clock) -> Patience:
    return Patience("run r1", "hocket runs show r1", now_s=lambda: clock.now_s, sleep=clock.sleep)


def refused(status: int, code: str, **details: float) -> ApiRefused:
    return ApiRefused(ErrorInfo(code=code, message="No.", details=details), status)


AWAY = ApiUnreachable(url="http://h", reason="nothing listens")
LIMITED = refused(429, "too_many_requests")


def answering(*errors: HocketError) -> Callable[[], str]:
    left: Iterator[HocketError] = iter(errors)

    def read() -> str:
        for error in left:
            raise error
        return "answer"

    return read


def test_the_user_is_told_once_and_only_of_an_api_that_is_away_for_long(
    patience: Patience, capsys: pytest.CaptureFixture[str]
) -> None:
    few, many = int(TOLD_S / INTERVAL_S) - 1, int(TOLD_S / INTERVAL_S) + 2
    assert patience.answered(answering(*[AWAY] * few)) == "answer"
    assert patience.answered(answering(*[LIMITED] * many)) == "answer"
    assert TOLD not in capsys.readouterr().err
    for _ in range(3):
        assert patience.answered(answering(*[AWAY] * many)) == "answer"
    assert capsys.readouterr().err.count(TOLD) == 1


@pytest.mark.parametrize(
    ("details", "rest_s"),
    [({}, INTERVAL_S), ({"retry_after_ms": 7_000.0}, 7.0), ({"retry_after_ms": 1e9}, MAX_REST_S)],
    ids=["silent", "named", "endless"],
)
def test_an_api_that_is_asked_too_much_is_asked_less(
    details: dict[str, float], rest_s: float, patience: Patience, clock: Clock
) -> None:
    patience.rest(0.1)
    patience.answered(answering(refused(429, "too_many_requests", **details)))
    assert clock.slept == [0.1, rest_s]


def test_an_api_that_has_answered_again_is_asked_more_and_more(
    patience: Patience, clock: Clock
) -> None:
    limited = refused(429, "too_many_requests", retry_after_ms=5_000.0)
    patience.answered(answering(limited))
    for _ in range(4):
        patience.rest(0.1)
        patience.answered(answering())
    patience.answered(answering(limited))
    assert clock.slept == [5.0, 2.5, 1.25, INTERVAL_S, INTERVAL_S, 5.0]


@pytest.mark.parametrize("error", [AWAY, refused(503, "unavailable"), LIMITED])
def test_what_cannot_be_seen_any_more_may_go_on(
    error: HocketError, patience: Patience, clock: Clock
) -> None:
    with pytest.raises(EndUnknown, match=r"It may go on: `hocket runs show r1` shows it\.$"):
        patience.answered(answering(*[error] * 10_000))
    assert AWAY_S <= clock.now_s <= AWAY_S + INTERVAL_S


def test_no_command_is_named_that_would_be_refused_too(patience: Patience) -> None:
    with pytest.raises(EndUnknown, match=r"run r1 ends is not known: No\. It may go on\.$"):
        patience.answered(answering(refused(403, "forbidden")))


def test_what_was_deleted_or_has_ended_does_not_go_on(patience: Patience) -> None:
    gone = refused(404, "run_unknown")
    with pytest.raises(ApiRefused) as told:
        patience.answered(answering(gone))
    assert told.value is gone

    patience.has_ended = True
    with pytest.raises(ApiUnreachable):
        patience.answered(answering(*[AWAY] * 10_000))
