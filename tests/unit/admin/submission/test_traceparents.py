"""Which `traceparent` of a caller is kept."""

import pytest

from hocket.admin.submission.one import valid_trace

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-more-of-it", True),
        (f"00-{TRACE}-{SPAN}-01-more", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        ("00-no-trace", False),
        ("", False),
        (None, False),
    ],
)
def test_the_contexts_of_later_versions_are_kept_and_malformed_ones_are_not(
    given: str | None, is_kept: bool
) -> None:
    assert valid_trace(given) == (given if is_kept else None)
