"""Expressions and templates: Jinja2 in its sandbox, made to give JSON values.

A string that is one `{{ ... }}` gives the value itself (a list stays a list); other text is rendered.
`when`, `until`, `over`, `valid` and `score` are expressions, with or without the braces. Dotted paths
(`nodes.plan.output.queries`) skip Jinja: most expressions are, and they cost a tenth.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput

MAX_TEXT_CHARS = 2_000_000
MAX_REPEAT = 100_000

Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]


class ExpressionFailed(HocketError):
    """The expression `{expression}` of `{field}` failed: {reason}. Check the names and the shape of
    the values it reads."""

    code = "expression_failed"
    error_class = ErrorClass.INVALID


def compile_value(value: Any, field: str) -> Evaluate:
    """Return a function that evaluates every template inside a JSON value against a scope.

    Raises InvalidInput for a template that does not parse, ExpressionFailed at evaluation."""
    if isinstance(value, str):
        return _compile_text(value, field)
    if isinstance(value, Mapping):
        items = [(str(k), compile_value(v, f"{field}.{k}")) for k, v in value.items()]
        return lambda scope: {key: evaluate(scope) for key, evaluate in items}
    if isinstance(value, list | tuple):
        parts = [compile_value(v, f"{field}.{i}") for i, v in enumerate(value)]
        return lambda scope: [evaluate(scope) for evaluate in parts]
    return lambda scope: value


def compile_expression(text: str, field: str) -> Evaluate:
    """Return a function that evaluates one expression, written with or without braces."""
    whole = _WHOLE.fullmatch(text)
    return _compile_expression(whole[1] if whole else text, field)


def references(value: Any, field: str) -> set[str]:
    """Return the names of the nodes (`nodes.NAME`) that the templates in a JSON value read."""
    found: set[str] = set()
    for text in _texts(value):
        found |= _references_of(text, field)
    return found


def expression_references(text: str, field: str) -> set[str]:
    """Return the names of the nodes that one expression (with or without braces) reads."""
    return _references_of(text if "{{" in text else "{{ " + text + " }}", field)


def render_text(text: str, scope: Scope, field: str) -> str:
    """Render a template to text at once (for workers: prompts)."""
    result = _compile_text(text, field)(scope)
    return result if isinstance(result, str) else str(result)


_WHOLE = re.compile(r"\s*\{\{((?:(?!\}\}|\{\{).)*)\}\}\s*", re.DOTALL)
_PATH = re.compile(r"\s*([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)*)\s*")
_WORDS = frozenset(
    {"true", "false", "none", "True", "False", "None", "not", "and", "or", "in", "is"}
)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox in which a mapping's own keys win over its methods, and text cannot blow up."""

    intercepted_binops = frozenset({"*", "**"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" and not (numbers and abs(left) <= MAX_REPEAT and abs(right) <= 64):
            raise SecurityError("`**` takes small numbers only")
        if operator == "*" and not numbers:
            size = next((x for x in (left, right) if isinstance(x, int)), MAX_REPEAT + 1)
            if size > MAX_REPEAT:
                raise SecurityError("`*` would repeat a value too often")
        return super().call_binop(context, operator, left, right)


def _environment() -> _Sandbox:
    environment = _Sandbox(undefined=StrictUndefined, autoescape=False, cache_size=0)
    for name in ("lipsum", "cycler", "joiner"):
        environment.globals.pop(name, None)
    return environment


_ENVIRONMENT = _environment()


def _compile_text(text: str, field: str) -> Evaluate:
    if "{{" not in text and "{%" not in text and "{#" not in text:
        return lambda scope: text
    whole = _WHOLE.fullmatch(text)
    if whole:
        return _compile_expression(whole[1], field)
    try:
        template = _ENVIRONMENT.from_string(text)
    except TemplateError as error:
        raise _does_not_parse(text, field, error) from None

    def evaluate(scope: Scope) -> str:
        size, parts = 0, []
        try:
            for part in template.generate(scope):
                size += len(part)
                if size > MAX_TEXT_CHARS:
                    raise _failed(text, field, f"the text grows beyond {MAX_TEXT_CHARS} characters")
                parts.append(part)
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise _failed(text, field, str(error)) from None
        return "".join(parts)

    return evaluate


def _compile_expression(text: str, field: str) -> Evaluate:
    path = _PATH.fullmatch(text)
    if path and path[1] not in _WORDS:
        return _compile_path(text.strip(), field)
    try:
        expression = _ENVIRONMENT.compile_expression(text, undefined_to_none=False)
    except TemplateError as error:
        raise _does_not_parse(text, field, error) from None

    def evaluate(scope: Scope) -> Any:
        try:
            return _plain(expression(scope))
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise _failed(text, field, str(error)) from None

    return evaluate


def _compile_path(path: str, field: str) -> Evaluate:
    names = path.split(".")

    def evaluate(scope: Scope) -> Any:
        value: Any = scope
        for depth, name in enumerate(names):
            try:
                value = value[name]
            except (KeyError, TypeError, IndexError):
                reader = ".".join(names[:depth]) or "the scope"
                raise _failed(path, field, f"{reader} has no `{name}`") from None
        return value

    return evaluate


def _plain(value: Any) -> Any:
    """Make the value of an expression JSON: generators of Jinja's filters become lists."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset) or hasattr(value, "__next__"):
        return [_plain(item) for item in value]
    if hasattr(value, "__iter__"):
        return [_plain(item) for item in value]
    raise TypeError(f"it gives a {type(value).__name__}, which is not JSON")


def _references_of(text: str, field: str) -> set[str]:
    if "{" not in text:
        return set()
    try:
        tree = _ENVIRONMENT.parse(text)
    except TemplateError as error:
        raise _does_not_parse(text, field, error) from None
    found: set[str] = set()
    direct = 0
    for node in tree.find_all(nodes.Getattr):
        if isinstance(node.node, nodes.Name) and node.node.name == "nodes":
            found.add(node.attr)
            direct += 1
    for item in tree.find_all(nodes.Getitem):
        named = isinstance(item.node, nodes.Name) and item.node.name == "nodes"
        if named and isinstance(item.arg, nodes.Const) and isinstance(item.arg.value, str):
            found.add(item.arg.value)
            direct += 1
    uses = sum(1 for name in tree.find_all(nodes.Name) if name.name == "nodes")
    if uses != direct:
        raise InvalidInput(
            field=field,
            reason="it reads `nodes` as a whole",
            cure="Name each node it reads: `nodes.NAME.output`.",
        )
    return found


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    return []


def _does_not_parse(text: str, field: str, error: Exception) -> InvalidInput:
    return InvalidInput(
        field=field,
        reason=f"the template `{text.strip()[:120]}` does not parse ({error})",
        cure="Write Jinja2: `{{ nodes.NAME.output.FIELD }}`.",
    )


def _failed(text: str, field: str, reason: str) -> ExpressionFailed:
    return ExpressionFailed(expression=text.strip()[:200], field=field, reason=reason)
