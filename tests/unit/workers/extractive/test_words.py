"""Words, sentences and the parts of a question."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.workers.extractive.questions import parts
from hocket.workers.extractive.words import sentences, stem


@pytest.mark.parametrize(
    "same",
    [
        "density densest denser dense",
        "melt melts melting melted",
        "discover discovered discovery discovers",
        "gas gases gaseous",
        "metal metals metallic",
        "abundant abundance",
        "electronegative electronegativity",
        "isolate isolated isolation",
        "treat treating treatment",
        "use used uses using",
        "heavy heaviest heavier",
        "colour color colours",
    ],
)
def test_forms_of_a_word_are_compared_as_equal(same: str) -> None:
    assert len({stem(word) for word in same.split()}) == 1


@pytest.mark.parametrize(
    "different",
    ["element elegant", "gold good", "boil boron", "lead leaf", "mass many"],
)
def test_different_words_stay_different(different: str) -> None:
    assert len({stem(word) for word in different.split()}) == 2


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


def test_initials_and_abbreviations_do_not_end_a_sentence() -> None:
    text = (
        "Found by J.L. Gay-Lussac and D. Rutherford in 1808. Used in the U.S. Navy, e.g. in No. 5."
    )
    assert cut(text) == [
        "Found by J.L. Gay-Lussac and D. Rutherford in 1808.",
        "Used in the U.S. Navy, e.g. in No. 5.",
    ]


def test_headings_and_list_marks_are_no_sentences() -> None:
    text = "# Iron\n\nA metal\nof old.\n\nUses\n----\n\n- Bridges are built.\n- Ships too.\n"
    assert cut(text) == ["A metal\nof old.", "Uses", "Bridges are built.", "Ships too."]


@given(st.text(alphabet="aA1 .!?\n-#\"'(", max_size=200))
def test_sentences_never_overlap_nor_lose_a_letter(text: str) -> None:
    spans = list(sentences(text))
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert all(text[start:end].strip() == text[start:end] != "" for start, end in spans)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is it used for?", ["What is it used for?"]),
        (
            "What is the density of iron, and who discovered it?",
            ["What is the density of iron", "who discovered it?"],
        ),
        ("Compare iron and gold", ["Compare iron and gold"]),
        ("How hot is it? Why; and where is it?", ["How hot is it?", "Why; and where is it?"]),
        ("Iron? Gold? Lead? Tin? Zinc?", ["Iron?", "Gold?", "Lead?", "Tin? Zinc?"]),
    ],
)
def test_questions_are_cut_where_a_new_one_begins(question: str, expected: list[str]) -> None:
    assert [part.text for part in parts(question)] == expected


@pytest.mark.parametrize(
    ("question", "amount"),
    [
        ("the top 5 metals", 5),
        ("Which five elements are the densest?", 5),
        ("the 3 lightest gases", 3),
        ("What happened in 1783?", None),
        ("elements in period 4", None),
        ("one element", None),
        ("the top \N{SUPERSCRIPT TWO} metals", None),
        ("area in km\N{SUPERSCRIPT TWO}, \N{SUPERSCRIPT THREE}?", None),
    ],
)
def test_how_many_are_asked_for(question: str, amount: int | None) -> None:
    assert parts(question)[0].amount == amount
