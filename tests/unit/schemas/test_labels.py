"""Labels in a header: as documents say, and beyond that with the reason."""

import re

import pytest
from pydantic import BaseModel, ValidationError

from hocket.schemas.administration.schedules import ScheduledTask
from hocket.schemas.errors import InvalidInput
from hocket.schemas.labels import (
    MAX_LABEL_VALUE_CHARS,
    MAX_LABELS,
    header_of,
    header_pattern,
    read_labels,
)
from hocket.schemas.rest import RunSubmission


@pytest.mark.parametrize("count", [1, MAX_LABELS])
def test_as_many_labels_as_there_may_be_are_read_and_documented(count: int) -> None:
    text = ", ".join(f"a{number}=%C3%A9" for number in range(count))
    assert re.search(header_pattern(), text)
    assert list(read_labels(text, "labels").values()) == ["é"] * count


def test_one_more_is_refused_by_their_number() -> None:
    text = ",".join(f"a{number}=b" for number in range(MAX_LABELS + 1))
    assert not re.search(header_pattern(), text)
    with pytest.raises(InvalidInput, match=f"it has {MAX_LABELS + 1} labels"):
        read_labels(text, "labels")


def test_two_values_of_one_key_are_refused_instead_of_taking_the_last() -> None:
    with pytest.raises(InvalidInput, match="`customer` is given twice"):
        read_labels("customer=acme,team=search,customer=initech", "labels")
    assert read_labels("customer=acme,customer=acme", "labels") == {"customer": "acme"}


@pytest.mark.parametrize("model", [RunSubmission, ScheduledTask])
def test_a_body_takes_no_more_labels_than_the_header_of_its_task_can_hold(
    model: type[BaseModel],
) -> None:
    value = "日" * MAX_LABEL_VALUE_CHARS
    fits = {f"a{number}": value for number in range(7)}
    model.model_validate({"pipeline": "p", "labels": fits})
    assert read_labels(header_of(fits), "labels") == fits

    with pytest.raises(ValidationError, match="18463 characters when percent-encoded") as refused:
        model.model_validate({"pipeline": "p", "labels": {**fits, "a7": value}})
    assert refused.value.errors()[0]["loc"] == ("labels",)
