"""A write under a condition replaces only what its author has seen."""

import pytest

from hocket.admin.requests.etags import (
    ANY,
    NothingToMatch,
    PreconditionFailed,
    check_match,
    check_none_match,
    etag,
)


@pytest.mark.parametrize(
    ("wanted", "revision", "now"),
    [
        (None, None, None),
        (None, 3, None),
        ("*", 3, None),
        ('"3"', 3, None),
        ('W/"3"', 3, None),
        ('"2"', 3, '"3"'),
        ('W/"2"', 3, '"3"'),
        ("W/*", 3, '"3"'),
        ("3", 3, '"3"'),
        ("", 3, '"3"'),
    ],
)
def test_only_the_revision_that_was_seen_is_replaced(
    wanted: str | None, revision: int | None, now: str | None
) -> None:
    if now is None:
        check_match(wanted, revision)
        return
    with pytest.raises(PreconditionFailed) as refused:
        check_match(wanted, revision)
    assert refused.value.fields["etag"] == now


@pytest.mark.parametrize("wanted", ["*", '"3"', ""])
def test_what_is_not_there_has_no_etag_to_name(wanted: str) -> None:
    with pytest.raises(NothingToMatch, match="never created") as refused:
        check_match(wanted, None)
    assert (refused.value.code, refused.value.info().field) == ("precondition_failed", "If-Match")


@pytest.mark.parametrize(
    ("unwanted", "revision", "passes"),
    [
        (None, 3, True),
        (ANY, None, True),
        ('"3"', None, True),
        ('"2"', 3, True),
        (ANY, 3, False),
        (etag(3), 3, False),
        (f"W/{etag(3)}", 3, False),
    ],
)
def test_what_is_there_already_is_not_made_again(
    unwanted: str | None, revision: int | None, passes: bool
) -> None:
    if passes:
        check_none_match(unwanted, revision)
        return
    with pytest.raises(PreconditionFailed):
        check_none_match(unwanted, revision)
