"""A cascade asks its stages in order, cheapest first, until an expression accepts an answer.

The expression reads `answer` (`text`, `data`, `tool_calls`, `finish_reason`, `input_tokens`,
`output_tokens`) and `call` (`task`, `tenant`, `pipeline`, `node`, `max_tokens`). `answer.data` is
the text parsed as JSON, or null if it is not JSON. An expression that fails, for example because a
field is missing, does not accept. The last stage's answer is always accepted.
"""

from dataclasses import dataclass, field
from typing import Any

from hocket.gateway.core.protocols.json_size import answer_value
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallRequest, Completion
from hocket.schemas.pipeline.expressions import Evaluate, compile_expression, readings

MAX_STAGES = 8
MAX_EXPRESSION_CHARS = 2_000
NAMES = frozenset({"answer", "call"})


@dataclass(frozen=True, slots=True)
class Cascade:
    """The models to ask, cheapest first, and the expression that accepts an answer."""

    stages: tuple[str, ...]
    accept: str
    evaluate: Evaluate = field(compare=False, repr=False)

    def accepts(self, request: CallRequest, answer: Completion) -> bool:
        """Tell whether an answer is good enough."""
        try:
            return bool(self.evaluate({"answer": _answer(answer), "call": _call(request)}))
        except HocketError:
            return False


def cascade_of(stages: tuple[str, ...], accept: str, where: str) -> Cascade:
    """Return a cascade; raise InvalidInput for an expression that does not parse."""
    return Cascade(stages, accept, compile_expression(accept, where))


def unknown_names(accept: str, where: str) -> set[str]:
    """Return the names that an expression reads but a cascade does not provide."""
    found: set[str] = set()
    for reading in readings(accept, where, expression=True):
        found |= reading.names
    return found - NAMES


def _answer(answer: Completion) -> dict[str, Any]:
    return {
        "text": answer.text,
        "data": _data(answer),
        "tool_calls": list(answer.tool_calls),
        "finish_reason": answer.finish_reason,
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
    }


def _data(answer: Completion) -> Any:
    if answer.data is not None:
        return answer.data
    if not answer.text.lstrip().startswith(("{", "[")):
        return None
    return answer_value(answer.text)


def _call(request: CallRequest) -> dict[str, Any]:
    who = request.attribution
    return {
        "task": request.task,
        "tenant": who.tenant,
        "pipeline": who.pipeline,
        "node": who.node,
        "max_tokens": request.max_tokens,
    }
