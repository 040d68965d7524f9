"""The usage journal: what is kept and not settled is found by whoever comes after a dead gateway."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from hocket.gateway.accounting import usage_journal
from hocket.gateway.accounting.journal_recovery import JournalRecovery
from hocket.gateway.accounting.usage_journal import SUFFIX, LeftJournal, UsageJournal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[UsageJournal]:
    journal = UsageJournal.create(tmp_path)
    yield journal
    journal.close()


def path_in(folder: Path) -> Path:
    (path,) = folder.glob(f"*{SUFFIX}")
    return path


def left_in(folder: Path) -> list[bytes]:
    """Return what another process would find, were the journal's own dead: read from a copy."""
    copy = folder / "copy"
    copy.write_bytes(path_in(folder).read_bytes())
    left = LeftJournal.take(copy)
    assert left is not None
    records = list(left.unsettled()[0])
    left.let_go()
    return records


def kept(journal: UsageJournal, record: bytes) -> int:
    at = journal.keep(record)
    assert at is not None
    return at


def test_what_is_kept_is_found_in_its_order(journal: UsageJournal, tmp_path: Path) -> None:
    for number in range(3):
        kept(journal, b"record %d" % number)
    assert left_in(tmp_path) == [b"record 0", b"record 1", b"record 2"]


def test_what_is_settled_is_not_found(journal: UsageJournal, tmp_path: Path) -> None:
    places = [kept(journal, b"record %d" % number) for number in range(4)]
    journal.settle(places[0])
    journal.settle(places[2])
    assert (left_in(tmp_path), journal.unsettled) == ([b"record 1", b"record 3"], 2)


def test_nothing_of_an_earlier_round_is_found(journal: UsageJournal, tmp_path: Path) -> None:
    for _ in range(3):
        places = [kept(journal, b"x" * size) for size in (90, 10, 40)]
        for place in places:
            journal.settle(place)
    kept(journal, b"new")
    assert left_in(tmp_path) == [b"new"]


def test_a_journal_of_a_living_gateway_is_not_taken(journal: UsageJournal, tmp_path: Path) -> None:
    assert LeftJournal.take(path_in(tmp_path)) is None


def test_a_full_journal_keeps_no_more_until_a_segment_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_journal, "SEGMENT_BYTES", 100)
    monkeypatch.setattr(usage_journal, "_BEGINS", (16, 116))
    monkeypatch.setattr(usage_journal, "_FILE_BYTES", 216)
    journal = UsageJournal.create(tmp_path)
    first, second = (kept(journal, bytes([65 + number]) * 70) for number in range(2))
    assert journal.keep(b"C" * 70) is None
    journal.settle(first)
    kept(journal, b"D" * 70)
    assert sorted(left_in(tmp_path)) == [b"B" * 70, b"D" * 70]
    journal.settle(second)
    assert journal.keep(b"E" * 101) is None
    journal.close()


def test_a_record_that_was_half_written_is_not_found(journal: UsageJournal, tmp_path: Path) -> None:
    kept(journal, b"whole")
    half = kept(journal, b"half of it")
    file = os.open(path_in(tmp_path), os.O_RDWR)
    os.pwrite(file, b"?", half + 12)
    os.close(file)
    assert left_in(tmp_path) == [b"whole"]


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        (b"", True),
        (bytes(5_000), True),
        (b"hocket usage 1\n\0", False),
        (b"something else" * 300_000, False),
    ],
)
def test_what_is_no_journal_has_no_records(tmp_path: Path, content: bytes, whole: bool) -> None:
    path = tmp_path / f"other{SUFFIX}"
    path.write_bytes(content)
    left = LeftJournal.take(path)
    assert left is not None
    records, read_whole = left.unsettled()
    assert (list(records), read_whole) == ([], whole)
    left.let_go()


class Books:
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    async def book_lines(self, lines: Sequence[bytes]) -> None:
        self.lines += lines


def dead(folder: Path, name: str, *records: bytes) -> Path:
    """Return the journal of a dead gateway."""
    journal = UsageJournal.create(folder)
    for record in records:
        kept(journal, record)
    journal.close()
    (path,) = folder.glob(f"{os.getpid()}-*{SUFFIX}")
    return path.rename(folder / f"{name}{SUFFIX}")


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def of_a_coming_version(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"usage 1", b"usage 2", 1))


def cut(path: Path) -> None:
    os.truncate(path, 100_000)


def scratched(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"second", b"sec?nd"))


def of_endless_length(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(b"second") - 9
    content[at : at + 4] = b"\xff" * 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "booked"),
    [
        (of_a_coming_version, []),
        (cut, [b"first", b"second", b"third"]),
        (scratched, [b"first", b"third"]),
        (of_endless_length, [b"first"]),
    ],
)
async def test_a_journal_that_cannot_be_read_whole_is_kept_aside(
    tmp_path: Path, damage: Callable[[Path], None], booked: list[bytes]
) -> None:
    path = dead(tmp_path, "a", b"first", b"second", b"third")
    damage(path)
    content = path.read_bytes()
    dead(tmp_path, "b", b"other")
    books = Books()
    assert await JournalRecovery(tmp_path, books).look() == len(booked) + 1  # type: ignore[arg-type]
    assert books.lines == [*booked, b"other"]
    assert files_in(tmp_path) == {f"a{SUFFIX}.unreadable": content}


async def test_what_is_no_file_or_not_to_be_sent_keeps_no_other_journal_from_being_booked(
    tmp_path: Path,
) -> None:
    for number in range(70):
        (tmp_path / f"a{number}{SUFFIX}").mkdir()
    os.mkfifo(tmp_path / f"b{SUFFIX}")
    (tmp_path / f"c{SUFFIX}").symlink_to(f"c{SUFFIX}")
    dead(tmp_path, "d", b"x" * 900_000, b"beside it")
    dead(tmp_path, "e", b"other")
    books = Books()
    assert await JournalRecovery(tmp_path, books).look() == 2  # type: ignore[arg-type]
    assert books.lines == [b"beside it", b"other"]
    assert (tmp_path / f"d{SUFFIX}.unreadable").exists()


def test_a_journal_goes_with_its_gateway_only_where_all_is_settled(tmp_path: Path) -> None:
    settled, unsettled = (UsageJournal.create(tmp_path) for _ in range(2))
    settled.settle(kept(settled, b"stored"))
    kept(unsettled, b"not stored")
    settled.close()
    unsettled.close()
    left = LeftJournal.take(path_in(tmp_path))
    assert left is not None
    assert left.unsettled() == ([b"not stored"], True)
    left.remove()
    left.let_go()
    assert list(tmp_path.iterdir()) == []
