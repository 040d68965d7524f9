"""The `python` node: calls a user's function, `module:function`, with the step's input.

A function that this process does not have may exist in another one: such a step ends with
HandlerNotHere, after which it is dispatched again (`coordinator/core/run/constructs/results.py`).

`runtime/execution/functions.py` describes how functions are called. Each is resolved once per process.

Only functions of allowed modules run (hocket.schemas.pipeline.handlers), and only those that are
defined there; functions that a module has imported do not count as its own.
"""

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.pipeline.handlers import (
    AllowedHandlers,
    HandlerNotAllowed,
    HandlerNotHere,
    HandlerNotListed,
)
from hocket.workers.errors import HandlerUnknown
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.functions import (
    Function,
    described,
    run_function,
    value_of,
)
from hocket.workers.runtime.execution.step_threads import Outcome, StepThreads

REMEMBERED_MS = 5_000.0
"""How long to wait before a missing handler is looked for again."""
MAX_REMEMBERED = 1_000
NEVER = sys.stdlib_module_names | {"builtins", "hocket"}
"""Packages whose functions never count as another module's own."""


class PythonNode:
    """Runs allowed functions, sync ones in `threads`."""

    def __init__(self, threads: StepThreads, allowed: AllowedHandlers) -> None:
        self._threads = threads
        self._allowed = allowed
        self._functions: dict[str, Function] = {}
        self._resolving: dict[str, asyncio.Future[Outcome]] = {}
        self._not_here: dict[str, tuple[float, str]] = {}
        """Missing handlers: until when they count as missing, and why."""

    async def __call__(self, context: Context) -> Any:
        """Call the step's function and return its result."""
        handler = context.config.get("handler")
        function = self._functions.get(handler) if isinstance(handler, str) else None
        if function is None:
            function = await self._resolved(handler)
        return await run_function(function, context, self._threads)

    async def _resolved(self, named: object) -> Function:
        """Import the function in a thread, because imports may be slow, and once for all that wait."""
        try:
            handler = ":".join(self._allowed.check(named))
        except HandlerNotListed as error:
            raise HandlerNotHere(handler=named, reason=error.fields["reason"]) from None
        until_ms, reason = self._not_here.get(handler, (0.0, ""))
        if monotonic_ms() < until_ms:
            raise HandlerNotHere(handler=handler, reason=reason)
        try:
            return await self._imported(handler)
        except HandlerNotHere as error:
            if len(self._not_here) >= MAX_REMEMBERED:
                self._not_here.clear()
            reason = str(error.fields["reason"])
            self._not_here[handler] = (monotonic_ms() + REMEMBERED_MS, reason)
            raise

    async def _imported(self, handler: str) -> Function:
        resolving = self._resolving.get(handler)
        if resolving is None:
            importing = self._threads.start(partial(resolve, handler, self._allowed))
            resolving = asyncio.wrap_future(importing)
            self._resolving[handler] = resolving
            resolving.add_done_callback(lambda _: self._resolving.pop(handler, None))
        function: Function = value_of(await asyncio.shield(resolving))
        self._functions[handler] = function
        return function


def resolve(handler: str, allowed: AllowedHandlers) -> Function:
    """Import `module:function`; raise HandlerNotHere if another process may have it, and otherwise
    HandlerNotAllowed or HandlerUnknown, naming what is wrong."""
    module_name, name = allowed.check(handler)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        reason = f"importing `{module_name}` failed with {type(error).__name__}: {error}"
        raise HandlerNotHere(handler=handler, reason=reason) from error
    call = vars(module).get(name)
    if call is None:
        raise HandlerNotHere(handler=handler, reason=f"`{module_name}` has no `{name}`")
    if not callable(call) or isinstance(call, type) or inspect.isasyncgenfunction(call):
        raise HandlerUnknown(handler=handler, reason="it is not a function that returns a value")
    _check_home(handler, call, module, allowed)
    return described(handler, call)


def _check_home(
    handler: str, call: Callable[..., Any], module: ModuleType, allowed: AllowedHandlers
) -> None:
    """Raise HandlerNotAllowed if a module has merely imported the function.

    The function must be defined in an allowed module, or be listed in the module's `__all__`; but
    listing never makes the functions of the standard library or of Hocket a module's own."""
    home = getattr(call, "__module__", None)
    if not isinstance(home, str):
        home = "builtins"
    if home == module.__name__ or allowed.allows_module(home):
        return
    top = home.partition(".")[0]
    exported = getattr(module, "__all__", ())
    listed = isinstance(exported, list | tuple) and handler.partition(":")[2] in exported
    if not listed or top in NEVER:
        raise HandlerNotAllowed(
            handler=handler,
            reason=f"it is defined in `{home}`, which is not on the list ({allowed})",
            cure=f"Write a function in `{module.__name__}` that calls it, and name that.",
        )
