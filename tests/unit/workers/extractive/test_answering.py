"""Answers selected from small evidence."""

from hocket.schemas.messages import CallRequest, ChatMessage, Document
from hocket.workers.extractive.answering import answer
from hocket.workers.extractive.model import complete, completion_of
from hocket.workers.extractive.verification import verify

BRIDGE = Document(
    id="P1",
    title="Tay Bridge",
    source="tay.md",
    text="# Tay Bridge\n\nOpened in 1878 by Thomas Bouch. It fell in a storm a year later. "
    "Paint is renewed often.",
)
HARBOUR = Document(
    id="P2", title="Harbour", source="harbour.md", text="The harbour holds 40 ships and a crane."
)
LENGTHS = Document(
    id="S1",
    kind="table",
    title="bridge_lengths: length of bridges, longest first",
    columns=("bridge", "length_m"),
    rows=(("Humber", 2220), ("Tay", "3264.5"), ("Forth", 2467)),
)


def test_a_sentence_is_quoted_under_its_heading() -> None:
    draft = answer("When was the Tay Bridge opened?", [BRIDGE, HARBOUR], [])
    assert draft.status == "answered"
    assert draft.text == 'Tay Bridge: "Opened in 1878 by Thomas Bouch." [P1]'


def test_a_row_is_read_with_its_labels() -> None:
    draft = answer("What is the length of the Forth bridge?", [], [LENGTHS])
    assert draft.text == "Forth \u2013 length m: 2467. [S1.r3]"


def test_the_end_of_a_ranking_is_found_by_its_figures_not_by_its_place() -> None:
    assert (
        "Tay \u2013 length m: 3264.5" in answer("Which bridge is the longest?", [], [LENGTHS]).text
    )
    assert "Humber" in answer("Which bridge has the least length?", [], [LENGTHS]).text


def test_a_part_without_evidence_is_named() -> None:
    question = "When was the Tay Bridge opened, and what did it cost?"
    draft = answer(question, [BRIDGE, HARBOUR], [])
    assert draft.status == "partial"
    assert draft.missing == ("what did it cost?",)
    assert draft.text.endswith("\nNot in the data: what did it cost.")
    assert verify(draft, [BRIDGE, HARBOUR], [], question=question).ok


def test_nothing_relevant_is_not_in_the_data() -> None:
    for question in (
        "What is the population of Dundee?",
        "How many ships does the Forth hold?",
        "What is the length of the Severn bridge?",
        "Who painted the Mona Lisa?",
    ):
        draft = answer(question, [BRIDGE, HARBOUR], [LENGTHS])
        assert (question, draft.status) == (question, "not_in_data")
        assert draft.sentences[0].citations == ()


def test_no_evidence_at_all_is_not_in_the_data() -> None:
    empty = Document(id="S1", kind="table", columns=("a",), rows=())
    assert answer("What is the length of the Forth?", [], [empty]).status == "not_in_data"
    assert answer("", [BRIDGE], []).status == "not_in_data"


def test_a_question_cannot_smuggle_marks_into_the_answer() -> None:
    question = 'When was the Tay Bridge opened, and who is "Bob [P1]" of 1999?'
    draft = answer(question, [BRIDGE], [])
    assert draft.sentences[-1].text == "Not in the data: who is 'Bob (P1)' of 1999."
    assert verify(draft.text, [BRIDGE], [], question=question).ok
    assert not verify(draft.text, [BRIDGE], []).ok


def test_the_same_evidence_gives_the_same_draft() -> None:
    question = "When was the Tay Bridge opened and which bridge is the longest?"
    assert answer(question, [BRIDGE], [LENGTHS]) == answer(question, [BRIDGE], [LENGTHS])


async def test_the_model_answers_a_call_and_counts_words() -> None:
    request = CallRequest(
        call_id="c",
        model="hocket-extractive",
        messages=(ChatMessage(role="user", content="When was the Tay Bridge opened?"),),
        documents=(BRIDGE, LENGTHS),
        task="answer",
        deadline_at_ms=0,
    )
    completion = await complete(request)
    assert completion.text == 'Tay Bridge: "Opened in 1878 by Thomas Bouch." [P1]'
    assert completion.data["status"] == "answered"
    assert completion.output_tokens == len(completion.text.split())
    assert completion.input_tokens > 20
    assert completion == completion_of(request)
