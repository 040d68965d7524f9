"""Errors go from process to process as they are: a pool of processes pickles what its workers raise."""

import copy
import pickle

import pytest

from hocket.cli.terminal.errors import ApiRefused
from hocket.client import AnswerUnreadable, ApiUnreachable, RequestRefused, RunNotSucceeded
from hocket.schemas.errors import ErrorInfo, HocketError, InvalidInput, RunUnknown
from hocket.schemas.rest import RunDetail
from hocket.worker import Retryable, StepFailed

INFO = ErrorInfo(code="run_unknown", message="There is no run {r}.", field="run_id")
OTHERS = [{"field": "b", "reason": "it is late", "cure": "Hurry."}]
RUN = RunDetail.model_construct(run_id="r1", status="failed", error=INFO)


@pytest.mark.parametrize(
    "error",
    [
        RunUnknown(run_id="r1"),
        InvalidInput(field="a", reason="it has {braces}", cure="Remove them.", others=OTHERS),
        ApiUnreachable(url="http://h", reason="refused"),
        AnswerUnreadable(url="http://h", status=502, reason="no JSON"),
        RequestRefused(404, INFO),
        RunNotSucceeded(RUN),
        ApiRefused(INFO),
        Retryable("later"),
        StepFailed("find", INFO),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_was_pickled_says_the_same(error: HocketError) -> None:
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(made) is type(error)
        assert str(made) == str(error)
        assert made.info() == error.info()
        assert made.__dict__ == error.__dict__


class Declined(HocketError):
    code = "declined"


class Braced(HocketError):
    """The answer was not {"paid": true}."""


class Worded(HocketError):
    """The card of {customer} was declined."""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Declined("no funds"), "no funds"),
        (Worded("no funds"), "no funds"),
        (Declined(), "Hocket encountered an error: Declined."),
        (Declined(reason="no funds"), "Hocket encountered an error: no funds."),
        (Braced(), 'The answer was not {"paid": true}.'),
        (Worded(customer="Ann"), "The card of Ann was declined."),
    ],
)
def test_an_error_of_a_handler_is_raised_like_any_exception(error: HocketError, text: str) -> None:
    assert error.info().message == str(error) == text
    assert error.info().code == type(error).code
    assert str(pickle.loads(pickle.dumps(error))) == text
