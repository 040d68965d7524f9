"""The expressions of a template, compiled to functions of a frame; nothing else of Python is made.

A node costs one operation, paid by the template, loop or macro that it stands in. What an operator,
filter, test, method or function does beyond that it pays itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes

from hocket.schemas.errors import InvalidInput
from hocket.schemas.plain_json import check_plain
from hocket.schemas.templates import operators
from hocket.schemas.templates.budget import MAX_INTEGER, Meter, Refused, stopped
from hocket.schemas.templates.builtins.list_filters import FILTERS
from hocket.schemas.templates.builtins.methods import METHODS, call_method
from hocket.schemas.templates.builtins.template_tests import TESTS
from hocket.schemas.templates.frames import LOOP_METHODS, UNSET, Frame, Loop, Macro, Value
from hocket.schemas.templates.scopes import Scopes
from hocket.schemas.templates.values import Namespace, attribute, item, scalar_key, sequence

MAX_RANGE = 100_000
"""Numbers of one `range()`."""

_PAGE = "docs/reference/constructs/expressions.md"

Function = Callable[..., Any]


class Expressions:
    """Compiles expressions; `scopes` knows the names that the template itself sets."""

    def __init__(self) -> None:
        self.scopes = Scopes()
        self.size = 0
        """Nodes compiled so far."""

    def value(self, node: nodes.Node) -> Value:
        """Return the function of an expression; raise Refused for what templates may not have."""
        self.size += 1
        compile_node = _COMPILERS.get(type(node))
        if compile_node is None:
            raise not_available(f"a {type(node).__name__.lower()}")
        return compile_node(self, node)

    def _values(self, parts: Sequence[nodes.Expr]) -> list[Value]:
        return [self.value(part) for part in parts]

    def _const(self, node: nodes.Const) -> Value:
        value = constant_of(node.value)
        return lambda _: value

    def _name(self, node: nodes.Name, function: Function | None = None) -> Value:
        name = node.name
        slots, sure = self.scopes.find(name)
        if not sure:
            if function is None:
                self.scopes.free.add(name)
            read = _free_name(name, function)
            return read if not slots else _perhaps_set(slots, read)
        slot = slots[0]
        if len(slots) == 1:
            return lambda frame: frame.local[slot]
        return _perhaps_set(slots[:-1], lambda frame: frame.local[slots[-1]])

    def _attribute(self, node: nodes.Getattr) -> Value:
        names: list[str] = []
        below: nodes.Expr = node
        while isinstance(below, nodes.Getattr):
            names.append(below.attr)
            self.size += 1
            below = below.node
        target = self.value(below)
        if len(names) == 1:
            name = names[0]
            return lambda frame: attribute(target(frame), name)
        path = tuple(reversed(names))

        def read(frame: Frame) -> Any:
            value = target(frame)
            for name in path:
                value = attribute(value, name)
            return value

        return read

    def _item(self, node: nodes.Getitem) -> Value:
        target, key = self.value(node.node), self.value(node.arg)
        return lambda frame: item(frame.meter, target(frame), key(frame))

    def _slice(self, node: nodes.Slice) -> Value:
        start, stop, step = (
            None if part is None else self.value(part)
            for part in (node.start, node.stop, node.step)
        )
        return lambda frame: slice(
            start and start(frame), stop and stop(frame), step and step(frame)
        )

    def _list(self, node: nodes.List) -> Value:
        parts = self._values(node.items)

        def make(frame: Frame) -> list[Any]:
            frame.meter.items(len(parts))
            return [part(frame) for part in parts]

        return make

    def _tuple(self, node: nodes.Tuple) -> Value:
        parts = self._values(node.items)

        def make(frame: Frame) -> tuple[Any, ...]:
            frame.meter.items(len(parts))
            return tuple([part(frame) for part in parts])

        return make

    def _dict(self, node: nodes.Dict) -> Value:
        pairs = [(self.value(pair.key), self.value(pair.value)) for pair in node.items]

        def make(frame: Frame) -> dict[Any, Any]:
            frame.meter.items(len(pairs), 100)
            return {scalar_key(key(frame)): value(frame) for key, value in pairs}

        return make

    def _condition(self, node: nodes.CondExpr) -> Value:
        test, chosen = self.value(node.test), self.value(node.expr1)
        if node.expr2 is None:
            hint = (
                f"the inline if-expression on line {node.lineno} evaluated to false and no else"
                " section was defined."
            )
            return lambda frame: chosen(frame) if test(frame) else StrictUndefined(hint)
        other = self.value(node.expr2)
        return lambda frame: chosen(frame) if test(frame) else other(frame)

    def _and(self, node: nodes.And) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        return lambda frame: left(frame) and right(frame)

    def _or(self, node: nodes.Or) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        return lambda frame: left(frame) or right(frame)

    def _not(self, node: nodes.Not) -> Value:
        value = self.value(node.node)
        return lambda frame: not value(frame)

    def _negative(self, node: nodes.Neg) -> Value:
        value = self.value(node.node)
        return lambda frame: operators.negative(frame.meter, value(frame))

    def _positive(self, node: nodes.Pos) -> Value:
        value = self.value(node.node)
        return lambda frame: operators.positive(frame.meter, value(frame))

    def _binary(self, node: nodes.BinExpr) -> Value:
        work = operators.BINARY[node.operator]
        left, right = self.value(node.left), self.value(node.right)
        return lambda frame: work(frame.meter, left(frame), right(frame))

    def _concat(self, node: nodes.Concat) -> Value:
        parts = self._values(node.nodes)
        return lambda frame: operators.concatenate(frame.meter, [part(frame) for part in parts])

    def _compare(self, node: nodes.Compare) -> Value:
        first = self.value(node.expr)
        steps = [(operators.COMPARISONS[op.op], self.value(op.expr)) for op in node.ops]
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

    def _filter(self, node: nodes.Filter) -> Value:
        assert node.node is not None
        return self.filtered(node, self.value(node.node))

    def filtered(self, node: nodes.Filter, value: Value) -> Value:
        """Return the function of a filter over a value (`filter` and `set` blocks have their own)."""
        return self._applied(_known(node.name, FILTERS, "filter"), node, value)

    def _test(self, node: nodes.Test) -> Value:
        return self._applied(_known(node.name, TESTS, "test"), node, self.value(node.node))

    def _applied(self, work: Function, node: Any, value: Value) -> Value:
        given = self._arguments(node)
        if given is None:
            return lambda frame: work(frame.meter, value(frame))

        def apply(frame: Frame) -> Any:
            subject = value(frame)
            args, named = given(frame)
            return work(frame.meter, subject, *args, **named)

        return apply

    def _call(self, node: nodes.Call) -> Value:
        given = self._arguments(node) or _no_arguments
        callee = node.node
        if isinstance(callee, nodes.Getattr):
            return self._method(callee, given)
        if not isinstance(callee, nodes.Name):
            raise not_available("a call of what is neither a name nor a method")
        name = callee.name
        function = FUNCTIONS.get(name)
        find = self._name(callee, function)

        def call(frame: Frame) -> Any:
            found = find(frame)
            args, named = given(frame)
            if found is function and function is not None:
                return function(frame.meter, *args, **named)
            if isinstance(found, Macro):
                return found.call(frame, args, named)
            if isinstance(found, Loop) and len(args) == 1 and not named:
                if found.recurse is None:
                    raise TypeError("the loop must be marked `recursive` to be called")
                return found.recurse(frame, args[0], found.depth0 + 1)
            if isinstance(found, Undefined):
                found._fail_with_undefined_error()
            raise TypeError(f"`{name}` cannot be called")

        return call

    def _method(self, callee: nodes.Getattr, given: "Given") -> Value:
        name = callee.attr
        if name not in METHODS and name not in LOOP_METHODS:
            raise Refused(f"there is no method `{name}()`", f"Use a method of {_PAGE}.")
        target = self.value(callee.node)

        def call(frame: Frame) -> Any:
            value = target(frame)
            args, named = given(frame)
            if isinstance(value, Loop) and not named:
                if name == "cycle":
                    return value.cycle(args)
                if name == "changed":
                    return value.changed(frame.meter, tuple(args))
            return call_method(frame.meter, value, name, args, named)

        return call

    def _arguments(self, node: Any) -> "Given | None":
        positional = self._values(node.args)
        named = [(pair.key, self.value(pair.value)) for pair in node.kwargs]
        more = None if node.dyn_args is None else self.value(node.dyn_args)
        more_named = None if node.dyn_kwargs is None else self.value(node.dyn_kwargs)
        if more is None and more_named is None:
            if not positional and not named:
                return None
            return lambda frame: (
                [part(frame) for part in positional],
                {key: part(frame) for key, part in named},
            )

        def given(frame: Frame) -> tuple[list[Any], dict[str, Any]]:
            args = [part(frame) for part in positional]
            found = {key: part(frame) for key, part in named}
            if more is not None:
                values = sequence(more(frame))
                frame.meter.items(len(values))
                args += values
            if more_named is not None:
                mapping = more_named(frame)
                if not isinstance(mapping, Mapping):
                    raise TypeError("what stands behind `**` is a mapping")
                frame.meter.items(len(mapping), 100)
                found.update(mapping)
            return args, found

        return given


Given = Callable[[Frame], tuple[list[Any], dict[str, Any]]]


def _no_arguments(frame: Frame) -> tuple[list[Any], dict[str, Any]]:
    return [], {}


def _free_name(name: str, function: Function | None) -> Value:
    def read(frame: Frame) -> Any:
        try:
            return frame.scope[name]
        except KeyError:
            return StrictUndefined(name=name) if function is None else function

    return read


def _perhaps_set(slots: tuple[int, ...], otherwise: Value) -> Value:
    def read(frame: Frame) -> Any:
        for slot in slots:
            value = frame.local.get(slot, UNSET)
            if value is not UNSET:
                return value
        return otherwise(frame)

    return read


def constant_of(value: Any) -> Any:
    """Return a constant of a template, or raise Refused for one that JSON or Postgres does not take."""
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise Refused("it has an integer beyond 64 bits", "Write it as text.")
    if isinstance(value, str) and not value.isascii():
        value = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    try:
        check_plain(value, "constant")
    except InvalidInput as error:
        raise stopped(error) from None
    return value


def _known(name: str, table: Mapping[str, Function], kind: str) -> Function:
    found = table.get(name)
    if found is None:
        raise Refused(f"there is no {kind} `{name}`", f"Use a {kind} of {_PAGE}.")
    return found


def not_available(what: str) -> Refused:
    return Refused(f"{what} is not available in expressions", f"See {_PAGE}.")


# ---- functions ------------------------------------------------------------------------------


def _range(meter: Meter, *bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > MAX_RANGE:
        raise Refused(f"`range` has more than {MAX_RANGE:,} numbers", "Make it shorter.")
    return numbers


def _dict(meter: Meter, *pairs: Any, **named: Any) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    if len(pairs) > 1:
        raise TypeError("`dict` takes one mapping or list of pairs, and names")
    for given in pairs:
        found = given.items() if isinstance(given, Mapping) else sequence(given)
        meter.items(len(found), 100)
        meter.spend(3 * len(found))
        for key, value in found:
            result[scalar_key(key)] = value
    meter.items(len(named), 100)
    return result | named


def _namespace(meter: Meter, *pairs: Any, **named: Any) -> Namespace:
    return Namespace(_dict(meter, *pairs, **named))


FUNCTIONS: dict[str, Function] = {"dict": _dict, "namespace": _namespace, "range": _range}

_COMPILERS: dict[type[nodes.Node], Callable[[Expressions, Any], Value]] = {
    nodes.Add: Expressions._binary,
    nodes.And: Expressions._and,
    nodes.Call: Expressions._call,
    nodes.Compare: Expressions._compare,
    nodes.Concat: Expressions._concat,
    nodes.CondExpr: Expressions._condition,
    nodes.Const: Expressions._const,
    nodes.Dict: Expressions._dict,
    nodes.Div: Expressions._binary,
    nodes.Filter: Expressions._filter,
    nodes.FloorDiv: Expressions._binary,
    nodes.Getattr: Expressions._attribute,
    nodes.Getitem: Expressions._item,
    nodes.List: Expressions._list,
    nodes.Mod: Expressions._binary,
    nodes.Mul: Expressions._binary,
    nodes.Name: Expressions._name,
    nodes.Neg: Expressions._negative,
    nodes.Not: Expressions._not,
    nodes.Or: Expressions._or,
    nodes.Pos: Expressions._positive,
    nodes.Pow: Expressions._binary,
    nodes.Slice: Expressions._slice,
    nodes.Sub: Expressions._binary,
    nodes.Test: Expressions._test,
    nodes.Tuple: Expressions._tuple,
}
