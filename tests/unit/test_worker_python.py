"""How `module:function` becomes a call, and what is refused."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel, Field

from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import CallReply, CallRequest, Priority, StepRequested
from hocket.workers.errors import HandlerRefused, HandlerUnknown
from hocket.workers.nodes.python import PythonNode, check_allowed, resolve
from hocket.workers.runtime.context import Context


class Order(BaseModel):
    item: str
    count: int = Field(ge=1)


async def echo(value: Any) -> Any:
    return value


async def nothing() -> str:
    return "no input"


async def with_context(value: dict[str, Any], context: Context) -> str:
    return f"{value['a']} {context.attempt_id}"


async def only_context(context: Context) -> Any:
    return context.input


async def with_default(value: Any, greeting: str = "hello") -> str:
    return greeting


async def validated(order: Order) -> str:
    return f"{order.count} {order.item}"


def in_thread(value: Any) -> bool:
    return threading.current_thread() is not threading.main_thread()


def returns_awaitable(value: Any) -> Any:
    return echo(value)


class Callable:
    async def __call__(self, order: Order) -> int:
        return order.count


callable_object = Callable()


async def three(a: Any, b: Any, c: Any) -> None: ...


async def keyword_only(a: Any, *, b: Any) -> None: ...


async def stream(value: Any) -> Any:
    yield value


async def unreadable(value: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821
    ...


not_callable = 7


class NoCalls:
    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        raise AssertionError("no model is called here")


@pytest.fixture
def node() -> Iterator[PythonNode]:
    with ThreadPoolExecutor(2) as threads:
        yield PythonNode(threads)


def context_of(function: str, step_input: Any) -> Context:
    step = StepRequested(
        run_id="r1",
        tenant="t",
        pipeline="p",
        version=1,
        step="s",
        node="s",
        type="python",
        attempt=1,
        input=step_input,
        config={"handler": f"{__name__}:{function}"},
        deadline_at_ms=0,
        slack_ms=0,
        timeout_ms=1,
        priority=Priority.STANDARD,
        partition=0,
        epoch=0,
    )
    return Context(
        step, step_input, attempt_id="r1:s:1", delivery=1, deadline_at_ms=0, calls=NoCalls()
    )


@pytest.mark.parametrize(
    ("function", "step_input", "output"),
    [
        ("echo", {"a": 1}, {"a": 1}),
        ("nothing", {"a": 1}, "no input"),
        ("with_context", {"a": 1}, "1 r1:s:1"),
        ("only_context", {"a": 1}, {"a": 1}),
        ("with_default", {}, "hello"),
        ("validated", {"item": "nut", "count": "3"}, "3 nut"),
        ("in_thread", {}, True),
        ("returns_awaitable", 5, 5),
        ("callable_object", {"item": "nut", "count": 2}, 2),
    ],
)
async def test_a_handler_is_called_as_it_is_written(
    node: PythonNode, function: str, step_input: Any, output: Any
) -> None:
    assert await node(context_of(function, step_input)) == output


async def test_an_input_that_does_not_fit_the_annotation_names_the_field(node: PythonNode) -> None:
    with pytest.raises(InvalidInput) as refused:
        await node(context_of("validated", {"item": "nut", "count": 0}))
    assert refused.value.info().field == "input.count"


async def test_a_function_is_resolved_once_for_all_that_wait_for_it(node: PythonNode) -> None:
    outputs = await asyncio.gather(*(node(context_of("echo", n)) for n in range(20)))
    assert outputs == list(range(20))
    assert list(node._functions) == [f"{__name__}:echo"]


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        ("no.such.module:f", "importing `no.such.module` failed with ModuleNotFoundError"),
        (f"{__name__}:missing", "has no `missing`"),
        (f"{__name__}:not_callable", "not a function"),
        (f"{__name__}:stream", "not a function"),
        (f"{__name__}:three", "takes 3 parameters"),
        (f"{__name__}:keyword_only", "`b` is keyword-only"),
        (f"{__name__}:unreadable", "annotations cannot be read"),
    ],
)
def test_a_handler_that_cannot_be_called_is_a_typed_error(handler: str, reason: str) -> None:
    with pytest.raises(HandlerUnknown, match=reason):
        resolve(handler)


@pytest.mark.parametrize("handler", ["acme:f", "acme.tools:f", "acme.tools.deep:f"])
def test_a_listed_module_and_what_is_below_it_may_run(handler: str) -> None:
    check_allowed(handler, ("acme",))


@pytest.mark.parametrize("handler", ["os:system", "acmeish:f"])
def test_a_module_that_is_not_listed_may_not_run(handler: str) -> None:
    with pytest.raises(HandlerRefused, match=r"node_types\.python\.modules"):
        check_allowed(handler, ("acme",))
