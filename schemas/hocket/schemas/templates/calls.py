"""Compiles the calls in an expression: filters, tests, methods, functions, macros, and arguments."""

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Undefined, nodes

from hocket.schemas.templates.budget import Meter, Refused
from hocket.schemas.templates.builtins.list_filters import FILTERS, PASSING_FILTERS
from hocket.schemas.templates.builtins.methods import METHODS, call_method
from hocket.schemas.templates.builtins.template_tests import PASSING_TESTS, TESTS
from hocket.schemas.templates.compiling import (
    PAGE,
    Compiler,
    not_available,
    readable,
    values_of,
)
from hocket.schemas.templates.frames import LOOP_METHODS, Frame, Loop, Macro, Value
from hocket.schemas.templates.names import Function, name_of
from hocket.schemas.templates.values import (
    Namespace,
    refuse_reference,
    refuse_references,
    scalar_key,
    sequence,
)

MAX_RANGE = 100_000
MAX_NUMBER_KEYS = 100
"""Numbers as keys in a mapping: they can be chosen so that each is looked for at the places of all."""
"""The most numbers in one `range()`."""

Given = Callable[[Frame], tuple[list[Any], dict[str, Any]]]
"""The compiled arguments of a call: positional and named ones."""


def filter_of(compiler: Compiler, node: nodes.Filter) -> Value:
    assert node.node is not None
    return filtered(compiler, node, compiler.value(node.node))


def filtered(compiler: Compiler, node: nodes.Filter, value: Value) -> Value:
    """Return the function of a filter over a value (`filter` and `set` blocks have their own)."""
    work = _known(node.name, FILTERS, "filter")
    return _applied(compiler, work, node, value, reads=node.name not in PASSING_FILTERS)


def test_of(compiler: Compiler, node: nodes.Test) -> Value:
    work, value = _known(node.name, TESTS, "test"), compiler.value(node.node)
    return _applied(compiler, work, node, value, reads=node.name not in PASSING_TESTS)


def _applied(compiler: Compiler, work: Function, node: Any, value: Value, *, reads: bool) -> Value:
    """Return the function of a filter or test; one that `reads` its value refuses a reference."""
    given = arguments_of(compiler, node)
    if given is None:

        def apply_alone(frame: Frame) -> Any:
            subject = value(frame)
            if reads and type(subject) is dict:
                refuse_reference(subject)
            return work(frame.meter, subject)

        return apply_alone

    def apply(frame: Frame) -> Any:
        subject = value(frame)
        if reads and type(subject) is dict:
            refuse_reference(subject)
        args, named = given(frame)
        return work(frame.meter, subject, *args, **named)

    return apply


def call_of(compiler: Compiler, node: nodes.Call) -> Value:
    given = arguments_of(compiler, node) or _no_arguments
    callee = node.node
    if isinstance(callee, nodes.Getattr):
        return _method(compiler, callee, given)
    if not isinstance(callee, nodes.Name):
        raise not_available("a call of something that is neither a name nor a method")
    name = callee.name
    function = FUNCTIONS.get(name)
    find = name_of(compiler, callee, function)

    def call(frame: Frame) -> Any:
        found = find(frame)
        args, named = given(frame)
        if found is function and function is not None:
            return function(frame.meter, *args, **named)
        if isinstance(found, Macro):
            return found.call(frame, args, named)
        if isinstance(found, Loop) and len(args) == 1 and not named:
            return _recursed(frame, found, args[0])
        if isinstance(found, Undefined):
            found._fail_with_undefined_error()
        raise TypeError(f"`{name}` cannot be called")

    return call


def _recursed(frame: Frame, loop: Loop, values: Any) -> str:
    if loop.recurse is None:
        raise TypeError("the loop must be marked `recursive` to be called")
    return loop.recurse(frame, values, loop.depth0 + 1)


def _method(compiler: Compiler, callee: nodes.Getattr, given: "Given") -> Value:
    name = callee.attr
    if name not in METHODS and name not in LOOP_METHODS:
        raise Refused(f"there is no method `{name}()`", f"Use a method of {PAGE}.")
    target = readable(compiler.value(callee.node))

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


def arguments_of(compiler: Compiler, node: Any) -> "Given | None":
    positional = values_of(compiler, node.args)
    named = [(pair.key, compiler.value(pair.value)) for pair in node.kwargs]
    more = None if node.dyn_args is None else compiler.value(node.dyn_args)
    more_named = None if node.dyn_kwargs is None else compiler.value(node.dyn_kwargs)
    if more is None and more_named is None:
        return _plain_arguments(positional, named)

    def given(frame: Frame) -> tuple[list[Any], dict[str, Any]]:
        args = [part(frame) for part in positional]
        found = {key: part(frame) for key, part in named}
        if more is not None:
            args += _spread(frame, more(frame))
        if more_named is not None:
            found.update(_spread_names(frame, more_named(frame)))
        return args, found

    return given


def _plain_arguments(positional: list[Value], named: list[tuple[str, Value]]) -> Given | None:
    if not positional and not named:
        return None
    return lambda frame: (
        [part(frame) for part in positional],
        {key: part(frame) for key, part in named},
    )


def _spread(frame: Frame, given: Any) -> Any:
    values = sequence(given)
    frame.meter.items(len(values))
    return values


def _spread_names(frame: Frame, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise TypeError("the value after `**` must be a mapping")
    refuse_reference(given)
    frame.meter.items(len(given), 100)
    return given


def _no_arguments(frame: Frame) -> tuple[list[Any], dict[str, Any]]:
    return [], {}


def _known(name: str, table: Mapping[str, Function], kind: str) -> Function:
    found = table.get(name)
    if found is None:
        raise Refused(f"there is no {kind} `{name}`", f"Use a {kind} of {PAGE}.")
    return found


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
        refuse_reference(given)
        found = given.items() if isinstance(given, Mapping) else sequence(given)
        refuse_references(found)
        meter.items(len(found), 100)
        meter.spend(3 * len(found))
        numbers = 0
        for key, value in found:
            numbers += isinstance(key, int | float)
            if numbers > MAX_NUMBER_KEYS:
                reason = f"a mapping has more than {MAX_NUMBER_KEYS:,} numbers as keys"
                raise Refused(reason, "Use text: `key|string`.")
            result[scalar_key(key)] = value
    meter.items(len(named), 100)
    return result | named


def _namespace(meter: Meter, *pairs: Any, **named: Any) -> Namespace:
    return Namespace(_dict(meter, *pairs, **named))


FUNCTIONS: dict[str, Function] = {"dict": _dict, "namespace": _namespace, "range": _range}
