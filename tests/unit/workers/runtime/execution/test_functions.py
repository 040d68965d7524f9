"""What a function of somebody's own is called with."""

import sys
import typing
from functools import partial
from typing import Any

import pytest

from hocket.worker import Worker
from hocket.worker.errors import NodeTypeInvalid
from hocket.workers.errors import HandlerUnknown
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.functions import described


async def every(lead: int, config: dict[str, str], context: Context) -> int: ...
async def other_order(context: Context, config: dict[str, str], lead: int) -> int: ...
async def config_only(config: dict[str, str]) -> int: ...
async def with_defaults(lead: int, config: dict[str, str], depth: int = 3) -> int: ...
async def nothing() -> None: ...
async def four(a: int, config: int, c: int, d: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "roles"),
    [
        (every, ("input", "config", "context")),
        (other_order, ("context", "config", "input")),
        (config_only, ("config",)),
        (with_defaults, ("input", "config")),
        (nothing, ()),
    ],
)
def test_parameters_get_what_they_are_for(function: Any, roles: tuple[str, ...]) -> None:
    assert described("a.b", function, with_config=True).roles == roles


async def sold(shop: str, prices: list[int], given: dict[str, int], ctx: Context) -> list[int]:
    """Sell something."""
    return [given["count"] * price for price in prices]


def test_a_partial_is_the_function_in_it_without_what_it_has_already() -> None:
    worker = Worker()
    worker.node("shop.sold")(partial(partial(sold, "s"), [3]))
    function = worker.types[0].function
    assert function.roles == ("input", "context")
    assert function.adapters["input"].validate_python({"count": "2"}) == {"count": 2}
    described_type = worker.types[0].described("w")
    assert described_type.description == "Sell something."
    assert described_type.output == {"items": {"type": "integer"}, "type": "array"}


def test_too_many_parameters_are_told() -> None:
    with pytest.raises(HandlerUnknown, match=r"takes 4 parameters; it may take \(input, config"):
        described("a.b", four, with_config=True)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic reads them from 3.12 on")
def test_an_annotation_that_pydantic_cannot_read_is_told_with_its_cure() -> None:
    class Plain(typing.TypedDict):
        text: str

    async def takes(value: Plain) -> None: ...
    async def gives(value: int) -> Plain: ...

    takes.__annotations__["value"] = Plain
    gives.__annotations__["return"] = Plain
    for function in (takes, gives):
        with pytest.raises(NodeTypeInvalid, match=r"typing_extensions\.TypedDict"):
            Worker().node("a.b")(function)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"type": "lookup"}, "it is not the name of a node type"),
        ({"type": "a.b", "version": "1.0"}, "`1.0` is not a version"),
        ({"type": "a.b", "concurrency": 0}, "its concurrency is 0"),
        ({"type": "a.b", "timeout_ms": 0}, "`timeout_ms`"),
        ({"type": "a.b", "effects": "some"}, "`effects`"),
        ({"type": "a.b", "description": "x" * 3_000}, "`description`"),
    ],
)
def test_a_type_that_cannot_be_announced_is_refused_where_it_is_written(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NodeTypeInvalid, match=reason):
        Worker().node(**options)(nothing)


def test_a_type_is_named_once() -> None:
    worker = Worker()
    worker.node("a.b")(nothing)
    with pytest.raises(NodeTypeInvalid, match="already has it"):
        worker.node("a.b")(nothing)
