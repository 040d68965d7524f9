"""What the verifier refuses, in drafts of ours and of others."""

import re
from decimal import Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hocket.schemas.messages import Document
from hocket.workers.extractive.drafts import Draft, Sentence, read
from hocket.workers.extractive.facts import row_sentence
from hocket.workers.extractive.verification import MAX_CHECKS, Verdict, verify

PASSAGE = Document(
    id="P1",
    title="Gold",
    text='Gold was known in 2600 BC. Only one isotope, "Au-197", is stable; 18.5% is lost.',
)
TABLE = Document(
    id="S1",
    kind="table",
    columns=("element", "property", "value", "unit", "period"),
    rows=(
        ("Gold", "density", "19.32", "g/cm3", 6),
        ("Tungsten", "melting point", Decimal("3695"), "K", 6),
        ("Iron", "share", 0.125, "", 4),
    ),
)


def check(text: str, question: str = "") -> Verdict:
    return verify(text, [PASSAGE], [TABLE], question=question)


@pytest.mark.parametrize(
    "text",
    [
        "Gold has a density of 19.32 g/cm3 [S1.r1].",
        "Gold has a density of about 19 [S1.r1], tungsten melts at 3,695 K [S1.r2].",
        "The densest of them weighs 19.3 [S1].",
        "It was known in 2600 BC [P1]. Some 18.5 % is lost. [P1]",
        'The text says "only one isotope, \u201cAu-197\u201d, is stable" [P1].',
        "Iron makes up 12.5% of it [S1.r3].",
        "Density: 19.32 g/cm3; period: 6 [S1.r1]",
        "Both were compared, gold (19.32) and tungsten (3695) [S1.r1, S1.r2].",
        "Here is what was found:\n1. Gold, known since 2600 BC [P1].\n2. Tungsten at 3695 K [S1.r2].",
    ],
)
def test_what_the_evidence_says_passes(text: str) -> None:
    verdict = check(text)
    assert verdict.ok, verdict.as_json()
    assert verdict.checks


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Gold has a density of 19.33 g/cm3 [S1.r1].", "figure"),
        ("Gold has a density of 19.32 g/cm3 [S1.r2].", "figure"),
        ("Gold has a density of 19.32 g/cm3.", "uncited"),
        ("Gold has a density of 19.32 g/cm3 [S2.r1].", "citation"),
        ("Gold has a density of 19.32 g/cm3 [S1.r4].", "citation"),
        ("Gold is nice [P2].", "citation"),
        ("Gold is nice [S1.r0].", "citation"),
        ("It was known in 2601 BC [P1].", "figure"),
        ("It was known in -2600 [P1].", "figure"),
        ('The text says "only two isotopes are stable" [P1].', "quote"),
        ('The text says "Only one isotope".', "uncited"),
        ("Isotope Au198 is stable [P1].", "figure"),
        ("Density: 6 g/cm3 [S1.r1]", "figure"),
        ("Period: 19.32 [S1.r1]", "figure"),
        ("Tungsten \u2013 density: 19.32 g/cm3; period: 4. [S1.r1]", "figure"),
        ("Iron makes up 13.5% of it [S1.r3].", "figure"),
    ],
)
def test_what_the_evidence_does_not_say_is_refused_by_its_kind(text: str, kind: str) -> None:
    failed = [one for one in check(text).checks if not one.passed]
    assert [one.kind for one in failed if one.kind == kind], failed
    assert all(one.reason for one in failed)


def test_the_figures_of_a_name_keep_their_order() -> None:
    names = Document(id="S1", kind="table", columns=("route",), rows=(("Route 0 3",),))
    assert verify("The road is Route 0 3 [S1.r1].", [], [names]).ok
    assert verify("It is one of the roads with a 3 [S1.r1].", [], [names]).ok
    assert not verify("The road is Route 3 3 [S1.r1].", [], [names]).ok
    assert not verify("The road is Route 3 0 [S1.r1].", [], [names]).ok


def test_figures_of_the_question_may_be_repeated_but_not_claimed() -> None:
    question = "What happened in 1999?"
    assert check("Not in the data: what happened in 1999.", question).ok
    assert not check("Not in the data: what happened in 1998.", question).ok
    assert not check("Gold was found in 1999 [P1].", question).ok


def test_markers_belong_to_the_sentence_they_follow() -> None:
    text = "One stands here. [P1] Another follows [S1.r1][S1.r2]. A third, too."
    assert [(s.text, s.citations) for s in read(text)] == [
        ("One stands here.", ("P1",)),
        ("Another follows.", ("S1.r1", "S1.r2")),
        ("A third, too.", ()),
    ]


def test_a_verdict_as_json_shows_failures_first() -> None:
    shown = check("Known since 2600 BC [P1]. Density 7 [S1.r1].").as_json()
    assert (shown["ok"], shown["failed"]) == (False, 1)
    assert shown["checks"][0]["subject"] == "7"


@pytest.mark.parametrize(
    ("quote", "there"),
    [
        ("17", False),
        ("83", False),
        ("in 1783", True),
        ("(1783)", True),
        ("1783), 17", False),
        ("", False),
    ],
)
def test_a_quote_is_found_as_whole_words(quote: str, there: bool) -> None:
    passage = Document(
        id="P1", title="t", text="Isolated in 1783, they say (1783), 1784 at the latest."
    )
    assert verify(f'It says "{quote}" [P1].', [passage], []).ok is there


def test_a_draft_with_too_many_figures_is_checked_in_part_and_refused() -> None:
    verdict = check(f"Gold: {'19.32 ' * MAX_CHECKS} [S1.r1, P1].")
    assert len(verdict.checks) == MAX_CHECKS + 1
    assert [one.kind for one in verdict.checks if not one.passed] == ["length"]
    assert str(MAX_CHECKS) in verdict.checks[-1].reason


# ---- tampering --------------------------------------------------------------------------------

NAMES = st.text(alphabet="abcdef 0123", min_size=1, max_size=12).map(str.strip).filter(bool)
NUMBERS = st.one_of(
    st.integers(-(10**9), 10**9),
    st.integers(0, 99),
    st.decimals(-(10**6), 10**6, allow_nan=False, places=4),
    st.floats(-1e6, 1e6, allow_nan=False),
)
TEXTS = st.text(alphabet='ab 0123456789,.-%;:[]"\u2013()', max_size=15)
CELLS = st.one_of(NUMBERS, NUMBERS.map(str), TEXTS, st.none())


def without_digits(name: str) -> str:
    return re.sub(r"\d", "0", name)


@st.composite
def drafts(draw: st.DrawFn) -> tuple[Draft, Document, Document]:
    """A draft as we write them: one row read out, one sentence quoted."""
    # names that differ in a digit only could be changed into each other, and stay true
    columns = draw(st.lists(NAMES, min_size=1, max_size=5, unique_by=without_digits))
    rows = draw(st.lists(st.tuples(*(CELLS for _ in columns)), min_size=1, max_size=4).map(tuple))
    table = Document(
        id="S1",
        kind="table",
        columns=("subject", *columns),
        rows=tuple((draw(NAMES), *row) for row in rows),
    )
    said = draw(st.text(alphabet="abc 0123456789.,-%", min_size=1, max_size=40)).strip()
    quote = (
        f"It says {said or 1}"  # a quote that is a bare number may stand elsewhere in the passage
    )
    passage = Document(id="P1", title="t", text=f"Before 17 it. {quote} After 42 it.")
    number = draw(st.integers(0, len(rows) - 1))
    row = f"{row_sentence(table.columns, table.rows[number])}."
    sentences = (Sentence(row, (f"S1.r{number + 1}",)), Sentence(f'T: "{quote}"', ("P1",)))
    return Draft("answered", sentences), passage, table


@given(drafts())
def test_a_correct_draft_passes(made: tuple[Draft, Document, Document]) -> None:
    draft, passage, table = made
    verdict = verify(draft, [passage], [table])
    assert verdict.ok, verdict.as_json()["checks"][:2]


@given(drafts(), st.data())
def test_any_changed_digit_is_caught(
    made: tuple[Draft, Document, Document], data: st.DataObject
) -> None:
    draft, passage, table = made
    which = data.draw(st.integers(0, len(draft.sentences) - 1))
    sentence = draft.sentences[which]
    digits = [place for place, char in enumerate(sentence.text) if char.isdigit()]
    assume(digits)
    place = data.draw(st.sampled_from(digits))
    other = data.draw(st.sampled_from([d for d in "0123456789" if d != sentence.text[place]]))
    changed = Sentence(
        sentence.text[:place] + other + sentence.text[place + 1 :], sentence.citations
    )
    sentences = tuple(changed if i == which else s for i, s in enumerate(draft.sentences))
    assert not verify(Draft("answered", sentences), [passage], [table]).ok


@given(st.text(max_size=300))
def test_any_text_can_be_checked(text: str) -> None:
    check(text).as_json()
