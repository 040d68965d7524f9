"""Expressions and templates: Jinja2 in its sandbox, made to give JSON values.

A string that is one `{{ ... }}` gives the value itself (a list stays a list); other text is rendered.
`when`, `until`, `over`, `valid` and `score` are expressions, with or without the braces. Dotted paths
(`nodes.plan.output.queries`) skip Jinja: most expressions are, and they cost a tenth.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, TemplateError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput

MAX_TEXT_CHARS = 2_000_000
MAX_REPEAT = 100_000

NOT_CONSTANT = object()

Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one template reads: free `names`, siblings by `nodes.NAME`, and the dotted `paths` below
    names. `guarded` are paths that it asks for before it reads them (`is defined`, `default`); `only`
    is the path where the template is nothing but one."""

    field: str
    names: frozenset[str]
    nodes: frozenset[str]
    paths: tuple[tuple[str, ...], ...]
    guarded: frozenset[tuple[str, ...]]
    only: tuple[str, ...] | None


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


def readings(value: Any, field: str, *, expression: bool = False) -> Iterator[Reading]:
    """Yield what each template in a JSON value reads (with `expression`, one that needs no braces).

    Raises InvalidInput for a template that does not parse, or that reads `nodes` as a whole."""
    for text, place in _texts(value, field):
        if "{" in text:
            yield _reading(text, place, shown=text)
        elif expression:
            yield _reading("{{ " + text + " }}", place, shown=text)


def known_head(text: str, scope: Scope) -> tuple[str, bool]:
    """Return a template's text as far as `scope` tells it, and whether that is all of it; of one that
    does not parse, nothing."""
    head: list[str] = []
    size = 0
    for part in _known_parts(text, scope):
        if part is None:
            return "".join(head), False
        size += len(part)
        if size > MAX_TEXT_CHARS:
            return "".join(head), False
        head.append(part)
    return "".join(head), True


def _known_parts(text: str, scope: Scope) -> Iterator[str | None]:
    """Yield what a template becomes piece by piece, and None in the place of what is not known."""
    try:
        yield from _ENVIRONMENT.from_string(text).generate(scope)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError):
        yield None


def constant(text: str) -> Any:
    """Return the value of an expression that reads nothing, NOT_CONSTANT for every other."""
    whole = _WHOLE.fullmatch(text)
    try:
        tree = _ENVIRONMENT.parse("{{ " + (whole[1] if whole else text) + " }}")
        (output,) = tree.body
        (expression,) = output.nodes  # type: ignore[attr-defined]
        return expression.as_const()
    except (TemplateError, nodes.Impossible, ValueError, AttributeError):
        return NOT_CONSTANT


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


def _reading(text: str, field: str, *, shown: str) -> Reading:
    try:
        found = _read(text)
    except TemplateError as error:
        raise _does_not_parse(shown, field, error) from None
    if ("nodes",) in found.paths:
        raise InvalidInput(
            field=field,
            reason="it reads `nodes` as a whole",
            cure="Name each node it reads: `nodes.NAME.output`.",
        )
    return replace(found, field=field)


@lru_cache(maxsize=4_096)
def _read(text: str) -> Reading:
    tree = _ENVIRONMENT.parse(text)
    paths = tuple(_paths(tree))
    whole = _WHOLE.fullmatch(text)
    return Reading(
        field="",
        names=frozenset(find_undeclared_variables(tree) - set(_ENVIRONMENT.globals)),
        nodes=frozenset(path[1] for path in paths if path[0] == "nodes" and len(path) > 1),
        paths=paths,
        guarded=_guarded(tree),
        only=paths[0] if whole and len(paths) == 1 and _PATH.fullmatch(whole[1]) else None,
    )


def _paths(tree: nodes.Template) -> list[tuple[str, ...]]:
    """Return the longest dotted paths that a template reads, methods that it calls left out."""
    found: list[tuple[str, ...]] = []
    inner: set[int] = set()
    for node in _walk(tree):
        if id(node) in inner:
            continue
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            inner.add(id(node.node))
        path = _path_of(node)
        if path is None:
            continue
        found.append(path)
        below: nodes.Node = node
        while isinstance(below, nodes.Getattr | nodes.Getitem):
            below = below.node
            inner.add(id(below))
    return found


def _walk(node: nodes.Node) -> Iterator[nodes.Node]:
    yield node
    for child in node.iter_child_nodes():
        yield from _walk(child)


def _path_of(node: nodes.Node) -> tuple[str, ...] | None:
    if isinstance(node, nodes.Name):
        return (node.name,) if node.ctx == "load" else None
    if isinstance(node, nodes.Getattr):
        before, name = _path_of(node.node), node.attr
    elif (
        isinstance(node, nodes.Getitem)
        and isinstance(node.arg, nodes.Const)
        and isinstance(node.arg.value, str)
    ):
        before, name = _path_of(node.node), node.arg.value
    else:
        return None
    return None if before is None else (*before, name)


def _guarded(tree: nodes.Template) -> frozenset[tuple[str, ...]]:
    """Return the paths (first two words) that a template asks for with `is defined` or `default`."""
    questions = ("defined", "undefined", "default", "d")
    asked = [q.node for q in tree.find_all((nodes.Test, nodes.Filter)) if q.name in questions]
    paths = (None if node is None else _path_of(node) for node in asked)
    return frozenset(path[:2] for path in paths if path is not None)


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield value, field
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, f"{field}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, f"{field}.{index}")


def _does_not_parse(text: str, field: str, error: Exception) -> InvalidInput:
    return InvalidInput(
        field=field,
        reason=f"`{text.strip()[:120]}` does not parse ({_first_sentence(error)})",
        cure="Write Jinja2: `{{ nodes.NAME.output.FIELD }}`.",
    )


def _first_sentence(error: Exception) -> str:
    return " ".join(str(error).split()).split(". ")[0].removesuffix(".")


def _failed(text: str, field: str, reason: str) -> ExpressionFailed:
    return ExpressionFailed(expression=text.strip()[:200], field=field, reason=reason)
