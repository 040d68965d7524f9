"""What takes long to read is not read on the event loop, which keeps a worker's steps alive."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.kit.blobs import FileBlobs
from hocket.schemas.messages import AttemptFinished
from hocket.schemas.structs.results import FinishedAttempt
from hocket.workers.errors import OutputNotJson
from hocket.workers.runtime.execution.functions import described, run_function
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.runtime.results.encoding import makes_more_than
from hocket.workers.runtime.results.large_outputs import MANY_VALUES
from hocket.workers.runtime.results.payloads import payload_of
from hocket.workers.runtime.values.large_values import LargeValues

READ_IN: list[int] = []
"""The threads in which a Watched was read."""


@dataclass
class Watched:
    x: int = 1

    def __getattribute__(self, name: str) -> Any:
        if name == "x":
            READ_IN.append(threading.get_ident())
        return super().__getattribute__(name)


class Broken(Mapping[str, Any]):
    """Raises what a future cannot carry."""

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        raise StopIteration

    def __len__(self) -> int:
        return 1


@pytest.fixture(autouse=True)
def fresh() -> None:
    READ_IN.clear()


def output(many: int) -> dict[str, Any]:
    return {"first": Watched(), "numbers": list(range(many))}


async def asynchronous(given: int) -> Any:
    return output(given)


def later(given: int) -> Any:
    return asynchronous(given)


def synchronous(given: int) -> Any:
    return output(given)


async def run(function: Any, many: int) -> Any:
    context: Any = SimpleNamespace(input=many, config={}, runs_in_thread=lambda _: None)
    with closing(StepThreads(2)) as threads:
        return await run_function(described("f", function), context, threads)


@pytest.mark.parametrize("function", [asynchronous, later, synchronous])
async def test_a_large_output_is_looked_through_in_a_thread(function: Any) -> None:
    await run(function, MANY_VALUES + 1)
    assert READ_IN
    assert threading.get_ident() not in READ_IN


async def test_a_small_one_of_an_async_function_is_looked_through_at_once() -> None:
    await run(asynchronous, 10)
    assert set(READ_IN) == {threading.get_ident()}


@pytest.mark.parametrize("many", [10, MANY_VALUES + 1])
async def test_an_iterator_in_an_output_of_any_size_is_refused(many: int) -> None:
    async def endless(given: Any) -> Any:
        return [output(given), iter([])]

    def endless_too(given: Any) -> Any:
        return [output(given), iter([])]

    for function in (endless, endless_too):
        with pytest.raises(OutputNotJson, match="yields its items only once"):
            await run(function, many)


async def payload(value: Any, values: LargeValues) -> AttemptFinished:
    found, info = await payload_of(FinishedAttempt("r", "s", 1), value, None, "t", values)
    finished = AttemptFinished.model_validate_json(found)
    assert finished.error == info
    return finished


async def test_a_large_output_becomes_json_once_and_in_a_thread(tmp_path: Path) -> None:
    values = LargeValues(FileBlobs(tmp_path))
    given = output(5 * MANY_VALUES)
    finished = await payload(given, values)
    assert len(READ_IN) == 1
    assert threading.get_ident() not in READ_IN
    assert finished.output["first"] == {"x": 1}
    resolved, _ = await values.resolved("t", finished.output)
    assert resolved == {"first": {"x": 1}, "numbers": given["numbers"]}


async def test_without_blobs_it_is_told_to_be_too_large() -> None:
    for value in (output(5 * MANY_VALUES), {"text": "x" * 600_000}):
        error = (await payload(value, LargeValues(None))).error
        assert error is not None
        assert error.code == "output_too_large"


@pytest.mark.parametrize("many", [10, MANY_VALUES + 1])
async def test_whatever_reading_an_output_raises_is_its_steps_error(many: int) -> None:
    error = (await payload([Broken(), *range(many)], LargeValues(None))).error
    assert error is not None


async def test_who_waits_for_a_large_output_may_be_cancelled() -> None:
    reading = asyncio.create_task(payload(output(MANY_VALUES + 1), LargeValues(None)))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


@pytest.mark.parametrize(
    ("value", "values"),
    [
        ([1, "a", None], 3),
        ({"a": [1, 2], "b": {3: 4}}, 5),
        ([Watched(), {1, 2}], 5),
        ("text", 0),
    ],
    ids=str,
)
def test_values_are_counted(value: Any, values: int) -> None:
    assert not makes_more_than(values, value)
    assert values == 0 or makes_more_than(values - 1, value)


def test_a_value_that_contains_itself_is_large() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert makes_more_than(MANY_VALUES, endless)
