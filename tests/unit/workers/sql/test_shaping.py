"""Answers become JSON values exactly, and large ones in a thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.workers.sql import postgres, runner, shaping, wire
from hocket.workers.sql.answers import Answer, JsonText
from hocket.workers.sql.runner import QueryResult, run_query
from hocket.workers.sql.targets import Target, TargetSettings
from hocket.workers.sql.wire import BoundedWire, TooManyValues, ValueCount


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Decimal("1E-7"), "0.0000001"),
        (Decimal("1E-30"), "0." + "0" * 29 + "1"),
        (Decimal("42.50"), "42.50"),
        (Decimal("-1.5E+3"), -1500),
        (Decimal("1E+20"), "1" + "0" * 20),
        (Decimal("NaN"), "NaN"),
        (Decimal("-Infinity"), "-Infinity"),
        ((12 * 170_000_000, 0, 0), "P2040000000M0DT0.000000S"),
        ((-12 * 170_000_000, 1, -1), "P-2040000000M1DT-0.000001S"),
        ((2**31 - 1, 2**31 - 1, 2**63 - 1), "infinity"),
        ((-(2**31), -(2**31), -(2**63)), "-infinity"),
        ((1, 1, 1_500_000), 31 * 86_400 + 1.5),
        (JsonText('[9007199254740992, {"n": -9007199254740993}, 1.50, 1e400, null]'),
         [9007199254740992, {"n": "-9007199254740993"}, 1.5, "1e400", None]),
        (JsonText("9007199254740993"), "9007199254740993"),
        ([JsonText("[9007199254740993]"), JsonText("2")], [["9007199254740993"], 2]),
    ],
)  # fmt: skip
def test_a_value_is_shown_exactly(value: Any, shown: Any) -> None:
    value = postgres._interval(value) if isinstance(value, tuple) else value
    assert _shaped(value)[1] == ((shown,),)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (JsonText("9007199254740993"), "integer"),
        (JsonText('"x"'), "text"),
        (JsonText(" [1]"), "json"),
        (JsonText("{}"), "json"),
        ([JsonText("1")], "json"),
    ],
)
def test_a_type_is_that_of_the_value_that_was_read(value: Any, name: str) -> None:
    assert _shaped(value)[0] == (name,)


def test_a_generated_fraction_is_a_number_exactly_if_that_does_not_round_it() -> None:
    random = Random(4)
    kinds = set()
    for _ in range(20_000):
        digits = "".join(random.choices("0123456789", k=random.randint(1, 18)))
        written = f"{random.choice(('', '-'))}{random.choice(('0', '7', digits))}.{digits}"
        written += random.choice(("", "", f"e{random.randint(-330, 330)}", "E+5"))
        value = float(written)
        is_exact = isfinite(value) and Decimal(repr(value)) == Decimal(written)
        assert repr(shaping._fraction(written)) == repr(value if is_exact else written)
        kinds.add(is_exact)
    assert len(kinds) == 2


async def test_only_a_large_answer_is_shaped_in_a_thread_and_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def shaped(answer: Answer) -> Any:
        threads.append(threading.current_thread())
        return shaping.shaped(answer)

    monkeypatch.setattr(runner, "shaped", shaped)
    target = _target(tmp_path)

    async def asked() -> QueryResult:
        return await run_query(
            target, "SELECT n, v FROM t ORDER BY n", {}, timeout_ms=60_000, max_rows=500
        )

    small = await asked()
    monkeypatch.setattr(runner, "MAX_INLINE_SIZE", 100)
    large = await asked()
    await target.close()
    assert (small.types, small.rows) == (large.types, large.rows)
    assert threads[0] is threading.main_thread()
    assert threads[1].name.startswith("sql-shape")


def test_values_are_counted_by_piece_and_by_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_ANSWER_VALUES", 10)
    monkeypatch.setattr(wire, "MAX_PIECE_VALUES", 4)
    values = ValueCount()
    read = values.counted(int)
    assert _read(values, read, [4, 4, 2]) == 10
    assert _read(values, read, [5]) == 4
    assert _read(values, read, [4, 4, 4]) == 10
    assert _read(values, values.counted(str, is_dear=True), [1]) == 0


async def test_a_large_piece_is_read_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PIECE_BYTES", 3)
    monkeypatch.setattr(wire, "MAX_PIECE_VALUES", 3)
    values = ValueCount()
    read = values.counted(int)
    pieces: list[bytes] = []

    def received(data: bytes) -> None:
        pieces.append(data)
        for digit in data.decode():
            read(digit)

    transport = SimpleNamespace(set_protocol=lambda _protocol: None, abort=lambda: None)
    connection = SimpleNamespace(
        _transport=transport, _protocol=SimpleNamespace(data_received=received)
    )
    bounded = BoundedWire(cast(Any, connection), values)
    bounded.begin()
    bounded.data_received(b"1234567")
    assert pieces == [b"123", b"456", b"7"]
    await asyncio.sleep(0)


def _read(values: ValueCount, read: Callable[[Any], Any], pieces: list[int]) -> int:
    """Return how many values of an answer in such pieces are read before there are too many."""
    values.begin()
    count = 0
    try:
        for size in pieces:
            values.begin_piece()
            for _ in range(size):
                read("1")
                count += 1
    except TooManyValues:
        pass
    return count


def _shaped(value: Any) -> Any:
    return shaping.shaped(Answer(("v",), [(value,)], 1))


def _target(folder: Path) -> Target:
    file = folder / "shop.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE t (n, v)")
    rows = [(2**60 + n, None if n < 3 else 0.5 + n if n % 2 else f"t{n}") for n in range(100)]
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    connection.commit()
    connection.close()
    return Target("shop", TargetSettings(url=f"sqlite:///{file}", tables=("main.t",)))
