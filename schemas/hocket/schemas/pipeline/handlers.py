"""Which functions `python` nodes may name. Pure.

A worker runs functions of the modules that it was started for (`HOCKET_HANDLERS`, `hocket up
--handlers`, `node_types.python.modules`), including their submodules, and a few of Hocket's own for
examples and tests. It runs nothing else: neither the standard library nor other installed packages.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.schemas.pipeline.agents.called import called_by
from hocket.schemas.pipeline.spec import (
    GraphNode,
    Node,
    Pipeline,
    PlanningNode,
    PythonNode,
    RaceNode,
)
from hocket.schemas.subjects import QUEUE

ALWAYS_ALLOWED = (
    "hocket.workers.builtin:echo",
    "hocket.workers.builtin:sleep",
    "hocket.workers.builtin:fail",
    "hocket.workers.replay:sleep",
)
"""Functions that every worker runs."""
MAX_ENTRIES = 1_000
SHOWN = 8
"""The most entries of the list that an error shows."""

_MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_ENTRY = re.compile(rf"{_MODULE}(?::[A-Za-z_]\w*)?", re.ASCII)
_HANDLER = re.compile(rf"({_MODULE}):([A-Za-z_]\w*)", re.ASCII)
_OWN = "hocket"
_NOT_IMPORTED = frozenset({"__main__", "__init__"})


class HandlerNotAllowed(HocketError):
    """The handler `{handler}` may not be run: {reason}. {cure}"""

    code = "handler_not_allowed"
    error_class = ErrorClass.INVALID


class HandlerNotListed(HandlerNotAllowed):
    """The handler `{handler}` may not be run: {reason}. {cure}"""


class HandlerNotHere(HocketError):
    """No worker that was asked knows the handler `{handler}`; the last one says: {reason}. Start a
    worker from the release that has it, or correct the name."""

    code = "handler_not_here"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class AllowedHandlers:
    """The modules and single functions (`module:function`) that may be named."""

    modules: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset(ALWAYS_ALLOWED)

    @classmethod
    def of(cls, entries: Iterable[str], field: str = "HOCKET_HANDLERS") -> "AllowedHandlers":
        """Return the list of these entries; raise InvalidInput for one that cannot be allowed."""
        listed = tuple(entries)
        if len(listed) > MAX_ENTRIES:
            raise InvalidInput(
                field=field,
                reason=f"it has {len(listed)} entries; the limit is {MAX_ENTRIES}",
                cure="List the package that contains them.",
            )
        for entry in listed:
            _check_entry(entry, field)
        functions = {entry for entry in listed if ":" in entry}
        return cls(
            modules=frozenset(listed) - functions,
            functions=frozenset(ALWAYS_ALLOWED) | functions,
        )

    def check(self, handler: object) -> tuple[str, str]:
        """Return the module and function of a handler; raise HandlerNotAllowed, or HandlerNotListed if
        another worker's list may have it."""
        found = _HANDLER.fullmatch(handler) if isinstance(handler, str) else None
        if found is None:
            raise HandlerNotAllowed(
                handler=str(handler)[:200],
                reason="it is not of the form `module:function`",
                cure="Name a function with its module.",
            )
        module, name = found.groups()
        if self.allows_module(module):
            if name.startswith("_") or _NOT_IMPORTED & set(module.split(".")):
                raise HandlerNotAllowed(
                    handler=handler,
                    reason="names that begin with `_` are private to their module",
                    cure="Give the function a public name.",
                )
        elif found[0] not in self.functions:
            refused = HandlerNotAllowed if _is_of_python(module) else HandlerNotListed
            raise refused(
                handler=handler, reason=f"`{module}` is not on the list ({self})", cure=_CURE
            )
        return module, name

    def allows_module(self, module: str | None) -> bool:
        """Tell whether all functions of a module may run: it is listed, or is below a listed one."""
        while module:
            if module in self.modules:
                return True
            module = module.rpartition(".")[0]
        return False

    def __str__(self) -> str:
        own = sorted(self.functions.difference(ALWAYS_ALLOWED) | self.modules)
        shown = own[:SHOWN] + (["..."] if len(own) > SHOWN else [])
        return ", ".join([*shown, "hocket.workers.builtin"])


class HandlerQueues:
    """The queues of packages. A node that names no queue, and whose handler is in a package or below it,
    is run by workers that serve the package's queue. Raises InvalidInput for an invalid module or queue
    name."""

    def __init__(self, queues: Mapping[str, str], field: str) -> None:
        for module, queue in queues.items():
            _check_entry(module, f"{field}.{module[:100]}")
            if ":" in module or not QUEUE.fullmatch(queue):
                raise InvalidInput(
                    field=f"{field}.{module[:100]}",
                    reason=f"`{queue[:100]}` is not a queue, or `{module[:100]}` is not a module",
                    cure="Write `my_package: gpu`: a queue name is a lower-case letter followed by "
                    "lower-case letters, digits and `_`, at most 31 in all.",
                )
        self._queues = dict(queues)

    def of(self, handler: str) -> str | None:
        """Return the queue of a handler (`module:function`), which is that of the innermost package that
        has one, or None."""
        module = handler.partition(":")[0]
        while module:
            if module in self._queues:
                return self._queues[module]
            module = module.rpartition(".")[0]
        return None


def entries_of(text: str) -> tuple[str, ...]:
    """Return the entries in a comma-separated list."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def check_handlers(pipeline: Pipeline, allowed: AllowedHandlers) -> None:
    """Raise InvalidInput for the first node of a pipeline whose handler may not run."""
    for field, handler in _named(pipeline.nodes, "nodes"):
        try:
            allowed.check(handler)
        except HandlerNotAllowed as error:
            raise InvalidInput(
                field=field,
                reason=f"`{handler}` may not be run: {error.fields['reason']}",
                cure=str(error.fields["cure"]),
            ) from None


def _named(nodes: Mapping[str, Node], field: str) -> Iterator[tuple[str, str]]:
    for name, node in nodes.items():
        yield from _named_by(node, f"{field}.{name}")


def _named_by(node: Node, field: str) -> Iterator[tuple[str, str]]:
    """Yield the handlers that a node names, with their fields."""
    if isinstance(node, PythonNode):
        yield f"{field}.handler", node.handler
    if isinstance(node, PlanningNode) and node.emit is not None:
        for i, handler in enumerate(node.emit.handlers):
            yield f"{field}.emit.handlers.{i}", handler
    if isinstance(node, GraphNode):
        yield from _named(node.nodes, f"{field}.nodes")
    for place, called in called_by(node):
        yield from _named_by(called, f"{field}.{place}")
    if isinstance(node, RaceNode):
        yield from _named(node.branches, f"{field}.branches")
    for i, fallback in enumerate(node.fallback):
        yield from _named_by(fallback.node, f"{field}.fallback.{i}.node")
    if node.fast is not None:
        yield from _named_by(node.fast, f"{field}.fast")


def _check_entry(entry: str, field: str) -> None:
    if not _ENTRY.fullmatch(entry):
        raise InvalidInput(
            field=field,
            reason=f"`{entry[:100]}` is neither a module nor `module:function`",
            cure="List modules by their import names, separated by commas: `acme.steps,shop`.",
        )
    if _is_of_python(entry):
        raise InvalidInput(
            field=field,
            reason=f"`{entry}` is part of Python's standard library, which no pipeline may call",
            cure="Write a function that does what you need, and list its module.",
        )
    if entry.partition(".")[0] == _OWN and ":" not in entry:
        raise InvalidInput(
            field=field,
            reason=f"`{entry}` is one of Hocket's own modules",
            cure="List individual functions of it: `module:function`.",
        )


def _is_of_python(entry: str) -> bool:
    top = entry.partition(":")[0].partition(".")[0]
    return top in sys.stdlib_module_names or top == "builtins"


_CURE = (
    "Start the workers with its package: HOCKET_HANDLERS=my_package, `hocket up --handlers"
    " my_package`, or `node_types.python.modules` in the configuration."
)
