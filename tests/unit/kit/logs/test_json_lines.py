"""Log lines as JSON."""

import json
from math import inf, nan
from typing import Any, NoReturn

import pytest

from hocket.kit.logs.telemetry import _as_json


def _refused(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


@pytest.mark.parametrize(
    ("fields", "written"),
    [
        ({"cost": nan, "limit": -inf}, {"cost": "NaN", "limit": "-Infinity"}),
        ({"cost": inf, "city": "Köln"}, {"cost": "Infinity", "city": "Köln"}),
        ({"half": "\ud800", "n": 10**30}, {"half": "\ud800", "n": 10**30}),
        ({"path": b"\xff"}, {"path": "b'\\xff'"}),
    ],
    ids=["numbers", "numbers and letters", "half of a character", "bytes"],
)
def test_a_line_is_json_in_ascii(fields: dict[str, Any], written: dict[str, Any]) -> None:
    line = _as_json(fields, default=repr)

    assert line.isascii()
    assert json.loads(line, parse_constant=_refused) == written
