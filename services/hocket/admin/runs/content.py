"""Hides inputs and outputs of runs from callers who may not see content."""

from typing import TypeVar

from hocket.admin.requests.identity import Caller
from hocket.schemas.rest import RunDetail, RunReceipt, RunResult

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
