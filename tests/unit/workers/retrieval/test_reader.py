"""A document that means harm costs itself, and nothing else."""

import asyncio

import pytest

from hocket.workers.retrieval.chunking import DEFAULT_SIZES
from hocket.workers.retrieval.errors import DocumentUnreadable
from hocket.workers.retrieval.extraction import MAX_HEADING_CHARS
from hocket.workers.retrieval.reader import Reader

HOSTILE = {
    "nested headings": ("a.html", b"<h1>" * 20_000 + b"x" * 500_000),
    "a declaration that is none": ("a.html", b"<![foo bar>text"),
    "headings without bodies": ("a.md", b"# a\n" * 400_000),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_it_is_refused_and_the_next_one_is_read(name: str) -> None:
    source, data = HOSTILE[name]
    reader = Reader(timeout_s=2)
    try:
        with pytest.raises(DocumentUnreadable):
            await reader.cut(data, source, DEFAULT_SIZES)
    finally:
        reader.close()
    patient = Reader()
    try:
        document, pieces = await patient.cut(b"# A\n\nbody", "b.md", DEFAULT_SIZES)
        assert document.title == "A"
        assert [piece.text for piece in pieces] == ["# A\n\nbody"]
        document, pieces = await patient.cut(
            b"# " + b"a" * 100_000 + b"\n\nb", "c.md", DEFAULT_SIZES
        )
        assert len(document.title) == MAX_HEADING_CHARS
        assert max(len(part) for part in pieces[0].heading_path) == MAX_HEADING_CHARS
    finally:
        patient.close()


async def test_a_long_text_is_cut_in_linear_time() -> None:
    reader = Reader(timeout_s=100)
    try:
        async with asyncio.timeout(100):
            _, pieces = await reader.cut(b"word " * 1_000_000, "a.txt", DEFAULT_SIZES)
    finally:
        reader.close()
    assert len(pieces) > 4_000
