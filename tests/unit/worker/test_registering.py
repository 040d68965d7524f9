"""What cannot be a node type is refused when it is registered, with the reason and what to do."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
import structlog
from pydantic import BaseModel, Field

from hocket.kit.compiled import CompiledPartStale
from hocket.schemas.json_schema import schema
from hocket.schemas.pipeline import spec
from hocket.worker import Worker, description_limits
from hocket.worker import worker as module
from hocket.worker.errors import NodeTypeInvalid, WorkerNameInvalid


def takes_three(a: int, b: int, c: int) -> int:
    return a


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (takes_three, "it takes 3 parameters"),
        (lambda *, a: a, "`a` is keyword-only"),
        (max, "its parameters cannot be read"),
        (7, "its parameters cannot be read"),
    ],
)
def test_a_function_that_cannot_be_called_for_a_step(
    function: Callable[..., Any], reason: str
) -> None:
    with pytest.raises(NodeTypeInvalid, match=r"`a\.b` cannot be announced") as refused:
        Worker().node("a.b")(function)
    assert reason in str(refused.value)
    assert "Change its parameters or annotations" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"version": 2}, "`2` is not a version"),
        ({"concurrency": "8"}, "its concurrency is '8'"),
        ({"usd_per_second": "cheap"}, "its usd_per_second is 'cheap'"),
        ({"usd_per_second": []}, "its usd_per_second is []"),
    ],
    ids=str,
)
def test_an_option_of_another_type_is_named(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(NodeTypeInvalid) as refused:
        Worker().node("a.b", **options)(lambda: 1)
    assert reason in str(refused.value)


def test_a_decorator_without_a_name_is_refused_instead_of_registering_nothing() -> None:
    def lookup(given: int) -> int:
        return given

    undecorated: Any = lookup
    with pytest.raises(NodeTypeInvalid, match=r"on `lookup` without a name.*@worker\.node\("):
        Worker().node(undecorated)


@pytest.mark.parametrize("name", ["bad name", "", "gpu.1", "x" * 64])
async def test_a_name_that_no_worker_can_have_is_refused(name: str) -> None:
    worker = Worker()
    worker.node("a.b")(lambda: 1)
    with pytest.raises(WorkerNameInvalid, match="cannot be the name of a worker"):
        async with worker.run(name=name):
            pytest.fail("the worker runs")


async def test_compiled_parts_that_are_stale_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale() -> int:
        raise CompiledPartStale(module="gate.py", folder="hocket")

    monkeypatch.setattr(module, "check_compiled", stale)
    worker = Worker()
    worker.node("a.b")(lambda: 1)
    with pytest.raises(CompiledPartStale):
        async with worker.run():
            pytest.fail("the worker runs")


class Refers(BaseModel):
    other: "Undefined"  # type: ignore[name-defined]  # noqa: F821


def nested(levels: int) -> Any:
    kind: Any = int
    for _ in range(levels):
        kind = list[kind]
    return kind


def told_of(worker: Worker) -> list[str]:
    with structlog.testing.capture_logs() as lines:
        worker.types[0].warn_of_unused()
    return [line["reason"] for line in lines]


def test_a_type_with_an_undefined_reference_is_refused() -> None:
    def handler(given: Any) -> Any:
        return given

    handler.__annotations__ = {"given": Refers}
    with pytest.raises(NodeTypeInvalid, match=r"its types cannot be described: .*Refers"):
        Worker().node("a.b")(handler)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (nested(70), "the schema of its input nests deeper than 48 levels"),
        (Literal[tuple(range(6_000))], "the schema of its input has more than 5,000 values"),
        (Annotated[str, Field(pattern="^[^\\u0000-\\u001f]*$")], None),
        (Annotated[str, Field(pattern="^.{1,2000}$")], "may repeat more than 1000 times"),
        (Annotated[str, Field(pattern="^.{1001}$")], "may repeat more than 1000 times"),
        (Annotated[str, Field(pattern="^.{5,1000}$")], None),
        (Annotated[str, Field(pattern=r"^\{1,2000\}$")], None),
    ],
)
@pytest.mark.parametrize("role", ["input", "output"])
def test_what_the_platform_will_not_use_of_a_type_is_told(
    kind: Any, reason: str | None, role: str
) -> None:
    def handler(given: Any) -> Any:
        return given

    handler.__annotations__ = {"given" if role == "input" else "return": kind}
    worker = Worker()
    worker.node("a.b")(handler)
    told = told_of(worker)
    assert len(told) == (reason is not None)
    assert not told or (reason or "").replace("input", role) in told[0]


def test_the_limits_on_descriptions_are_the_platforms_own() -> None:
    assert description_limits.MAX_TIMEOUT_MS == spec.MAX_TIMEOUT_MS
    assert description_limits.MAX_SCHEMA_DEPTH == schema.MAX_SCHEMA_DEPTH
    assert description_limits.MAX_SCHEMA_PARTS == schema.MAX_SCHEMA_PARTS
    for more in (0, 1):
        worker = Worker()
        worker.node("a.b", timeout_ms=spec.MAX_TIMEOUT_MS + more)(lambda: 1)
        assert len(told_of(worker)) == more
