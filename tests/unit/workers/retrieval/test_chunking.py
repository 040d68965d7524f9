"""Extraction and chunking: what text is read from a file, and where chunks may be cut."""

import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from hocket.workers.retrieval.chunking import Sizes, chunks
from hocket.workers.retrieval.errors import DocumentUnreadable
from hocket.workers.retrieval.extraction import Extracted, Section, extract

GUIDE = b"""---
title: "The guide"
---
# Guide

Opening words.

## Setup

```sh
# not a heading
```

Run it.

Limits
------

Ten at most.
"""


def test_markdown_headings_give_sections_and_code_does_not() -> None:
    document = extract(GUIDE, "docs/guide.md")
    assert document.title == "The guide"
    assert [s.heading_path for s in document.sections] == [
        ("Guide",),
        ("Guide", "Setup"),
        ("Guide", "Limits"),
    ]
    assert document.text.startswith("# Guide")
    assert document.text[document.sections[2].start :].startswith("Limits\n---")


def test_markdown_without_front_matter_is_titled_by_its_first_heading() -> None:
    assert extract(b"# Osmium\r\n\r\nHard metal.\r\n", "os.md").title == "Osmium"
    assert extract(b"no heading", "folder/plain-name.txt").title == "plain-name"


def test_html_gives_what_a_reader_sees_with_headings_as_sections() -> None:
    page = b"""<html><head><title>Metals</title><style>p {}</style></head><body><!-- no -->
      <h1>Metals</h1><p>Iron  and\n <b>steel</b>.</p><script>alert(1)</script>
      <h2>Table</h2><table><tr><th>name</th><th>K</th></tr><tr><td>Iron</td><td>1811</td></tr></table>
      <ul><li>one</li><li>two</li></ul><pre>a\n  b</pre></body></html>"""
    document = extract(page, "metals.html")
    assert document.title == "Metals"
    assert document.text == (
        "Metals\n\nIron and steel.\n\nTable\n\nname | K\nIron | 1811\n\none\ntwo\n\na\n  b"
    )
    assert [(document.text[s.start :][:6], s.heading_path) for s in document.sections] == [
        ("Metals", ("Metals",)),
        ("Table\n", ("Metals", "Table")),
    ]


def test_deeply_nested_html_is_read() -> None:
    depth = 5_000
    page = b"<div>" * depth + b"inside" + b"</div>" * depth
    assert extract(page, "deep.html").text == "inside"


def test_pdf_pages_become_sections() -> None:
    document = extract(_pdf("First page about iron.", "Second page about gold."), "metals.pdf")
    assert document.text == "First page about iron.\n\nSecond page about gold."
    assert [s.heading_path for s in document.sections] == [("page 1",), ("page 2",)]
    assert document.text[document.sections[1].start :].startswith("Second")


@pytest.mark.parametrize(
    ("data", "source", "reason"),
    [
        (b"\xff\xfe\x00broken", "a.md", "not UTF-8"),
        (b"not a pdf", "a.pdf", "not a readable PDF"),
        (b"   \n", "a.txt", "no text"),
        (b"data", "a.parquet", "kind"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(
    data: bytes, source: str, reason: str
) -> None:
    with pytest.raises(DocumentUnreadable, match=reason):
        extract(data, source)


def test_characters_that_postgres_cannot_store_become_blanks() -> None:
    assert extract(b"a\x00b", "a.txt").text == "a b"


@given(
    text=st.text(alphabet="ab. \n\u00e9\U0001f600", min_size=1, max_size=800).filter(str.strip),
    cuts=st.lists(st.integers(1, 700), max_size=5, unique=True),
    max_chars=st.integers(1, 90),
    data=st.data(),
)
def test_chunks_are_bounded_cover_the_text_and_are_where_they_say(
    text: str, cuts: list[int], max_chars: int, data: st.DataObject
) -> None:
    sections = [Section(0, ()), *(Section(c, (f"s{c}",)) for c in sorted(cuts) if c < len(text))]
    sizes = Sizes(
        max_chars, data.draw(st.integers(0, max_chars // 2)), data.draw(st.integers(0, max_chars))
    )
    document = Extracted(text, "t", "text/plain", tuple(sections))
    pieces = chunks(document, "t.txt", sizes)
    covered = set()
    for piece in pieces:
        assert text[piece.start : piece.end] == piece.text
        assert 0 < len(piece.text) <= max_chars
        assert piece.text == piece.text.strip()
        covered.update(range(piece.start, piece.end))
    assert all(char.isspace() for place, char in enumerate(text) if place not in covered)
    assert [p.start for p in pieces] == sorted({p.start for p in pieces})
    assert len({p.id for p in pieces}) == len(pieces)
    assert pieces == chunks(document, "t.txt", sizes)


def test_a_long_section_is_cut_at_sentences_and_overlaps() -> None:
    text = " ".join(f"Sentence number {n} stands here." for n in range(40))
    document = Extracted(text, "t", "text/plain", (Section(0, ()),))
    pieces = chunks(document, "t.txt", Sizes(300, 60, 0))
    assert all(p.text.startswith("Sentence") and p.text.endswith(".") for p in pieces)
    assert all(0 < a.end - b.start <= 60 for a, b in itertools.pairwise(pieces))


def test_a_heading_without_a_body_goes_with_what_follows() -> None:
    body = "A sentence about setup that is long enough to stand alone. " * 10
    document = extract(f"# Guide\n\n## Setup\n\n{body}".encode(), "g.md")
    first = chunks(document, "g.md")[0]
    assert first.text.startswith("# Guide")
    assert first.heading_path == ("Guide", "Setup")


def _pdf(*pages: str) -> bytes:
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in pages:
        page = writer.add_blank_page(300, 300)
        content = DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(content)
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): writer._add_object(font)})}
        )
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()
