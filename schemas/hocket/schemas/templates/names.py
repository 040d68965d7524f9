"""Compiles the names, attributes and items in an expression."""

from collections.abc import Callable
from typing import Any

from jinja2 import StrictUndefined, nodes

from hocket.schemas.templates.compiling import Compiler
from hocket.schemas.templates.frames import UNSET, Frame, Value
from hocket.schemas.templates.values import attribute, item

Function = Callable[..., Any]


def name_of(compiler: Compiler, node: nodes.Name, function: Function | None = None) -> Value:
    name = node.name
    slots, sure = compiler.scopes.find(name)
    if not sure:
        if function is None:
            compiler.scopes.free.add(name)
        read = _free_name(name, function)
        return read if not slots else _perhaps_set(slots, read)
    slot = slots[0]
    if len(slots) == 1:
        return lambda frame: frame.local[slot]
    return _perhaps_set(slots[:-1], lambda frame: frame.local[slots[-1]])


def attribute_of(compiler: Compiler, node: nodes.Getattr) -> Value:
    names: list[str] = []
    below: nodes.Expr = node
    while isinstance(below, nodes.Getattr):
        names.append(below.attr)
        compiler.size += 1
        below = below.node
    target = compiler.value(below)
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


def item_of(compiler: Compiler, node: nodes.Getitem) -> Value:
    target, key = compiler.value(node.node), compiler.value(node.arg)
    return lambda frame: item(frame.meter, target(frame), key(frame))


def slice_of(compiler: Compiler, node: nodes.Slice) -> Value:
    start, stop, step = (
        None if part is None else compiler.value(part)
        for part in (node.start, node.stop, node.step)
    )
    return lambda frame: slice(start and start(frame), stop and stop(frame), step and step(frame))


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
