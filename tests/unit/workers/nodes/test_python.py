"""How `module:function` becomes a call, and what is refused."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.schemas.messages import CallReply, CallRequest, Priority
from hocket.schemas.pipeline.handlers import AllowedHandlers, HandlerNotAllowed, HandlerNotHere
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.errors import HandlerUnknown
from hocket.workers.nodes import python as python_node
from hocket.workers.nodes import verify
from hocket.workers.nodes.python import PythonNode, resolve
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.step_threads import StepThreads


class Order(BaseModel):
    item: str
    count: int = Field(ge=1)


class Delivery(BaseModel):
    model_config = ConfigDict(strict=True)

    at: datetime
    places: tuple[int, ...]


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


async def strict(delivery: Delivery) -> list[int]:
    return [delivery.at.year, *delivery.places]


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

ALLOWED = AllowedHandlers.of([__name__, "no.such"])


class NoCalls:
    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        raise AssertionError("no model is called here")


@pytest.fixture
def node() -> Iterator[PythonNode]:
    with closing(StepThreads(2)) as threads:
        yield PythonNode(threads, ALLOWED)


OF_THIS_MODULE = object()


def context_of(function: str, step_input: Any, handler: Any = OF_THIS_MODULE) -> Context:
    step = RequestedStep(
        run_id="r1",
        tenant="t",
        pipeline="p",
        version=1,
        step="s",
        node="s",
        type="python",
        attempt=1,
        input=step_input,
        config={"handler": f"{__name__}:{function}" if handler is OF_THIS_MODULE else handler},
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
        ("strict", {"at": "2026-01-02T03:04:05Z", "places": [7, 8]}, [2026, 7, 8]),
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
    with pytest.raises(InvalidInput) as refused:
        await node(context_of("strict", {"at": "2026-01-02T03:04:05Z", "places": ["7"]}))
    assert refused.value.info().field == "input.places.0"


async def test_a_function_is_resolved_once_for_all_that_wait_for_it(node: PythonNode) -> None:
    outputs = await asyncio.gather(*(node(context_of("echo", n)) for n in range(20)))
    assert outputs == list(range(20))
    assert list(node._functions) == [f"{__name__}:echo"]


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (f"{__name__}:not_callable", "not a function"),
        (f"{__name__}:stream", "not a function"),
        (f"{__name__}:three", "takes 3 parameters"),
        (f"{__name__}:keyword_only", "`b` is keyword-only"),
        (f"{__name__}:unreadable", "annotations cannot be read"),
    ],
)
def test_a_handler_that_cannot_be_called_is_a_typed_error(handler: str, reason: str) -> None:
    with pytest.raises(HandlerUnknown, match=reason):
        resolve(handler, ALLOWED)


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        ("no.such.module:f", "importing `no.such.module` failed with ModuleNotFoundError"),
        (f"{__name__}:missing", "has no `missing`"),
        ("elsewhere:f", "`elsewhere` is not on the list"),
    ],
)
async def test_what_another_release_may_have_is_passed_on(
    node: PythonNode, handler: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):  # the second time it is remembered
        with pytest.raises(HandlerNotHere, match=reason):
            await node(context_of("echo", 1, handler))
    monkeypatch.setattr(python_node, "monotonic_ms", lambda: monotonic_ms() + 1e6)
    monkeypatch.setattr(sys.modules[__name__], "missing", lambda _: "found", raising=False)
    if handler.endswith("missing"):
        assert await node(context_of("echo", 1, handler)) == "found"


BORROWED = """
import os, subprocess, json
from os import system
from subprocess import getoutput
from json import dumps
from functools import partial
from packaging.version import parse
from hocket.workers.nodes.verify import verdict_of
from .inner import inside

__all__ = ["parse", "system", "verdict_of"]

run = partial(system, "true")

class Shell:
    def __call__(self, given): return given

def own(given): return given

def _private(given): return given

def __getattr__(name): return os.system
"""


@pytest.fixture
def borrowing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AllowedHandlers]:
    """A package that imports what must not be called through it."""
    package = tmp_path / "borrowing"
    package.mkdir()
    (package / "__init__.py").write_text(BORROWED)
    (package / "inner.py").write_text("def inside(given): return given\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield AllowedHandlers.of(["borrowing"])
    for name in [name for name in sys.modules if name.partition(".")[0] == "borrowing"]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["own", "inside", "parse"])
def test_what_a_module_defines_or_exports_may_run(borrowing: AllowedHandlers, name: str) -> None:
    assert callable(resolve(f"borrowing:{name}", borrowing).call)


@pytest.mark.parametrize(
    "handler",
    [
        "borrowing:subprocess",
        "borrowing:system",
        "borrowing:getoutput",
        "borrowing:dumps",
        "borrowing:run",
        "borrowing:verdict_of",
        "borrowing:partial",
        "borrowing:Shell",
        "borrowing:_private",
        "borrowing:__getattr__",
        "borrowing:popen",
        "borrowing.os:system",
        "borrowing.subprocess:run",
        "borrowing:os.system",
        "borrowing:own.__globals__",
        "borrowing.__init__:own",
        "os:system",
        "subprocess:getoutput",
        "builtins:eval",
        "json:dumps",
        "packaging.version:parse",
        "hocket.schemas.ids:content_hash",
        "hocket.workers.nodes.verify:verify_draft",
        "hocket.workers.builtin:asyncio",
        "hocket.workers.builtin:take",
        ".os:system",
        "os :system",
        "borrowing:own\n",
        "",
        None,
        {"a": 1},
    ],
)
async def test_what_is_not_a_modules_own_does_not_run(
    borrowing: AllowedHandlers, handler: Any
) -> None:
    context = context_of("echo", ["touch /tmp/never"], handler)
    refusals = (HandlerNotAllowed, HandlerUnknown, HandlerNotHere)
    with closing(StepThreads(1)) as threads, pytest.raises(refusals):
        await PythonNode(threads, borrowing)(context)


async def test_a_handler_that_is_not_on_the_list_is_told_so_with_the_list_and_the_cure() -> None:
    with pytest.raises(HandlerNotAllowed) as refused:
        resolve("subprocess:getoutput", AllowedHandlers.of(["acme", "shop.steps:run"]))
    info = refused.value.info()
    assert info.code == "handler_not_allowed"
    for part in ("subprocess:getoutput", "acme, shop.steps:run", "HOCKET_HANDLERS"):
        assert part in info.message


async def test_a_draft_is_verified_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    ran_in = []
    judged = verify.verdict_of

    def judge(given: Any) -> dict[str, Any]:
        ran_in.append(threading.current_thread())
        return judged(given)

    monkeypatch.setattr(verify, "verdict_of", judge)
    with closing(StepThreads(1)) as threads:
        node = PythonNode(threads, AllowedHandlers.of(["hocket.workers.nodes.verify:verify_draft"]))
        given = {"draft": "It weighs 7 kg."}
        handler = "hocket.workers.nodes.verify:verify_draft"
        verdict = await node(context_of("echo", given, handler))
    assert (verdict["accepted"], verdict["failed"]) == (False, 1)
    assert ran_in[0] is not threading.current_thread()


async def test_the_built_in_functions_run_in_every_worker() -> None:
    allowed = AllowedHandlers()
    with closing(StepThreads(1)) as threads:
        node = PythonNode(threads, allowed)

        async def run(name: str, given: Any) -> Any:
            context = context_of("echo", given, f"hocket.workers.builtin:{name}")
            return await node(context)

        assert await run("echo", [1, {"a": 2}]) == [1, {"a": 2}]
        slept = await run("sleep", {"seconds": 0.001, "tag": "x"})
        assert slept["tag"] == "x"
        assert slept["seconds"] >= 0.001
        with pytest.raises(HocketError) as failed:
            await run("fail", {"error_class": "transient", "reason": "so told"})
    info = failed.value.info()
    assert (info.code, info.error_class, info.retryable) == ("told_to_fail", "transient", True)
