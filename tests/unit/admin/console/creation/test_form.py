"""A form's errors stand at their fields, and say what to do."""

import pytest
from pydantic import BaseModel

from hocket.admin.console.creation.form import Form, Reading, filled
from hocket.admin.console.creation.posted import Typed
from hocket.admin.requests.etags import PreconditionFailed
from hocket.kit.access.key_store import KeyBeyondOwn, RoleBeyondOwn
from hocket.schemas.access.keys import PermissionMissing
from hocket.schemas.errors import InvalidInput, PipelineUnknown
from hocket.schemas.labels import Labels

LABELS = {"name": "Name", "task.input": "Input", "events": "Events", "expires_at": "Expires"}


def form(**typed: str) -> Form:
    return Form(LABELS, Typed({name: (text,) for name, text in typed.items()}))


@pytest.mark.parametrize(
    ("place", "field", "said"),
    [
        ("name", "name", "It is bad. Mend it."),
        ("task.input", "task.input", "It is bad. Mend it."),
        ("task.input.a.b", "task.input", "`a.b`: it is bad. Mend it."),
        ("events.2", "events", "Entry 3: it is bad. Mend it."),
    ],
)
def test_an_error_finds_the_field_that_its_place_is_in(place: str, field: str, said: str) -> None:
    one = form()
    with one.refusing({}):
        raise InvalidInput(field=place, reason="it is bad", cure="Mend it.")

    assert (one.faults, one.notice, one.status) == ({field: said}, "", 422)
    assert (one.first, one.is_wrong(field), one.is_wrong("other")) == (field, True, False)
    assert list(one.wrong) == [(field, LABELS[field], said)]


def test_an_error_about_no_field_of_the_form_is_said_above_it() -> None:
    one = form()
    with one.refusing({}):
        raise InvalidInput(field="slo_ms", reason="it is bad", cure="Mend it.")
    other = form()
    with other.refusing({}):
        raise PipelineUnknown(pipeline="a", tenant="t")

    assert (one.faults, one.notice) == ({}, "`slo_ms` is not valid: it is bad. Mend it.")
    assert other.notice.startswith("There is no pipeline `a` for tenant `t`.")
    assert other.status == 404


def test_an_error_is_placed_by_its_code_or_by_the_field_that_it_names() -> None:
    one = form()
    with one.refusing({"role_beyond_own": "name"}):
        raise RoleBeyondOwn(permissions="keys.manage")
    other = form()
    with other.refusing({}):
        raise KeyBeyondOwn(field="expires_at", own="2026-01-01")

    assert one.fault("name").startswith("A key cannot grant what it does not have: keys.manage.")
    assert other.fault("expires_at").startswith("A key cannot grant more than it has, 2026-01-01.")
    assert (one.status, other.status) == (403, 403)


def test_a_conflict_is_said_in_the_words_of_the_form() -> None:
    taken, changed = form(), form()
    with taken.refusing({}, ("name", "It is taken.")):
        raise PreconditionFailed(etag='"3"')
    with changed.refusing({}, ("", "It was changed.")):
        raise PreconditionFailed(etag='"3"')

    assert (taken.faults, taken.notice, taken.status) == ({"name": "It is taken."}, "", 412)
    assert (changed.faults, changed.notice, changed.status) == ({}, "It was changed.", 412)


def test_access_that_is_denied_is_no_error_of_the_form() -> None:
    one = form()
    with pytest.raises(PermissionMissing), one.refusing({}):
        raise PermissionMissing(key="k", permission="runs.read")

    assert (one.faults, one.status) == ({}, 200)


def test_all_errors_of_one_refusal_are_said() -> None:
    one = form()
    others = [{"field": "events", "reason": "none is chosen", "cure": "Choose one."}]
    with one.refusing({}):
        raise InvalidInput(field="name", reason="it is bad", cure="Mend it.", others=others)

    assert one.faults == {
        "name": "It is bad. Mend it.",
        "events": "None is chosen. Choose one.",
    }


class Body(BaseModel):
    size: float
    count: int = 1
    labels: Labels = {}


@pytest.mark.parametrize(
    ("typed", "number", "whole"),
    [
        ("", None, None),
        ("3", 3.0, 3),
        (" 30 ", 30.0, 30),
        ("-2", -2.0, -2),
        ("2.5", 2.5, "it is not a whole number"),
        ("1e3", "it is not a number", "it is not a whole number"),
        ("\u0663", "it is not a number", "it is not a whole number"),
        ("1_000", "it is not a number", "it is not a whole number"),
        ("9" * 16, "it is not a number", "it is not a whole number"),
        ("nan", "it is not a number", "it is not a whole number"),
    ],
)
def test_numbers_are_read_in_one_form(typed: str, number: object, whole: object) -> None:
    found: list[object] = []
    for read in (Reading.number, Reading.whole):
        reading = Reading(Typed({"size": (typed,)}))
        value = read(reading, "size")
        found.append(reading.faults[0].reason if reading.faults else value)

    assert found == [number, whole]


def test_a_field_that_cannot_be_read_is_not_also_called_empty() -> None:
    reading = Reading(Typed({"size": ("many",), "labels": ("x",)}))
    body = {"size": reading.number("size"), "labels": reading.labels("labels"), "count": "x"}
    assert reading.model(Body, body) is None
    with pytest.raises(InvalidInput) as refused:
        reading.check()

    found = [(one.field, one.reason) for one in reading.faults]
    assert [field for field, _ in found] == ["size", "labels", "count"]
    assert found[0] == ("size", "it is not a number")
    assert refused.value.fields["field"] == "size"


def test_a_missing_field_is_to_be_filled_in() -> None:
    reading = Reading(Typed())
    reading.model(Body, {"size": None})

    assert reading.faults == [("size", "it is empty", "Fill it in.")]


def test_what_is_left_empty_is_left_to_the_api() -> None:
    assert filled({"a": None, "b": "", "c": 0, "d": False, "e": {}, "f": ()}) == {
        "c": 0, "d": False, "e": {}, "f": (),
    }  # fmt: skip
