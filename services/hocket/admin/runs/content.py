"""Inputs and outputs of runs in answers: hidden from callers who may not see content, and otherwise sent
as they are stored, because to parse and encode large ones takes long."""

from secrets import token_hex
from typing import TypeVar

import asyncpg
from pydantic import BaseModel
from pydantic_core import to_json

from hocket.admin.requests.identity import Caller
from hocket.admin.runs import reads
from hocket.schemas.rest import RunDetail, RunReceipt, RunResult, StepList

MARK_BYTES = 16
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T", RunDetail, RunResult, "RunReceipt | RunResult")


def shown(answer: T, caller: Caller) -> T:
    """Return an answer as its caller may see it."""
    if caller.sees_content:
        return answer
    if isinstance(answer, RunDetail):
        origin = answer.origin
        bare = None if origin is None else origin.model_copy(update={"step_input": None})
        hidden: dict[str, object] = {"input": {}, "output": None, "origin": bare, "withheld": True}
        return answer.model_copy(update=hidden)
    if isinstance(answer, RunResult):
        return answer.model_copy(update={"output": None, "withheld": True})
    return answer


def run_json(row: asyncpg.Record, caller: Caller) -> bytes:
    """Return a run as JSON, as its caller may see it."""
    run, stored = shown(reads.detail(row), caller), _Stored()
    if caller.sees_content:
        run = stored.put(run, input=row["input"], output=row["output"])
    return stored.json(run)


def result_json(row: asyncpg.Record, caller: Caller) -> bytes:
    """Return the result of an ended run as JSON, as its caller may see it."""
    result, stored = shown(reads.result(row, output=False), caller), _Stored()
    if caller.sees_content:
        result = stored.put(result, output=row["output"])
    return stored.json(result)


def steps_json(page: StepList, values: reads.StoredValues) -> bytes:
    """Return a page of steps as JSON, with those of their values that are given."""
    stored = _Stored()
    if values:
        steps = tuple(
            stored.put(step, input=values[step.step][0], output=values[step.step][1])
            for step in page.steps
        )
        page = page.model_copy(update={"steps": steps})
    return stored.json(page)


class _Stored:
    """Puts JSON texts into an answer. While it is encoded, a mark that no value can have, because it is
    random, stands in place of each."""

    def __init__(self) -> None:
        self._mark = {token_hex(MARK_BYTES): 0}
        self._texts: list[str] = []

    def put(self, answer: M, **fields: str | None) -> M:
        """Return an answer with marks in these fields, which are given in its order; a text of None is
        null."""
        given = {name: text for name, text in fields.items() if text is not None}
        self._texts += given.values()
        return answer.model_copy(update=dict.fromkeys(given, self._mark))

    def json(self, answer: BaseModel) -> bytes:
        """Return an answer as JSON, with the texts in place of the marks."""
        whole = answer.__pydantic_serializer__.to_json(answer, by_alias=True)
        first, *others = whole.split(to_json(self._mark))
        pieces = [first]
        for text, following in zip(self._texts, others, strict=True):
            pieces += (text.encode(), following)
        return b"".join(pieces)
