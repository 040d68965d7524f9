"""What a worker notes of the steps it holds, and what is made of it once the worker ended."""

import os
from pathlib import Path

import pytest

from hocket.workers.runtime.transport.held_steps import ALONE, RUNS, WAITS, Held, HeldSteps

KIND = "kind-" + "a" * 32
OTHER = "kind-" + "b" * 32
ACK = "$JS.ACK.STEPS.step-python-normal.{}.7.1.1763850000000000000.0"


def opened(folder: Path) -> HeldSteps:
    held = HeldSteps(folder)
    held.open()
    assert held.is_open
    return held


def end(held: HeldSteps) -> None:
    """As the kernel does: the file stays, and the lock goes."""
    assert held._map is not None
    held._map.close()
    os.close(held._file)


def test_a_worker_that_ended_leaves_what_it_held_and_only_once(tmp_path: Path) -> None:
    held = opened(tmp_path)
    places = [held.add(ACK.format(n), KIND if n else OTHER) for n in range(4)]
    held.set(places[1], RUNS)
    held.set(places[2], ALONE)
    held.moved(places[2], ACK.format(9))
    held.remove(places[3])
    held.note_kind(KIND, 40, 3)
    held.note_kind(OTHER, 20, 0)
    held.note_kind(OTHER, 0, 0)
    next_one = opened(tmp_path)
    assert not list(next_one.of_ended()), "it lives"
    end(held)
    (left,) = next_one.of_ended()
    assert left.steps == [
        Held(WAITS, OTHER, ACK.format(0)),
        Held(RUNS, KIND, ACK.format(1)),
        Held(ALONE, KIND, ACK.format(9)),
    ]
    assert left.kinds == {KIND: (40, 3)}
    assert not list(next_one.of_ended())
    next_one.close()
    assert not list(tmp_path.iterdir())


def test_a_worker_that_stops_leaves_nothing(tmp_path: Path) -> None:
    held = opened(tmp_path)
    held.set(held.add(ACK.format(1), KIND), RUNS)
    held.close()
    assert held.add(ACK.format(1), KIND) == -1
    assert not list(opened(tmp_path).of_ended())


def test_files_that_are_none_of_a_worker_are_left_alone(tmp_path: Path) -> None:
    reader = opened(tmp_path)
    size = next(tmp_path.glob("*.held")).stat().st_size
    (tmp_path / "1-short.held").write_bytes(b"hocket held steps 1")
    (tmp_path / "2-link.held").symlink_to("/etc/passwd")
    (tmp_path / "3-folder.held").mkdir()
    os.mkfifo(tmp_path / "4-pipe.held")
    (tmp_path / "5-junk.held").write_bytes(os.urandom(size))
    (tmp_path / "6-junk.held").write_bytes(
        b"hocket held steps 1\n".ljust(64) + b"\xff" * (size - 64)
    )
    assert [len(left.steps) + len(left.kinds) for left in reader.of_ended()] == [0]


@pytest.mark.parametrize("blocked", ["file", "full"])
def test_without_a_folder_to_write_to_nothing_is_noted(
    tmp_path: Path, blocked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "workers"
    if blocked == "file":
        folder.write_text("")
    else:

        def full(*_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
    held = HeldSteps(folder)
    held.open()
    assert not held.is_open
    assert held.add(ACK.format(1), KIND) == -1
    held.close()
    assert folder.is_file() or not list(folder.iterdir())
