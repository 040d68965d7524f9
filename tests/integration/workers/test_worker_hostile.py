"""Functions that do not end, that end the process, or raise and give back what cannot be read: each
costs its own step an error, and no other step anything."""

import asyncio
import decimal
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from nats.aio.msg import Msg
from pydantic import BaseModel

from hocket.kit.blobs import FileBlobs
from hocket.schemas import ids, subjects
from hocket.schemas.messages import WorkerAnnounced
from support.places import HANDLERS
from support.worker_rig import WAIT_S, Rig, attempt_id

RELEASE = threading.Event()


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    RELEASE.clear()
    rig = await Rig.open(nats_url)
    yield rig
    RELEASE.set()
    await rig.close()


# ---- functions --------------------------------------------------------------------------------


def held(given: Any) -> str:
    """Take a thread until it is released."""
    RELEASE.wait(120)
    return "late"


def well(given: Any) -> str:
    return "well"


def endless() -> Iterator[int]:
    while True:
        yield 1


class Iterates:
    def __iter__(self) -> Iterator[int]:
        return endless()


class Exits:
    def __iter__(self) -> Iterator[int]:
        raise SystemExit(1)


class Disguised:
    @property
    def __class__(self) -> Any:
        raise KeyboardInterrupt


class Endless(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        return ((n, n) for n in endless())


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def circle() -> Any:
    value: list[Any] = []
    value += [value] * 1000
    return value


@dataclass
class Holds:
    what: Any


class Model(BaseModel):
    what: Any


class Pair(NamedTuple):
    what: Any


class Rows(list):  # type: ignore[type-arg]
    pass


class Row(dict):  # type: ignore[type-arg]
    pass


class Choice(Enum):
    ENDLESS = endless()


MIB = "x" * 1024 * 1024
GIVEN = {
    "generator in a dataclass": lambda: [Holds(Holds(endless()))],
    "generator in a model": lambda: Model(what=[Model(what=endless())]),
    "generator in a named tuple": lambda: Pair(endless()),
    "generator in a kind of list": lambda: Rows([endless()]),
    "generator in a kind of dict": lambda: Row(a=endless()),
    "generator in a set": lambda: {endless()},
    "generator as a choice": lambda: Choice.ENDLESS,
    "one text many times": lambda: [MIB] * 2_000,
    "one key many times": lambda: [{MIB: 1}] * 2_000,
    "one value of bytes many times": lambda: [MIB.encode()] * 2_000,
    "generator": endless,
    "generator inside": lambda: {"a": [1, {"b": endless()}]},
    "endless iterable": Iterates,
    "exits when it is read": Exits,
    "disguised": Disguised,
    "endless dict": lambda: {"a": Endless(), "b": object()},
    "deep": lambda: deep(100_000),
    "circle": circle,
    "object": object,
    "large": lambda: "x" * 100_000_000,
    "class": lambda: Iterates,
    "bytes": lambda: b"\xff\xfe",
    "huge integer": lambda: 10**100_000,
}
RAISED = {
    "SystemExit": lambda: SystemExit(1),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "StopIteration": lambda: StopIteration(1),
    "StopAsyncIteration": StopAsyncIteration,
    "CancelledError": asyncio.CancelledError,
    "BaseException": lambda: BaseException("x"),
    "long": lambda: ValueError("x" * 100_000_000),
    "unstorable": lambda: ValueError("a\x00b\ud800"),
    "group": lambda: BaseExceptionGroup("g", [SystemExit(1)]),
    "exit": lambda: sys.exit("bye"),
}


def give_in_thread(name: str) -> Any:
    return GIVEN[name]()


async def give(name: str) -> Any:
    return GIVEN[name]()


def fail_in_thread(name: str) -> Any:
    raise RAISED[name]()


async def fail(name: str) -> Any:
    raise RAISED[name]()


@pytest.mark.parametrize(
    ("function", "names"),
    [("give", GIVEN), ("give_in_thread", GIVEN), ("fail", RAISED), ("fail_in_thread", RAISED)],
)
async def test_what_is_hostile_costs_its_own_step_an_error(
    rig: Rig, function: str, names: dict[str, Any]
) -> None:
    async with rig.worker(modules=[__name__], slots=4):
        hostile = [
            await rig.send(input=name, config={"handler": f"{__name__}:{function}"})
            for name in names
        ]
        for step, name in zip(hostile, names, strict=True):
            error = (await rig.result(step)).error
            if name == "endless dict":  # its own items are read, which are none
                continue
            assert error is not None, name
            assert error.code in ("handler_failed", "output_not_json", "output_too_large"), name
            assert len(error.model_dump_json()) < 20_000, name
        others = [await rig.send(config={"handler": f"{__name__}:well"}) for _ in range(8)]
        for step in others:
            assert (await rig.result(step)).output == "well"
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)


# ---- what a function does to its task and its process -----------------------------------------

SEEN: ContextVar[str] = ContextVar("SEEN", default="nothing")


class Unordered(str):
    __slots__ = ()

    def __lt__(self, other: object) -> bool:
        raise SystemExit(1)


async def input_no_json(given: Any) -> str:
    given["itself"] = given
    return "done"


async def input_exits(given: Any) -> str:
    given[Unordered("b")] = given["a"] = 1
    return "done"


async def cancels_itself(given: Any) -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return "done" * 200_000


async def cancelled_later(given: Any) -> str:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for delay_s in (0.0, 0.001, 0.01):
        loop.call_later(delay_s, task.cancel)
    return "done" * 200_000


@pytest.mark.parametrize(
    "function", ["input_no_json", "input_exits", "cancels_itself", "cancelled_later"]
)
async def test_a_result_leaves_whatever_its_function_did_to_its_input_and_its_task(
    rig: Rig, function: str, tmp_path: Path
) -> None:
    async with rig.worker(modules=[__name__], slots=2, blobs=FileBlobs(tmp_path)):
        steps = [await rig.send(config={"handler": f"{__name__}:{function}"}) for _ in range(4)]
        for step in steps:
            result = await rig.result(step)
            assert result.error is None
            assert result.input_digest == ids.input_digest(step.input)


async def spoils_its_context(given: Any) -> str:
    SEEN.set("another's")
    decimal.getcontext().prec = 1
    await asyncio.sleep(0.05)
    return "done"


async def looks(given: Any) -> list[Any]:
    return [SEEN.get(), decimal.getcontext().prec]


async def test_what_a_function_puts_into_its_context_is_gone_with_it(rig: Rig) -> None:
    decimal.getcontext()  # there is one that all tasks share, as in a worker that counts money
    async with rig.worker(modules=[__name__], slots=1):
        spoiling = await rig.send(config={"handler": f"{__name__}:spoils_its_context"})
        looking = [  # which wait in the worker until the slot is free
            await rig.send(config={"handler": f"{__name__}:looks"}, lane=lane)
            for lane in ("urgent", "normal", "batch")
        ]
        assert (await rig.result(spoiling)).output == "done"
        for step in looking:
            assert (await rig.result(step)).output == ["nothing", 28]
    assert decimal.getcontext().prec == 28


# ---- threads that do not end ------------------------------------------------------------------


async def test_slots_of_threads_that_do_not_end_are_not_announced_and_steps_go_to_others(
    rig: Rig,
) -> None:
    announced: dict[str, int] = {}
    changed = asyncio.Event()

    async def hear(message: Msg) -> None:
        heard = WorkerAnnounced.model_validate_json(message.data)
        announced[heard.worker] = heard.slots.get("python", 0)
        changed.set()

    async def until(worker: str, slots: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while announced.get(worker) != slots:
                changed.clear()
                await changed.wait()

    await rig.bus.subscribe(subjects.WORKER_ANNOUNCED, hear)
    reports: dict[str, tuple[bool, str]] = {}

    def report(component: str, ok: bool, detail: str) -> None:
        reports[component] = (ok, detail)

    async with rig.worker(
        modules=[__name__], slots=4, name="first", ack_wait_s=1.0, report=report, overrun_s=0.2
    ) as first:
        stuck = [
            await rig.send(config={"handler": f"{__name__}:held"}, timeout_ms=50) for _ in range(4)
        ]
        for step in stuck:
            error = (await rig.result(step)).error
            assert error is not None
            assert error.code == "attempt_timeout"
        await until("first", 0)
        assert reports["python slots"] == (
            False,
            "4 of 4 slots are held by functions that did not end",
        )
        async with asyncio.timeout(WAIT_S):
            await first.overrun.wait()
        async with rig.worker(modules=[__name__], slots=4, name="second"):
            after = [await rig.send(config={"handler": f"{__name__}:well"}) for _ in range(20)]
            for step in after:
                result = await rig.result(step)
                assert (result.output, result.worker) == ("well", "second")
        RELEASE.set()
        await until("first", 4)
        assert reports["python slots"] == (True, "")
        again = await rig.send(config={"handler": f"{__name__}:well"})
        assert (await rig.result(again)).worker == "first"


# ---- processes --------------------------------------------------------------------------------


async def start_process(
    nats_url: str, folder: Path, settings: str, name: str
) -> asyncio.subprocess.Process:
    config = folder / f"{name}.yaml"
    config.write_text(settings)
    environment = os.environ | {
        "NATS_URL": nats_url,
        "HOCKET_DATA_DIR": str(folder),
        "HOCKET_CONFIG": str(config),
        "PYTHONPATH": HANDLERS,
    }
    command = ("-m", "hocket.workers", "--types", "python", "--handlers", "worker_handlers")
    with (folder / f"{name}.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable, *command, env=environment, stdout=log, stderr=log
        )


@pytest.mark.parametrize("function", ["block_in_first_delivery", "die_in_first_delivery"])
async def test_a_worker_that_is_blocked_or_dies_leaves_its_step_to_another(
    rig: Rig, tmp_path: Path, function: str
) -> None:
    settings = "workers: {ack_wait_s: 1, blocked_s: 1.5}"
    first = await start_process(rig.nats_url, tmp_path, settings, "first")
    step = await rig.send(config={"handler": f"worker_handlers:{function}"})
    async with asyncio.timeout(60):
        assert await first.wait() != 0
    if function.startswith("block"):
        assert f"in {function}" in (tmp_path / "first.log").read_text()
    assert not rig.results[attempt_id(step)]
    patient = "workers: {ack_wait_s: 1}"  # a busy machine may stop it for longer than 1.5 s
    second = await start_process(rig.nats_url, tmp_path, patient, "second")
    try:
        output = (await rig.result(step)).output
        assert (
            output["delivery"] >= 2
        )  # one may have been sent to the first when it was dead already
    finally:
        second.send_signal(signal.SIGTERM)
        assert await second.wait() == 0


async def test_a_worker_whose_slots_are_held_drains_and_ends(rig: Rig, tmp_path: Path) -> None:
    settings = (
        "{workers: {ack_wait_s: 1, overrun_s: 0.1, drain_s: 0},"
        " node_types: {python: {concurrency: 2}}}"
    )
    worker = await start_process(rig.nats_url, tmp_path, settings, "worker")
    steps = [
        await rig.send(config={"handler": "worker_handlers:never_end"}, timeout_ms=100)
        for _ in range(2)
    ]
    for step in steps:
        assert (await rig.result(step)).error is not None
    async with asyncio.timeout(60):
        assert await worker.wait() == 1
    assert "worker_overrun" in (tmp_path / "worker.log").read_text()


async def test_a_forged_step_does_not_take_the_place_of_the_real_one(rig: Rig) -> None:
    async with rig.worker(modules=[__name__], slots=2):
        forged = await rig.send(config={"handler": f"{__name__}:held"}, capability="guessed")
        real = forged.model_copy(
            update={"config": {"handler": f"{__name__}:well"}, "capability": "c" * 32}
        )
        body = real.model_dump_json().encode()
        await rig.bus.publish(subjects.step("python", "normal"), body, msg_id="real")
        result = await rig.result(real)
        assert (result.output, result.capability) == ("well", real.capability)
