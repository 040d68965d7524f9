"""Texts of others that would make a backtracking pattern take quadratic time: read in linear time."""

import time
from collections.abc import Callable

import pytest

from hocket.schemas.messages import CallReply, Document
from hocket.workers.errors import ModelReplyInvalid
from hocket.workers.extractive.drafts import MARKER, _sentence, _spans
from hocket.workers.extractive.figures import figures
from hocket.workers.extractive.questions import parts
from hocket.workers.extractive.verification import verify
from hocket.workers.extractive.words import sentences
from hocket.workers.nodes.prompts.structured import data_of
from hocket.workers.nodes.verify import tampered
from hocket.workers.retrieval.extraction import extract

N = 200_000
MOST_CPU_S = 5.0
"""Linear: well under one; quadratic: minutes."""


def _reply(text: str) -> None:
    with pytest.raises(ModelReplyInvalid):
        data_of(CallReply(call_id="c", model="m", text=text), {})


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (tampered, "[" * N),
        (_reply, "```\n" + "\n" * N + "x"),
        (_reply, "```json" + " " * N + "x"),
        (_reply, " " * N + "```"),
        (lambda text: list(sentences(text)), "." * N + "x"),
        (lambda text: list(sentences(text)), "dr. " * (N // 4)),
        (lambda text: list(sentences(text)), "a" * N + " . x"),
        (lambda text: list(figures(text)), "a" * N),
        (lambda text: list(figures(text)), "1" + ",111" * (N // 4) + "1"),
        (parts, "a" + " " * N + "b"),
        (parts, "which is most " + "!" * N + "\nx"),
        (_sentence, "a" + " " * N + "b"),
        (lambda text: list(_spans(text)), "[P1]" * (N // 4)),
        (lambda text: MARKER.findall(text), "[P1" + " " * N),
        (lambda text: extract(text.encode(), "a.md"), "---\ntitle: a" + " " * N + "b\n---\ntext\n"),
        (lambda text: extract(text.encode(), "a.md"), "---\na" + " :a" * (N // 3) + "\n---\n"),
        (lambda text: extract(text.encode(), "a.md"), "---\n" + "a: b\n" * (N // 5) + "text"),
        (lambda text: extract(text.encode(), "a.md"), "---\n" + "\n" * N + "text"),
        (
            lambda text: extract(text.encode(), "a.html"),
            "<head>" + "<title>a</title>" * 5_000 + "text",
        ),
        (lambda text: extract(text.encode(), "a.md"), "# a" + " #" * (N // 2) + "x\n"),
        (lambda text: extract(text.encode(), "a.md"), "# a" + " " * N + "b\n"),
    ],
)
def test_a_hostile_text_is_read_in_linear_time(read: Callable[[str], object], text: str) -> None:
    began = time.process_time()
    read(text)
    assert time.process_time() - began < MOST_CPU_S


COLUMNS = tuple("abcdefgh")
TEXTS = tuple(tuple(f"{column}: {row} of {row + 0.5}" for column in COLUMNS) for row in range(200))
NUMBERS = tuple(tuple(row * 1_000 + place for place in range(8)) for row in range(200))
TABLES = [
    Document(id="S1", kind="table", columns=COLUMNS, rows=TEXTS),
    Document(id="S2", kind="table", columns=COLUMNS, rows=NUMBERS),
]
FIGURES = " ".join(f"{figure}.77" for figure in range(5_000))
LETTERS = "a" * (N // 2)


@pytest.mark.parametrize(
    "draft",
    [
        f"{FIGURES} [S1, S2]",
        f"{FIGURES} [P1]",
        f"b: {FIGURES} [S2.r1]",
        f"{TEXTS[3][0]} \u2013 {FIGURES.replace(' ', '; ')} [S1.r4]",
        "Some 5.77 are there [S1, S2, P1]. " * 2_000,
        f'"a" {FIGURES.replace(" ", chr(34) + "a" + chr(34))} [P1]',
        f'It says "{LETTERS[: N // 4]}" [P1].',
        f'It says "{LETTERS[: N // 4]} c" [P1].',
        'It says "a a" [P1, S1]. ' * 2_000,
    ],
)
def test_a_hostile_draft_is_checked_in_linear_time(draft: str) -> None:
    passages = [Document(id="P1", title="t", text=f"{LETTERS} {LETTERS}")]
    began = time.process_time()
    verify(draft, passages, TABLES)
    assert time.process_time() - began < MOST_CPU_S
