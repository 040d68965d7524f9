"""Below a threshold of free space nothing new is begun, and a little above it again."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hocket.kit.logs.telemetry import _Output
from hocket.kit.process.limits import disk_space
from hocket.kit.process.limits.disk_space import MIB, DiskLow, DiskSpace

SetFree = Callable[[float], None]


@pytest.fixture
def set_free(monkeypatch: pytest.MonkeyPatch) -> SetFree:
    monkeypatch.setattr(disk_space, "LOOK_EVERY_S", 0.0)

    def set_free(mib: float) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=int(mib * MIB)))

    return set_free


def test_below_the_threshold_it_is_low_until_a_tenth_more_is_free(
    set_free: SetFree, tmp_path: Path
) -> None:
    disk = DiskSpace(tmp_path, min_free_bytes=100 * MIB)
    seen = []
    for free in (101, 99, 101, 109, 111, 101):
        set_free(free)
        seen.append(disk.low)
    assert seen == [False, True, True, True, False, False]


def test_who_wants_to_begin_something_hears_how_much_is_missing_and_when_to_come_back(
    set_free: SetFree, tmp_path: Path
) -> None:
    disk = DiskSpace(tmp_path / "not" / "made", min_free_bytes=100 * MIB)
    set_free(12.5)
    with pytest.raises(DiskLow, match=r"has 12 MiB free, and Hocket reserves 100 MiB") as refused:
        disk.check()
    info = refused.value.info()
    assert info.retryable
    assert info.details["retry_after_ms"] == 5_000
    assert info.retry_at_ms is not None
    assert str(refused.value) == disk.reason


def test_a_disk_that_is_not_watched_is_never_low(set_free: SetFree, tmp_path: Path) -> None:
    set_free(0)
    disk = DiskSpace(tmp_path, min_free_bytes=0)
    disk.check()
    assert not disk.low
    assert disk.reason == ""


def test_a_log_line_that_cannot_be_written_is_counted_and_ends_nothing() -> None:
    class Full:
        def __init__(self) -> None:
            self.lines: list[str] = []
            self.room = False

        def write(self, line: str) -> None:
            if not self.room:
                raise OSError(28, "No space left on device")
            self.lines.append(line)

        def flush(self) -> None:
            return

    file = Full()
    output = _Output(file)  # type: ignore[arg-type]
    output.write("lost\n")
    output.write("lost, too\n")
    file.room = True
    output.write("there\n")
    output.write("again\n")
    assert file.lines == ['{"event": "log_lines_dropped", "count": 2}\nthere\n', "again\n"]


def test_a_log_whose_output_was_closed_raises_nothing() -> None:
    file = io.StringIO()
    file.close()
    _Output(file).write("lost\n")
