"""Labels in a header: as documents say, and beyond that with the reason."""

import re

import pytest

from hocket.schemas.errors import InvalidInput
from hocket.schemas.labels import MAX_LABELS, header_pattern, read_labels


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
