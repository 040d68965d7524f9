"""The `python` node: a function of the user's, `module:function`, called with the step's input.

How it is called is written in `runtime/execution/functions.py`. A function is resolved once per process.

Only functions of allowed modules run (hocket.schemas.pipeline.handlers), and only those that are
defined there: what a module imported from elsewhere is not its own.
"""

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from hocket.schemas.pipeline.handlers import AllowedHandlers, HandlerNotAllowed
from hocket.workers.errors import HandlerUnknown
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.functions import (
    Function,
    described,
    run_function,
    value_of,
)
from hocket.workers.runtime.execution.step_threads import Outcome, StepThreads

NEVER = sys.stdlib_module_names | {"builtins", "hocket"}
"""Packages whose functions no other module can make its own."""


class PythonNode:
    """Runs allowed functions, sync ones in `threads`."""

    def __init__(self, threads: StepThreads, allowed: AllowedHandlers) -> None:
        self._threads = threads
        self._allowed = allowed
        self._functions: dict[str, Function] = {}
        self._resolving: dict[str, asyncio.Future[Outcome]] = {}

    async def __call__(self, context: Context) -> Any:
        """Call the step's function and return what it gives."""
        handler = context.config.get("handler")
        function = self._functions.get(handler) if isinstance(handler, str) else None
        if function is None:
            function = await self._resolved(handler)
        return await run_function(function, context, self._threads)

    async def _resolved(self, named: object) -> Function:
        """Import the function, once for all that wait for it, in a thread: imports may take long."""
        handler = ":".join(self._allowed.check(named))
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
    """Import `module:function`; raise HandlerNotAllowed or HandlerUnknown naming what is wrong."""
    module_name, name = allowed.check(handler)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        reason = f"importing `{module_name}` failed with {type(error).__name__}: {error}"
        raise HandlerUnknown(handler=handler, reason=reason) from error
    call = vars(module).get(name)
    if call is None:
        raise HandlerUnknown(handler=handler, reason=f"`{module_name}` has no `{name}`")
    if not callable(call) or isinstance(call, type) or inspect.isasyncgenfunction(call):
        raise HandlerUnknown(handler=handler, reason="it is not a function that returns a value")
    _check_home(handler, call, module, allowed)
    return described(handler, call)


def _check_home(
    handler: str, call: Callable[..., Any], module: ModuleType, allowed: AllowedHandlers
) -> None:
    """Raise HandlerNotAllowed where a module only imported the function from elsewhere.

    It must be defined in an allowed module, or be what the module's author put into `__all__`, which
    never makes the standard library's functions or ours his own."""
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
