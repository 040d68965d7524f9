"""The `python` node: a function of the user's, `module:function`, called with the step's input.

`f()`, `f(input)` or `f(input, context)`. Async functions run on the event loop; others in a thread,
which cannot be stopped: their step ends at its timeout, and the slot is free again when the function
returns. Where the first parameter is annotated, the input is validated against the annotation,
pydantic models included. A function is resolved once per process.

Only functions of allowed modules run (hocket.schemas.pipeline.handlers), and only those that are
defined there: what a module imported from elsewhere is not its own.
"""

import asyncio
import contextvars
import importlib
import inspect
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

from hocket.schemas.errors import InvalidInput
from hocket.schemas.first_fault import first_fault
from hocket.schemas.pipeline.handlers import AllowedHandlers, HandlerNotAllowed
from hocket.workers.errors import HandlerUnknown
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.step_threads import Outcome, StepThreads
from hocket.workers.runtime.results.encoding import check_ends

MAX_PARAMETERS = 2
NEVER = sys.stdlib_module_names | {"builtins", "hocket"}
"""Packages whose functions no other module can make its own."""


@dataclass(frozen=True, slots=True)
class Function:
    """A resolved handler: what it is called with, and where it runs."""

    name: str
    call: Callable[..., Any]
    takes_input: bool
    takes_context: bool
    is_async: bool
    adapter: TypeAdapter[Any] | None

    def arguments(self, context: Context) -> tuple[Any, ...]:
        """Return the arguments of one call; raise InvalidInput where the input does not validate."""
        if not self.takes_input:
            return (context,) if self.takes_context else ()
        value = context.input if self.adapter is None else self._validated(context.input)
        return (value, context) if self.takes_context else (value,)

    def _validated(self, value: Any) -> Any:
        assert self.adapter is not None, "only annotated inputs are validated"
        try:
            return self.adapter.validate_python(value)
        except ValidationError as error:
            fault = first_fault(error)
            raise InvalidInput(
                field=".".join(("input", *map(str, fault.place))),
                reason=fault.reason,
                cure=f"Give the node the input that `{self.name}` takes.",
            ) from None


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
        arguments = function.arguments(context)
        if function.is_async:
            return _ending(await function.call(*arguments))
        frame = contextvars.copy_context()
        work = self._threads.start(partial(frame.run, function.call, *arguments))
        context.left_behind = work
        result = _value(await asyncio.wrap_future(work))
        return _ending(await result if inspect.isawaitable(result) else result)

    async def _resolved(self, named: object) -> Function:
        """Import the function, once for all that wait for it, in a thread: imports may take long."""
        handler = ":".join(self._allowed.check(named))
        resolving = self._resolving.get(handler)
        if resolving is None:
            importing = self._threads.start(partial(resolve, handler, self._allowed))
            resolving = asyncio.wrap_future(importing)
            self._resolving[handler] = resolving
            resolving.add_done_callback(lambda _: self._resolving.pop(handler, None))
        function: Function = _value(await asyncio.shield(resolving))
        self._functions[handler] = function
        return function


def _ending(output: Any) -> Any:
    check_ends(output)
    return output


def _value(outcome: Outcome) -> Any:
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


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
    return _described(handler, call)


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


def _described(handler: str, call: Callable[..., Any]) -> Function:
    parameters = _positional(handler, call)
    hints = _hints(handler, call)
    takes_only_context = len(parameters) == 1 and hints.get(parameters[0]) is Context
    takes_input = bool(parameters) and not takes_only_context
    return Function(
        name=handler,
        call=call,
        takes_input=takes_input,
        takes_context=takes_only_context or len(parameters) == MAX_PARAMETERS,
        is_async=_is_async(call),
        adapter=_adapter(handler, hints.get(parameters[0], Any)) if takes_input else None,
    )


def _positional(handler: str, call: Callable[..., Any]) -> list[str]:
    """Return the parameters to fill: the first one, and a second one without a default."""
    names: list[str] = []
    for parameter in inspect.signature(call).parameters.values():
        required = parameter.default is parameter.empty
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            if required or not names or parameter.name in ("ctx", "context"):
                names.append(parameter.name)
        elif parameter.kind is parameter.KEYWORD_ONLY and required:
            raise HandlerUnknown(handler=handler, reason=f"`{parameter.name}` is keyword-only")
    if len(names) > MAX_PARAMETERS:
        raise HandlerUnknown(
            handler=handler,
            reason=f"it takes {len(names)} parameters; it may take (input, context)",
        )
    return names


def _hints(handler: str, call: Callable[..., Any]) -> dict[str, Any]:
    target = call if inspect.isroutine(call) else type(call).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise HandlerUnknown(
            handler=handler, reason=f"its annotations cannot be read: {error}"
        ) from error


def _adapter(handler: str, annotation: Any) -> TypeAdapter[Any] | None:
    if annotation in (Any, object):
        return None
    try:
        return TypeAdapter(annotation)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation) as error:
        raise HandlerUnknown(
            handler=handler, reason=f"its input annotation cannot be validated: {error}"
        ) from error


def _is_async(call: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - asks whether it is async, not callable
    )
