"""How a function of somebody's own is called for a step: `f()`, `f(input)` or `f(input, context)`, and
where it is the handler of a node type, with a parameter called `config` as well.

Async functions run on the event loop; others in a thread, which cannot be stopped: their step ends at
its timeout, and the slot is free again when the function returns. Where the parameter of the input (or
of the config) is annotated, it is validated against the annotation, pydantic models included.
"""

import asyncio
import contextvars
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.errors import InvalidInput
from hocket.workers.errors import HandlerUnknown
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.step_threads import Outcome, StepThreads
from hocket.workers.runtime.results.encoding import check_ends

CONTEXT_NAMES = ("ctx", "context")
CONFIG_NAME = "config"

Role = Literal["input", "config", "context"]


@dataclass(frozen=True, slots=True)
class Function:
    """A handler: what it is called with, and where it runs."""

    name: str
    call: Callable[..., Any]
    roles: tuple[Role, ...]
    """What its positional parameters get."""
    is_async: bool
    adapters: dict[Role, TypeAdapter[Any]]
    """Of those parameters that are annotated."""
    returns: Any = Any
    """The annotation of what it gives back."""

    def arguments(self, context: Context) -> tuple[Any, ...]:
        """Return the arguments of one call; raise InvalidInput where the input does not validate."""
        return tuple(self._argument(role, context) for role in self.roles)

    def _argument(self, role: Role, context: Context) -> Any:
        if role == "context":
            return context
        value = context.input if role == "input" else dict(context.config)
        adapter = self.adapters.get(role)
        if adapter is None:
            return value
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            fault = first_fault(error)
            raise InvalidInput(
                field=".".join((role, *map(str, fault.place))),
                reason=fault.reason,
                cure=f"Give the node the {role} that `{self.name}` takes.",
            ) from None


def described(name: str, call: Callable[..., Any], *, with_config: bool = False) -> Function:
    """Return how a function is called, or raise HandlerUnknown where it cannot be."""
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
    """Call a function for a step and return what it gives, which is no iterator."""
    context.threads, context.journals_models = threads, True
    arguments = function.arguments(context)
    if function.is_async:
        return _ending(await function.call(*arguments))
    frame = contextvars.copy_context()
    work = threads.start(partial(frame.run, function.call, *arguments))
    context.left_behind = work
    result = value_of(await asyncio.wrap_future(work))
    return _ending(await result if inspect.isawaitable(result) else result)


def value_of(outcome: Outcome) -> Any:
    """Return what a function gave in its thread, or raise what it raised."""
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def _ending(output: Any) -> Any:
    check_ends(output)
    return output


def _roles(
    handler: str, call: Callable[..., Any], hints: dict[str, Any], *, with_config: bool
) -> dict[Role, str]:
    """Return what the parameters to fill are for, in order: the first one is the input, a second one
    without a default the context."""
    roles: dict[Role, str] = {}
    for parameter in inspect.signature(call).parameters.values():
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


def _role_of(
    parameter: inspect.Parameter,
    hints: dict[str, Any],
    roles: dict[Role, str],
    *,
    with_config: bool,
) -> Role | None:
    """Return what a parameter gets behind those that have a role; None where it has a default, which is
    the function's own business."""
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


def _hints(handler: str, call: Callable[..., Any]) -> dict[str, Any]:
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
