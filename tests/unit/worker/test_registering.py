"""What cannot be a node type is refused when it is registered, with the reason and what to do."""

from collections.abc import Callable
from typing import Any

import pytest

from hocket.kit.compiled import CompiledPartStale
from hocket.worker import Worker
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
