"""How a user-written function is called for a step: `f()`, `f(input)` or `f(input, context)`. The
handler of a custom node type may also have a parameter called `config`.

Async functions run on the event loop, others in a thread. A thread cannot be stopped: its step ends at
its timeout, but the slot becomes free only when the function returns. If the parameter for the input or
the config is annotated, the value is validated against the annotation, which may be a pydantic model.
"""

import asyncio
import contextvars
import inspect
import typing
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import to_json

from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.errors import InvalidInput
from hocket.workers.errors import HandlerUnknown
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.step_threads import Outcome, StepThreads
from hocket.workers.runtime.results.encoding import check_ends
from hocket.workers.runtime.results.large_outputs import apart

CONTEXT_NAMES = ("ctx", "context")
CONFIG_NAME = "config"

Role = Literal["input", "config", "context"]
_INPUT_ALONE: tuple[Role, ...] = ("input",)


@dataclass(frozen=True, slots=True)
class Function:
    """A handler: which arguments it takes, and whether it is async."""

    name: str
    call: Callable[..., Any]
    roles: tuple[Role, ...]
    """What each positional parameter receives."""
    is_async: bool
    adapters: dict[Role, TypeAdapter[Any]]
    """Validators of the annotated parameters."""
    returns: Any = Any
    """The return annotation."""

    def arguments(self, context: Context) -> tuple[Any, ...]:
        """Return the arguments of one call; raise InvalidInput if input or config do not validate."""
        if self.roles == _INPUT_ALONE and not self.adapters:
            return (context.input,)
        return tuple(self._argument(role, context) for role in self.roles)

    def _argument(self, role: Role, context: Context) -> Any:
        if role == "context":
            return context
        value = context.input if role == "input" else dict(context.config)
        adapter = self.adapters.get(role)
        if adapter is None:
            return value
        try:
            return _read(adapter, value)
        except ValidationError as error:
            fault = first_fault(error)
            raise InvalidInput(
                field=".".join((role, *map(str, fault.place))),
                reason=fault.reason,
                cure=f"Give the node the {role} that `{self.name}` takes.",
            ) from None


def _read(adapter: TypeAdapter[Any], value: Any) -> Any:
    """Return a JSON value as an annotation has it; raise ValidationError."""
    try:
        return adapter.validate_python(value)
    except (
        ValidationError
    ):  # a strict model accepts text for a date only if it is told that it is JSON
        return adapter.validate_json(to_json(value))


def described(name: str, call: Callable[..., Any], *, with_config: bool = False) -> Function:
    """Return how a function is called; raise HandlerUnknown if it cannot be a handler."""
    hints = _hints(name, call)
    roles = _roles(name, call, hints, with_config=with_config)
    adapters: dict[Role, TypeAdapter[Any]] = {}
    for role, parameter in roles.items():
        annotation = Any if role == "context" else hints.get(parameter, Any)
        if (adapter := _adapter(name, role, annotation)) is not None:
            adapters[role] = adapter
    returns = hints.get("return", Any)
    return Function(name, call, tuple(roles), _is_async(call), adapters, returns)


async def run_function(function: Function, context: Context, threads: StepThreads) -> Any:
    """Call a function for a step and return its result, which may not be an iterator."""
    context.threads, context.journals_models = threads, True
    context.loop = asyncio.get_running_loop()
    arguments = function.arguments(context)
    if function.is_async:
        output = await function.call(*arguments)
        await apart(output, check_ends)
        return output
    frame = contextvars.copy_context()
    work = threads.start(partial(frame.run, _checked, function.call, *arguments))
    context.runs_in_thread(work)
    output = value_of(await asyncio.wrap_future(work))
    if inspect.isawaitable(output):
        output = await output
        await apart(output, check_ends)
    return output


def _checked(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and return its result, which may not be an iterator."""
    output = call(*arguments)
    if not inspect.isawaitable(output):
        check_ends(output)
    return output


def value_of(outcome: Outcome) -> Any:
    """Return the result of a function that ran in a thread, or raise its exception."""
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def _roles(
    handler: str, call: Callable[..., Any], hints: dict[str, Any], *, with_config: bool
) -> dict[Role, str]:
    """Return the roles of the parameters to fill, in order: the first is the input, and a second one
    without a default is the context."""
    roles: dict[Role, str] = {}
    for parameter in _parameters(handler, call):
        required = parameter.default is parameter.empty
        if parameter.kind is parameter.KEYWORD_ONLY and required:
            raise HandlerUnknown(handler=handler, reason=f"`{parameter.name}` is keyword-only")
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            continue
        role = _role_of(parameter, hints, roles, with_config=with_config)
        if role is None:
            break
        if role in roles:
            given = "(input, config, context)" if with_config else "(input, context)"
            raise HandlerUnknown(
                handler=handler,
                reason=f"it takes {_required(call)} parameters; it may take {given}",
            )
        roles[role] = parameter.name
    return roles


def _parameters(handler: str, call: Callable[..., Any]) -> Collection[inspect.Parameter]:
    try:
        return inspect.signature(call).parameters.values()
    except (TypeError, ValueError) as error:  # it is not callable, or a builtin that names none
        reason = f"its parameters cannot be read: {error}"
        raise HandlerUnknown(handler=handler, reason=reason) from None


def _role_of(
    parameter: inspect.Parameter,
    hints: dict[str, Any],
    roles: dict[Role, str],
    *,
    with_config: bool,
) -> Role | None:
    """Return the role of a parameter after those that have one; None if it has a default, because it is
    then left to the function."""
    if hints.get(parameter.name) is Context or (roles and parameter.name in CONTEXT_NAMES):
        return "context"
    if with_config and parameter.name == CONFIG_NAME:
        return "config"
    if "input" not in roles:
        return "input"
    return "context" if parameter.default is parameter.empty else None


def _required(call: Callable[..., Any]) -> int:
    return sum(
        parameter.default is parameter.empty
        for parameter in inspect.signature(call).parameters.values()
    )


def unwrapped(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function in a `partial`: it has the annotations and the docstring."""
    while isinstance(call, partial):
        call = call.func
    return call


def _hints(handler: str, call: Callable[..., Any]) -> dict[str, Any]:
    call = unwrapped(call)
    target = call if inspect.isroutine(call) else type(call).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise HandlerUnknown(
            handler=handler, reason=f"its annotations cannot be read: {error}"
        ) from error


def _adapter(handler: str, role: str, annotation: Any) -> TypeAdapter[Any] | None:
    if annotation in (Any, object):
        return None
    try:
        return TypeAdapter(annotation)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise HandlerUnknown(
            handler=handler, reason=f"its {role} annotation cannot be validated: {error}"
        ) from error


def _is_async(call: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - asks whether it is async, not callable
    )
