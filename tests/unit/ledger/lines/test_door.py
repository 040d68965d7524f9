"""What a ledger keeps of the lines that it is given."""

import json

import pytest

from hocket.ledger.lines.door import _fields
from hocket.schemas.tracing.log_lines import LogLine


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ('{"step_no":7,"loss":NaN}', {"step_no": 7, "loss": "NaN"}),
        ('{"loss":[Infinity,-Infinity,1.5]}', {"loss": ["Infinity", "-Infinity", 1.5]}),
        (
            '{"step_no":7,"loss":[1e999,-1e999,2e3]}',
            {"step_no": 7, "loss": ["1e999", "-1e999", 2e3]},
        ),
        ("NaN", None),
        ('{"loss":', None),
        ("", None),
    ],
)
def test_fields_from_workers_that_write_numbers_json_does_not_have_are_kept(
    fields: str, kept: object
) -> None:
    found = _fields(LogLine(number=0, at_ms=1.0, text="epoch done", fields=fields))
    assert (None if found is None else json.loads(found)) == kept
