"""Renders prompts over the step's input. They are compiled once, because a prompt is the same in every
run."""

from functools import lru_cache
from typing import Any

from hocket.schemas.pipeline.expressions import Evaluate, compile_value

MAX_COMPILED = 1_024


def render(text: str, step_input: Any, field: str) -> str:
    """Return the text of a template over `input`; raise ExpressionFailed naming `field`."""
    value = _compiled(text, field)({"input": step_input})
    return value if isinstance(value, str) else str(value)


def render_value(value: Any, step_input: Any, field: str) -> Any:
    """Return a JSON value with the templates in it evaluated over `input`."""
    if isinstance(value, str):
        return _compiled(value, field)({"input": step_input})
    return compile_value(value, field)({"input": step_input})


@lru_cache(maxsize=MAX_COMPILED)
def _compiled(text: str, field: str) -> Evaluate:
    return compile_value(text, field)
