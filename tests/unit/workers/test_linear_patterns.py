"""Texts of others that would make a backtracking pattern take quadratic time: read in linear time."""

import time
from collections.abc import Callable

import pytest

from hocket.schemas.messages import CallReply
from hocket.workers.errors import ModelReplyInvalid
from hocket.workers.extractive.drafts import MARKER, _sentence, _spans
from hocket.workers.extractive.figures import figures
from hocket.workers.extractive.questions import parts
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
        (lambda text: extract(text.encode(), "a.md"), "# a" + " #" * (N // 2) + "x\n"),
        (lambda text: extract(text.encode(), "a.md"), "# a" + " " * N + "b\n"),
    ],
)
def test_a_hostile_text_is_read_in_linear_time(read: Callable[[str], object], text: str) -> None:
    began = time.process_time()
    read(text)
    assert time.process_time() - began < MOST_CPU_S
