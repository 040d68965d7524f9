"""No tenant's questions keep a ledger from answering those of others."""

from hocket.ledger.questions import OpenQuestions


def test_a_tenant_gets_a_quarter_of_the_places_at_most_and_others_find_some() -> None:
    questions = OpenQuestions(64)
    assert sum(questions.begin("flood") for _ in range(1_000)) == 16
    assert sum(questions.begin("second") for _ in range(1_000)) == 12
    assert questions.begin("acme")


def test_however_many_tenants_ask_no_more_is_answered_than_there_are_places() -> None:
    questions = OpenQuestions(64)
    begun = [name for name in map(str, range(1_000)) if questions.begin(name)]
    assert len(begun) == len(questions) == 64
    assert not questions.begin("late")
    questions.end(begun[0])
    assert questions.begin("late")


def test_what_has_ended_is_not_remembered() -> None:
    questions = OpenQuestions(8)
    for number in range(100):
        assert questions.begin(str(number))
        questions.end(str(number))
    assert not len(questions)
    assert not questions._of
