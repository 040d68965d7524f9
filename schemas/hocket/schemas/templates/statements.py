"""Compiles the statements of a template: loops, conditions, names, macros and blocks.

A loop is charged for the nodes of its body before its first round, and a macro when it is called.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import nodes

from hocket.schemas.templates.budget import Meter
from hocket.schemas.templates.calls import arguments_of, filtered
from hocket.schemas.templates.compiling import constant_of, not_available
from hocket.schemas.templates.expressions import Expressions
from hocket.schemas.templates.frames import Frame, Loop, Macro, Run, Value
from hocket.schemas.templates.signatures import Signature
from hocket.schemas.templates.values import Namespace, sequence, text_of

ROUND_PRICE = 4
TARGET_PRICE = 2
"""Operations of setting a name; a loop also forgets it before each round."""
PARAM_PRICE = 8
"""Operations of binding one parameter of a macro."""
_CALL_LEVELS = 4
_TAGS = {"ScopedEvalContextModifier": "autoescape", "FromImport": "from"}


class Template:
    """A compiled template or expression; `names` are those that it reads but does not set."""

    __slots__ = ("_run", "_size", "names")

    def __init__(self, run: Callable[[Frame], Any], size: int, names: frozenset[str]) -> None:
        self._run = run
        self._size = size
        self.names = names

    def evaluate(self, scope: Mapping[str, Any], meter: Meter) -> Any:
        """Return the value, or the text; raise Refused if the budget is used up."""
        meter.spend(self._size)
        return self._run(Frame(scope, meter))

    def write(self, frame: Frame) -> None:
        """Write the text into a frame, so that the part before a failure can be read."""
        frame.meter.spend(self._size)
        self._run(frame)


def compile_text(tree: nodes.Template) -> Template:
    """Return a text template, for `write`; raise Refused for anything that it may not use."""
    compiler = _Statements()
    run = compiler.block(tree.body)
    return Template(run, compiler.size, frozenset(compiler.scopes.free))


def compile_expression(tree: nodes.Expr) -> Template:
    """Return an expression, for `evaluate`; raise Refused for anything that it may not use."""
    compiler = _Statements()
    value = compiler.value(tree)
    return Template(value, compiler.size, frozenset(compiler.scopes.free))


class _Statements(Expressions):
    def block(self, body: Sequence[nodes.Node]) -> Run:
        """Return the function of a sequence of statements."""
        runs = [self._statement(node) for node in body]
        if len(runs) == 1:
            return runs[0]

        def run(frame: Frame) -> None:
            for one in runs:
                one(frame)

        return run

    def _statement(self, node: nodes.Node) -> Run:
        self.size += 1
        compile_node = _COMPILERS.get(type(node))
        if compile_node is None:
            name = type(node).__name__
            raise not_available(f"the tag `{_TAGS.get(name, name.lower())}`")
        return compile_node(self, node)

    def _output(self, node: nodes.Output) -> Run:
        parts: list[Run] = []
        for part in node.nodes:
            if isinstance(part, nodes.TemplateData):
                self.size += 1
                parts.append(_write_data(str(constant_of(part.data))))
            else:
                parts.append(_write_value(self.value(part)))
        if len(parts) == 1:
            return parts[0]

        def run(frame: Frame) -> None:
            for part in parts:
                part(frame)

        return run

    def _if(self, node: nodes.If) -> Run:
        branches: list[tuple[Value, Run]] = []
        before = self.scopes.sure_here()
        surely_set: list[set[str]] = []
        for branch in (node, *node.elif_):
            test = self.value(branch.test)
            branches.append((test, self.block(branch.body)))
            surely_set.append(self.scopes.sure_here())
            self.scopes.set_sure_here(set(before))
        otherwise = self.block(node.else_)
        surely_set.append(self.scopes.sure_here())
        self.scopes.set_sure_here(set.intersection(*surely_set))

        def run(frame: Frame) -> None:
            for test, body in branches:
                if test(frame):
                    body(frame)
                    return
            otherwise(frame)

        return run

    def _for(self, node: nodes.For) -> Run:
        values = self.value(node.iter)
        size_before = self.size
        scope = self.scopes.open()
        put = self._target(node.target)
        wanted = None if node.test is None else self.value(node.test)
        held = set(scope.slots.values())
        loop_slot = self.scopes.bind("loop")
        body = self.block(node.body)
        round_price = self.size - size_before + ROUND_PRICE
        fresh = tuple(slot for slot in scope.slots.values() if slot not in held | {loop_slot})
        self.scopes.close()
        self.scopes.open()
        otherwise = self.block(node.else_)
        self.scopes.close()
        levels = _CALL_LEVELS + _levels(node)

        def run_over(frame: Frame, given: Any, depth0: int) -> None:
            found = sequence(given)
            frame.meter.spend(round_price * len(found))
            local = frame.local
            if wanted is not None:
                kept = []
                for value in found:
                    put(frame, value)
                    if wanted(frame):
                        kept.append(value)
                found = kept
            if not found:
                otherwise(frame)
                return
            loop = Loop(found, depth0, recurse if node.recursive else None)
            local[loop_slot] = loop
            for index, value in enumerate(found):
                for slot in fresh:
                    local.pop(slot, None)
                loop.index0 = index
                put(frame, value)
                body(frame)

        def recurse(frame: Frame, given: Any, depth0: int) -> str:
            inner = frame.call(levels, frame.local)
            run_over(inner, given, depth0)
            return inner.written()

        return lambda frame: run_over(frame, values(frame), 0)

    def _assign(self, node: nodes.Assign) -> Run:
        value = self.value(node.node)
        put = self._target(node.target)
        return lambda frame: put(frame, value(frame))

    def _assign_block(self, node: nodes.AssignBlock) -> Run:
        value = self._captured(node.body)
        if node.filter is not None:
            value = self._filtered(node.filter, value)
        put = self._target(node.target)
        return lambda frame: put(frame, value(frame))

    def _filter_block(self, node: nodes.FilterBlock) -> Run:
        return _write_value(self._filtered(node.filter, self._captured(node.body)))

    def _captured(self, body: Sequence[nodes.Node]) -> Value:
        """Return the function that returns what a body writes."""
        self.scopes.open()
        run = self.block(body)
        self.scopes.close()

        def capture(frame: Frame) -> str:
            out, chars = frame.out, frame.chars
            frame.out, frame.chars = [], 0
            try:
                run(frame)
                return frame.written()
            finally:
                frame.out, frame.chars = out, chars

        return capture

    def _filtered(self, node: nodes.Filter, value: Value) -> Value:
        """Return the function of a chain of filters whose innermost takes a block's text."""
        inner = node.node
        if isinstance(inner, nodes.Filter):
            value = self._filtered(inner, value)
        return filtered(self, node, value)

    def _with(self, node: nodes.With) -> Run:
        values = [self.value(value) for value in node.values]
        self.scopes.open()
        puts = [self._target(target) for target in node.targets]
        body = self.block(node.body)
        self.scopes.close()

        def run(frame: Frame) -> None:
            given = [value(frame) for value in values]
            for put, value in zip(puts, given, strict=True):
                put(frame, value)
            body(frame)

        return run

    def _macro(self, node: nodes.Macro) -> Run:
        slot = self.scopes.bind(node.name)
        make = self._callable(node, node.name)

        def run(frame: Frame) -> None:
            frame.local[slot] = make(frame)

        return run

    def _call_block(self, node: nodes.CallBlock) -> Run:
        caller = self._callable(node, "caller")
        given = arguments_of(self, node.call)
        find = self.value(node.call.node)

        def run(frame: Frame) -> None:
            macro = find(frame)
            args, named = given(frame) if given is not None else ([], {})
            if not isinstance(macro, Macro):
                raise TypeError("`call` calls a macro")
            frame.write(macro.call(frame, args, {**named, "caller": caller(frame)}))

        return run

    def _callable(self, node: nodes.Macro | nodes.CallBlock, name: str) -> Value:
        """Return the function that makes a macro; its body has its own scope, each call its own
        frame."""
        size_before = self.size
        scope = self.scopes.open()
        params = [(arg.name, self.scopes.bind(arg.name)) for arg in node.args]
        without = len(params) - len(node.defaults)
        defaults: list[Value | None] = [None] * without + [self.value(x) for x in node.defaults]
        extra = {
            one: self.scopes.bind(one)
            for one in ("varargs", "kwargs", "caller")
            if one not in scope.slots
        }
        body = self.block(node.body)
        self.scopes.close()
        signature = Signature(name, params, defaults, extra, frozenset(_names_read(node)))
        size = self.size - size_before + 2 + PARAM_PRICE * len(params)
        levels = _CALL_LEVELS + _levels(node)

        def call(
            defined_in: Frame, frame: Frame, args: Sequence[Any], named: Mapping[str, Any]
        ) -> str:
            frame.meter.spend(size)
            inner = frame.call(levels, defined_in.local)
            signature.bind(inner, args, named)
            body(inner)
            return inner.written()

        return lambda defined_in: Macro(
            name, lambda frame, args, named: call(defined_in, frame, args, named)
        )

    def _target(self, node: nodes.Node) -> Callable[[Frame, Any], None]:
        """Return the function that sets the target of an assignment."""
        if isinstance(node, nodes.Name):
            slot = self.scopes.bind(node.name)
            self.size += TARGET_PRICE

            def put(frame: Frame, value: Any) -> None:
                frame.local[slot] = value

            return put
        if isinstance(node, nodes.Tuple):
            puts = [self._target(part) for part in node.items]

            def unpack(frame: Frame, value: Any) -> None:
                values = sequence(value)
                if len(values) != len(puts):
                    raise ValueError(
                        f"{len(values)} values cannot be unpacked to {len(puts)} names"
                    )
                for put, part in zip(puts, values, strict=True):
                    put(frame, part)

            return unpack
        if isinstance(node, nodes.NSRef):
            find = self.value(nodes.Name(node.name, "load"))
            name = node.attr

            def put_part(frame: Frame, value: Any) -> None:
                namespace = find(frame)
                if not isinstance(namespace, Namespace):
                    raise TypeError("cannot assign attribute on non-namespace object")
                namespace.parts[name] = value

            return put_part
        raise not_available(f"setting a {type(node).__name__.lower()}")


def _write_data(data: str) -> Run:
    return lambda frame: frame.write(data)


def _write_value(value: Value) -> Run:
    def run(frame: Frame) -> None:
        found = value(frame)
        frame.write(found if type(found) is str else text_of(frame.meter, found))

    return run


def _levels(node: nodes.Node) -> int:
    depth, level = 0, [node]
    while level:
        depth += 1
        level = [child for one in level for child in one.iter_child_nodes()]
    return depth


def _names_read(node: nodes.Node) -> set[str]:
    return {one.name for one in node.find_all(nodes.Name) if one.ctx == "load"}


_COMPILERS: dict[type[nodes.Node], Callable[[_Statements, Any], Run]] = {
    nodes.Assign: _Statements._assign,
    nodes.AssignBlock: _Statements._assign_block,
    nodes.CallBlock: _Statements._call_block,
    nodes.FilterBlock: _Statements._filter_block,
    nodes.For: _Statements._for,
    nodes.If: _Statements._if,
    nodes.Macro: _Statements._macro,
    nodes.Output: _Statements._output,
    nodes.With: _Statements._with,
}
