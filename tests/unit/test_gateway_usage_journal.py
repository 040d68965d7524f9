"""The usage journal: what is kept and not settled is found by whoever comes after a dead gateway."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.gateway.accounting import usage_journal
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
    records = list(left.unsettled())
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


@pytest.mark.parametrize("content", [b"", b"hocket usage 1\n\0", b"something else" * 300_000])
def test_what_is_no_journal_has_no_records(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / f"other{SUFFIX}"
    path.write_bytes(content)
    left = LeftJournal.take(path)
    assert left is not None
    assert left.unsettled() == ()
    left.let_go()


def test_a_journal_goes_with_its_gateway_only_where_all_is_settled(tmp_path: Path) -> None:
    settled, unsettled = (UsageJournal.create(tmp_path) for _ in range(2))
    settled.settle(kept(settled, b"stored"))
    kept(unsettled, b"not stored")
    settled.close()
    unsettled.close()
    left = LeftJournal.take(path_in(tmp_path))
    assert left is not None
    assert list(left.unsettled()) == [b"not stored"]
    left.remove()
    left.let_go()
    assert list(tmp_path.iterdir()) == []
