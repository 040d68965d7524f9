"""Expressions and templates: Jinja2's language, evaluated in counted steps and giving JSON values.

A string that is one `{{ ... }}` gives the value itself (a list stays a list); other text is rendered.
A reference to a large value is passed on whole, and an expression that would read it fails.
`when`, `until`, `over`, `valid` and `score` are expressions, with or without the braces. Dotted paths
(`nodes.plan.output.queries`), which most expressions are, take a fast path. The cost of an evaluation is
bounded (`hocket.schemas.templates.budget`), and so are the size and depth of its result.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from jinja2 import TemplateSyntaxError, nodes

from hocket.schemas.checks.faults import Faults
from hocket.schemas.checks.large_values import FIELDS, is_reference, name_of
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.schemas.templates.budget import (
    LARGE_CURE,
    Account,
    LargeValueRead,
    Meter,
    Refused,
    account_of,
)
from hocket.schemas.templates.calls import FUNCTIONS
from hocket.schemas.templates.compiling import constant_of
from hocket.schemas.templates.frames import Frame
from hocket.schemas.templates.literals import text_of
from hocket.schemas.templates.parsing import alone_in, parse_expression, parse_template, walk
from hocket.schemas.templates.results import check_made, check_read, plain
from hocket.schemas.templates.statements import Template, compile_text
from hocket.schemas.templates.statements import compile_expression as compile_tree

_MAX_CACHED_CHARS = 2_000
_MAX_READ = 20_000
"""How many templates are known by what they read: more than a pipeline may have, which is gone through
several times."""
_MAX_PLAIN_PATH = 64
"""How many names a dotted path may have that is not parsed; the parser refuses very long ones."""

NOT_CONSTANT = object()
MAX_CONSTANT_OPERATIONS = 2_000
"""The budget for evaluating an expression just to see whether it is constant: 0.1 ms."""

Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]
Head = Callable[[Scope], tuple[str, bool]]
Part = Callable[[Scope, Account], Any]
"""One template in a value; the cost of all templates in a value is counted together."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one template reads: free `names`, siblings by `nodes.NAME`, and the dotted `paths` below
    names. `guarded` are paths that it tests before reading them (`is defined`, `default`); `only` is the
    path if the template consists of nothing else."""

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


class ExpressionStopped(ExpressionFailed):
    """The expression `{expression}` of `{field}` was stopped: {reason}. {cure}"""


def compile_value(value: Any, field: str) -> Evaluate:
    """Return a function that evaluates every template inside a JSON value against a scope.

    Raises InvalidInput for a template that does not parse; the function raises ExpressionFailed."""
    if isinstance(value, str):
        return _alone(_compile_text(value, field))
    evaluate = _compile_parts(value, field)
    if not any("{" in text for text, _ in _texts(value, field)):
        return _alone(evaluate)

    def evaluate_whole(scope: Scope) -> Any:
        account = account_of(scope)
        account.held = 0
        whole = evaluate(scope, account)
        try:
            check_made(whole, account)
        except Refused as error:
            raise _stopped(str(value), field, error) from None
        return whole

    return evaluate_whole


def _alone(evaluate: Part) -> Evaluate:
    """Return the function of a template that makes up a whole value."""

    def alone(scope: Scope) -> Any:
        account = account_of(scope)
        account.held = 0
        return evaluate(scope, account)

    return alone


def _compile_parts(value: Any, field: str) -> Part:
    if isinstance(value, str):
        return _compile_text(value, field, checked=False)
    if isinstance(value, Mapping):
        items = [(str(k), _compile_parts(v, f"{field}.{k}")) for k, v in value.items()]
        return lambda scope, account: {key: evaluate(scope, account) for key, evaluate in items}
    if isinstance(value, list | tuple):
        parts = [_compile_parts(v, f"{field}.{i}") for i, v in enumerate(value)]
        return lambda scope, account: [evaluate(scope, account) for evaluate in parts]
    return lambda scope, account: value


def compile_expression(text: str, field: str) -> Evaluate:
    """Return a function that evaluates one expression, written with or without braces."""
    return _alone(_compile_expression(_without_braces(text), field))


def fails_later(error: InvalidInput) -> Evaluate:
    """Return a function that raises the error of a template that is refused now, but was accepted when
    its pipeline was applied: only the step fails."""
    fields = error.fields
    field, reason, cure = fields["field"], fields["reason"], fields["cure"]

    def fail(_: Scope) -> Any:
        raise ExpressionStopped(expression=field, field=field, reason=reason, cure=cure)

    return fail


def readings(
    value: Any,
    field: str,
    *,
    expression: bool = False,
    applied: bool = False,
    faults: Faults | None = None,
) -> Iterator[Reading]:
    """Yield what each template in a JSON value reads (with `expression`, the value is one expression and
    needs no braces).

    Raises InvalidInput for a template that does not parse, or that reads `nodes` as a whole; with
    `applied`, such a template is skipped instead, and with `faults` its error is collected."""
    for text, place in _texts(value, field):
        try:
            if expression and not text.lstrip().startswith(_BEGINS):
                yield _reading(_in_braces(text), place, shown=text)
            elif "{" in text and text_of(text) is None:
                yield _reading(text, place, shown=text)
        except InvalidInput as error:
            if faults is not None:
                faults.add(error)
            elif not applied:
                raise


def compile_head(text: str) -> Head:
    """Return the function that gives the beginning of a template's text as far as a scope determines
    it, and whether that is the whole text; empty for a template that does not parse."""
    try:
        template = _template(text)
    except (TemplateSyntaxError, Refused):
        return lambda scope: ("", False)

    def head(scope: Scope) -> tuple[str, bool]:
        account = account_of(scope)
        frame = Frame(scope, account.meter())
        try:
            template.write(frame)
        except Exception:  # not known yet, or an error with which the step itself will fail
            return "".join(frame.out), False
        finally:
            account.used(frame.meter)
        return "".join(frame.out), True

    return head


def constant(text: str) -> Any:
    """Return the value of an expression that reads nothing and is cheap to compute, or NOT_CONSTANT."""
    try:
        expression = _expression(_without_braces(text))
        if expression.names:
            return NOT_CONSTANT
        meter = Meter(MAX_CONSTANT_OPERATIONS)
        return plain(expression.evaluate({}, meter), meter)
    except Exception:  # the step will fail with it, or it is too expensive
        return NOT_CONSTANT


def render_text(text: str, scope: Scope, field: str) -> str:
    """Compile and render a template to text in one go (for workers: prompts)."""
    result = _compile_text(text, field)(scope, account_of(scope))
    return result if isinstance(result, str) else str(result)


_WHOLE = re.compile(r"\s*\{\{[-+]?((?:(?!\}\}|\{\{).)*?)-?\}\}\s*", re.DOTALL)
"""One `{{ ... }}` without braces that end or begin another. A sign beside the braces belongs to them."""
_MARK = re.compile(r"\{[{%#]")
_BEGINS = ("{{", "{%", "{#")
_PATH = re.compile(r"\s*([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)*)\s*")
_NODE_READ = re.compile(r"\bnodes\.([\w-]++)(\.(?:output|error|state)\b)?", re.ASCII)
_WORDS = frozenset(
    {"true", "false", "none", "True", "False", "None", "not", "and", "or", "in", "is"}
)


def _compile_text(text: str, field: str, *, checked: bool = True) -> Part:
    if not _MARK.search(text):
        return lambda scope, account: text
    if (alone := text_of(text)) is not None:
        return _compile_literal(alone, text, field)
    if (inner := _inside(text)) is not None:
        return _compile_expression(inner, field, checked=checked)
    template = _compiled(_template, text, field)

    def evaluate(scope: Scope, account: Account) -> str:
        frame = Frame(scope, account.meter())
        try:
            template.write(frame)
            written = frame.written()
            account.hold(len(written))
            return written
        except LargeValueRead as error:
            raise _too_large(text, text, field, error, scope, account) from None
        except Exception as error:
            raise _failed(text, field, error) from None
        finally:
            account.used(frame.meter)

    return evaluate


def _inside(text: str) -> str | None:
    """Return the expression of a text that is one `{{ ... }}`, without the braces, or None if it is
    not."""
    if whole := _WHOLE.fullmatch(text):
        return whole[1]
    bare = text.strip()
    return alone_in(bare) if bare.startswith("{{") and bare.endswith("}}") else None


def _without_braces(text: str) -> str:
    inner = _inside(text)
    return text if inner is None else inner


def _in_braces(text: str) -> str:
    return "{{ " + text + " }}"


def _compile_literal(alone: str, text: str, field: str) -> Part:
    try:
        known = constant_of(alone)
    except Refused as error:
        raise _refused(text, field, error) from None
    return lambda scope, account: known


def _compile_expression(text: str, field: str, *, checked: bool = True) -> Part:
    path = _PATH.fullmatch(text)
    if path and path[1] not in _WORDS:
        return _compile_path(text.strip(), field, checked=checked)
    expression = _compiled(_expression, text, field)

    def evaluate(scope: Scope, account: Account) -> Any:
        meter = account.meter()
        try:
            value = plain(expression.evaluate(scope, meter), meter)
            account.hold(len(value) if isinstance(value, str) else meter.made)
            return value
        except LargeValueRead as error:
            raise _too_large(_in_braces(text), text, field, error, scope, account) from None
        except Exception as error:
            raise _failed(text, field, error) from None
        finally:
            account.used(meter)

    return evaluate


def _compiled(compile_it: Callable[[str], Template], text: str, field: str) -> Template:
    try:
        return compile_it(text)
    except TemplateSyntaxError as error:
        raise _does_not_parse(text, field, error) from None
    except Refused as error:
        raise _refused(text, field, error) from None


def _template(text: str) -> Template:
    return _short_template(text) if len(text) <= _MAX_CACHED_CHARS else _new_template(text)


def _expression(text: str) -> Template:
    return _short_expression(text) if len(text) <= _MAX_CACHED_CHARS else _new_expression(text)


def _new_template(text: str) -> Template:
    return compile_text(parse_template(text))


def _new_expression(text: str) -> Template:
    return compile_tree(parse_expression(text))


_short_template = lru_cache(maxsize=1_024)(_new_template)
_short_expression = lru_cache(maxsize=1_024)(_new_expression)


def _compile_path(path: str, field: str, *, checked: bool) -> Part:
    names = path.split(".")

    def evaluate(scope: Scope, account: Account) -> Any:
        account.spend(len(names))
        value: Any = scope
        for depth, name in enumerate(names):
            try:
                value = value[name]
            except (KeyError, TypeError, IndexError):
                raise _unreadable(path, field, names, depth, value) from None
        if checked and isinstance(value, list | dict):
            try:
                check_read(value, account)
            except Refused as error:
                raise _stopped(path, field, error) from None
        return value

    if FIELDS.isdisjoint(names[1:]):
        return evaluate

    def evaluate_values_only(scope: Scope, account: Account) -> Any:
        value: Any = scope
        try:
            for depth, name in enumerate(names):
                if name in FIELDS and is_reference(value):
                    raise _unreadable(path, field, names, depth, value)
                value = value[name]
        except (KeyError, TypeError, IndexError):
            pass  # it fails again
        return evaluate(scope, account)

    return evaluate_values_only


def _unreadable(
    path: str, field: str, names: list[str], depth: int, value: Any
) -> ExpressionFailed:
    """Return the failure of a path that finds nothing more in a value."""
    reader = ".".join(names[:depth])
    if is_reference(value):
        return _stopped(path, field, _large(reader))
    reason = f"{reader or 'the scope'} has no `{names[depth]}`"
    return ExpressionFailed(expression=path[:200], field=field, reason=reason)


def _reading(text: str, field: str, *, shown: str) -> Reading:
    try:
        found = _read(text)
    except TemplateSyntaxError as error:
        raise _does_not_parse(shown, field, error) from None
    except Refused as error:
        raise _refused(shown, field, error) from None
    if ("nodes",) in found.paths:
        raise InvalidInput(
            field=field,
            reason="it reads `nodes` as a whole",
            cure=_cure_of_name(shown) or "Name each node it reads: `nodes.NAME.output`.",
        )
    return replace(found, field=field)


@lru_cache(maxsize=_MAX_READ)
def _read(text: str) -> Reading:
    whole = _WHOLE.fullmatch(text)
    if whole and text.isascii() and (path := _PATH.fullmatch(whole[1])) and path[1] not in _WORDS:
        names = tuple(path[0].strip().split("."))
        if len(names) <= _MAX_PLAIN_PATH:
            return _read_path(names)
    tree = parse_template(text)
    paths = tuple(_paths(tree))
    return Reading(
        field="",
        names=compile_text(tree).names - set(FUNCTIONS),
        nodes=frozenset(path[1] for path in paths if path[0] == "nodes" and len(path) > 1),
        paths=paths,
        guarded=_guarded(tree),
        only=paths[0] if whole and len(paths) == 1 and _PATH.fullmatch(whole[1]) else None,
    )


def _read_path(path: tuple[str, ...]) -> Reading:
    """Return what a template reads that is one dotted path, without parsing it."""
    return Reading(
        field="",
        names=frozenset(path[:1]) - set(FUNCTIONS),
        nodes=frozenset(path[1:2] if path[0] == "nodes" else ()),
        paths=(path,),
        guarded=frozenset(),
        only=path,
    )


def _paths(tree: nodes.Template) -> list[tuple[str, ...]]:
    """Return the longest dotted paths that a template reads, without the methods that it calls."""
    found: list[tuple[str, ...]] = []
    inner: set[int] = set()
    for node in walk(tree):
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
    """Return the paths (first two words) that a template tests with `is defined` or `default`."""
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


def _does_not_parse(text: str, field: str, error: TemplateSyntaxError) -> InvalidInput:
    return InvalidInput(
        field=field,
        reason=f"`{text.strip()[:120]}` does not parse ({_first_sentence(error)})",
        cure=_cure_of_name(text) or "Write Jinja2: `{{ nodes.NAME.output.FIELD }}`.",
    )


def _cure_of_name(text: str) -> str | None:
    """Return the cure for the first node in a template whose name cannot be written after a dot."""
    for name, field in _NODE_READ.findall(text):
        if name[0].isdigit():
            return f"Write a name that starts with a digit as `nodes['{name}']`."
        if "-" in name and field:
            return f"Write a name with `-` as `nodes['{name}']`."
    return None


def _refused(text: str, field: str, error: Refused) -> InvalidInput:
    reason = f"`{text.strip()[:120]}` is refused: {error.reason}"
    return InvalidInput(field=field, reason=reason, cure=error.cure)


def _first_sentence(error: TemplateSyntaxError) -> str:
    return " ".join((error.message or "").split()).split(". ")[0].removesuffix(".")


def _failed(text: str, field: str, error: Exception) -> ExpressionFailed:
    """Return the failure of an evaluation. Any exception in it is the expression's own fault, because an
    evaluation touches nothing outside."""
    if isinstance(error, Refused):
        return _stopped(text, field, error)
    reason = _first_line(error)
    return ExpressionFailed(expression=text.strip()[:200], field=field, reason=reason)


def _too_large(
    template: str, text: str, field: str, error: LargeValueRead, scope: Scope, account: Account
) -> ExpressionStopped:
    """Return the failure of an evaluation that would read a large value, with the value's name."""
    try:
        paths = _read(template).paths
    except (TemplateSyntaxError, Refused):  # with the braces around it, it is too large
        paths = ()
    name, looked = name_of(error.reference, paths, scope)
    account.spend(looked)
    return _stopped(text, field, error if name is None else _large(name))


def _large(name: str) -> Refused:
    reason = f"`{name}` is a large value, which only workers can read"
    return Refused(reason, LARGE_CURE.format(how=f" (`{{{{ {name} }}}}`)"))


def _stopped(text: str, field: str, error: Refused) -> ExpressionStopped:
    return ExpressionStopped(
        expression=text.strip()[:200], field=field, reason=error.reason, cure=error.cure
    )


def _first_line(error: Exception) -> str:
    return str(error)[:500].removesuffix(".") or type(error).__name__
