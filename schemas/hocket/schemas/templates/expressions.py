"""Compiles the expressions of a template to functions of a frame; no Python code is generated."""

from collections.abc import Callable
from typing import Any

from jinja2 import StrictUndefined, nodes

from hocket.schemas.templates import operators
from hocket.schemas.templates.calls import call_of, filter_of, test_of
from hocket.schemas.templates.compiling import (
    Compiler,
    constant_of,
    not_available,
    readable,
    values_of,
)
from hocket.schemas.templates.frames import Frame, Value
from hocket.schemas.templates.names import attribute_of, item_of, name_of, slice_of
from hocket.schemas.templates.scopes import Scopes
from hocket.schemas.templates.values import refuse_references, scalar_key


class Expressions:
    """Compiles expressions; `scopes` has the names that the template itself sets."""

    def __init__(self) -> None:
        self.scopes = Scopes()
        self.size = 0
        """The number of nodes compiled so far."""

    def value(self, node: nodes.Node) -> Value:
        """Return the function of an expression; raise Refused for anything that templates may not
        use."""
        self.size += 1
        compile_node = _COMPILERS.get(type(node))
        if compile_node is None:
            raise not_available(f"a {type(node).__name__.lower()}")
        return compile_node(self, node)


def _const(compiler: Compiler, node: nodes.Const) -> Value:
    value = constant_of(node.value)
    return lambda _: value


def _list(compiler: Compiler, node: nodes.List) -> Value:
    parts = values_of(compiler, node.items)

    def make(frame: Frame) -> list[Any]:
        frame.meter.items(len(parts))
        return [part(frame) for part in parts]

    return make


def _tuple(compiler: Compiler, node: nodes.Tuple) -> Value:
    parts = values_of(compiler, node.items)

    def make(frame: Frame) -> tuple[Any, ...]:
        frame.meter.items(len(parts))
        return tuple([part(frame) for part in parts])

    return make


def _dict(compiler: Compiler, node: nodes.Dict) -> Value:
    pairs = [(compiler.value(pair.key), compiler.value(pair.value)) for pair in node.items]

    def make(frame: Frame) -> dict[Any, Any]:
        frame.meter.items(len(pairs), 100)
        return {scalar_key(key(frame)): value(frame) for key, value in pairs}

    return make


def _condition(compiler: Compiler, node: nodes.CondExpr) -> Value:
    test, chosen = compiler.value(node.test), compiler.value(node.expr1)
    if node.expr2 is None:
        hint = (
            f"the inline if-expression on line {node.lineno} evaluated to false and no else"
            " section was defined."
        )
        return lambda frame: chosen(frame) if test(frame) else StrictUndefined(hint)
    other = compiler.value(node.expr2)
    return lambda frame: chosen(frame) if test(frame) else other(frame)


def _and(compiler: Compiler, node: nodes.And) -> Value:
    left, right = compiler.value(node.left), compiler.value(node.right)
    return lambda frame: left(frame) and right(frame)


def _or(compiler: Compiler, node: nodes.Or) -> Value:
    left, right = compiler.value(node.left), compiler.value(node.right)
    return lambda frame: left(frame) or right(frame)


def _not(compiler: Compiler, node: nodes.Not) -> Value:
    value = compiler.value(node.node)
    return lambda frame: not value(frame)


def _negative(compiler: Compiler, node: nodes.Neg) -> Value:
    value = readable(compiler.value(node.node))
    return lambda frame: operators.negative(frame.meter, value(frame))


def _positive(compiler: Compiler, node: nodes.Pos) -> Value:
    value = readable(compiler.value(node.node))
    return lambda frame: operators.positive(frame.meter, value(frame))


def _binary(compiler: Compiler, node: nodes.BinExpr) -> Value:
    work = operators.BINARY[node.operator]
    left, right = compiler.value(node.left), compiler.value(node.right)

    def compute(frame: Frame) -> Any:
        first, second = left(frame), right(frame)
        if type(first) is dict or type(second) is dict:
            refuse_references((first, second))
        return work(frame.meter, first, second)

    return compute


def _concat(compiler: Compiler, node: nodes.Concat) -> Value:
    parts = values_of(compiler, node.nodes)
    return lambda frame: operators.concatenate(frame.meter, [part(frame) for part in parts])


def _compare(compiler: Compiler, node: nodes.Compare) -> Value:
    first = compiler.value(node.expr)
    steps = [(operators.COMPARISONS[op.op], compiler.value(op.expr)) for op in node.ops]
    if len(steps) == 1:
        (compare, second), *_ = steps
        return lambda frame: compare(frame.meter, first(frame), second(frame))

    def chain(frame: Frame) -> bool:
        left = first(frame)
        for compare, operand in steps:
            right = operand(frame)
            if not compare(frame.meter, left, right):
                return False
            left = right
        return True

    return chain


_COMPILERS: dict[type[nodes.Node], Callable[[Compiler, Any], Value]] = {
    nodes.Add: _binary,
    nodes.And: _and,
    nodes.Call: call_of,
    nodes.Compare: _compare,
    nodes.Concat: _concat,
    nodes.CondExpr: _condition,
    nodes.Const: _const,
    nodes.Dict: _dict,
    nodes.Div: _binary,
    nodes.Filter: filter_of,
    nodes.FloorDiv: _binary,
    nodes.Getattr: attribute_of,
    nodes.Getitem: item_of,
    nodes.List: _list,
    nodes.Mod: _binary,
    nodes.Mul: _binary,
    nodes.Name: name_of,
    nodes.Neg: _negative,
    nodes.Not: _not,
    nodes.Or: _or,
    nodes.Pos: _positive,
    nodes.Pow: _binary,
    nodes.Slice: slice_of,
    nodes.Sub: _binary,
    nodes.Test: test_of,
    nodes.Tuple: _tuple,
}
