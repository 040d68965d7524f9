"""Stored prompts and answers are found by the id of a run or of a call."""

from typing import Any, cast

import pytest

from hocket.cli.remote.api import Api
from hocket.cli.remote.content import MAX_RUN_CHARS, content_of

RUN = "r" + "1" * 24
NOTHING = {"content": [], "truncated": False, "next": None}


class Asked:
    """An API that knows one id, and notes what it was asked for."""

    def __init__(self, **known: str) -> None:
        self.known = known
        self.asked: list[str] = []

    def get(self, path: str, **query: Any) -> Any:
        kind = "call" if "call" in query else "run"
        self.asked.append(kind)
        is_known = self.known.get(kind) == query[kind]
        return {**NOTHING, "content": [query[kind]]} if is_known else NOTHING


@pytest.mark.parametrize(
    ("given", "known", "asked"),
    [
        (RUN, "run", ["run"]),
        (RUN, "call", ["run"]),
        ("job-7", "run", ["run"]),
        ("http:1", "call", ["run", "call"]),
        ("n" * MAX_RUN_CHARS, "call", ["run", "call"]),
        ("n" * (MAX_RUN_CHARS + 1), "call", ["call"]),
    ],
    ids=["run", "no-call", "foreign-run", "call", "longest-run", "longer"],
)
def test_an_id_too_long_for_a_run_is_that_of_a_call(
    given: str, known: str, asked: list[str]
) -> None:
    api = Asked(**{known: given})
    found = content_of(cast("Api", api), given, limit=10)
    assert api.asked == asked
    assert found["content"] == ([given] if asked[-1] == known else [])
