"""Recorded answers are given to the calls that ask for the same, and to no others."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hocket.testing import Answer, AnswerNotRecorded, Play, PromptChanged, RecordingInvalid
from support.places import ROOT

PAGE = ROOT / "docs" / "how-to" / "test-pipelines.md"
BLOCK = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PIPELINE: dict[str, Any] = {
    "pipeline": "order",
    "slo_ms": 20_000,
    "nodes": {
        "customer": {
            "type": "llm",
            "model": "clerk",
            "prompt": "Whose is order {{ input.number }}?",
            "with": {"number": "{{ input.number }}"},
            "retry": {"max_attempts": 2},
        }
    },
    "output": "{{ nodes.customer.output.text }}",
}


def of_the_page() -> dict[str, Any]:
    (text,) = BLOCK.findall(PAGE.read_text("utf-8"))
    recording: dict[str, Any] = json.loads(text)
    return recording


def written(folder: Path, recording: Any) -> Path:
    file = folder / "answers.json"
    file.write_text(recording if isinstance(recording, str) else json.dumps(recording))
    return file


def recorded(folder: Path, *calls: dict[str, Any], **options: bool) -> Play:
    play = Play(PIPELINE)
    one = of_the_page()["calls"][0]
    recording = of_the_page() | {"calls": [one | call for call in calls]}
    play.recorded(written(folder, recording), **options)
    return play


def test_the_recording_of_the_page_is_played(tmp_path: Path) -> None:
    play = Play(PIPELINE)
    play.recorded(written(tmp_path, of_the_page()))
    played = play.run({"number": 7})
    assert played.output == "Ada Lovelace"
    assert (played.cost_usd, played.took_ms) == (Decimal("0.002"), 812.4)
    (call,) = played.calls
    assert (call.reply.input_tokens, call.reply.output_tokens) == (11, 3)
    assert play.run({"number": 7}).trace == played.trace


def test_another_prompt_is_an_error_that_shows_both(tmp_path: Path) -> None:
    play = recorded(tmp_path, {})
    with pytest.raises(PromptChanged) as raised:
        play.run({"number": 8})
    said = str(raised.value)
    assert "`messages.0.content: Whose is order 7?`" in said
    assert "`messages.0.content: Whose is order 8?`" in said
    assert recorded(tmp_path, {}, check_prompts=False).run({"number": 8}).output == "Ada Lovelace"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ({"step": "other"}, "these steps of `order` asked: other (clerk)"),
        ({"model": "writer"}, "there this step asked writer"),
        ({"pipeline": "else"}, "these steps of `order` asked: (none)"),
    ],
)
def test_an_answer_that_is_not_there_says_what_is(
    tmp_path: Path, call: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AnswerNotRecorded) as raised:
        recorded(tmp_path, call).run({"number": 7})
    assert reason in str(raised.value)
    assert 'play.model("clerk", ...)' in str(raised.value)


def test_failures_are_recorded_and_each_answer_is_given_once(tmp_path: Path) -> None:
    failure = {"answer": {"error": {"code": "backend_busy", "error_class": "unavailable"}}}
    played = recorded(tmp_path, failure, {}).run({"number": 7})
    assert played.output == "Ada Lovelace"
    assert played.steps["customer"].attempts == 2
    with pytest.raises(AnswerNotRecorded) as raised:
        recorded(tmp_path, failure).run({"number": 7})
    assert "it has 1 for it, and the play has used them all" in str(raised.value)


def test_what_side_by_side_calls_asked_tells_their_answers_apart(tmp_path: Path) -> None:
    def asking(number: int) -> dict[str, Any]:
        prompt = {"messages": [{"role": "user", "content": f"Whose is order {number}?"}]}
        return {"prompt": prompt, "answer": {"text": f"customer {number}"}}

    assert recorded(tmp_path, asking(6), asking(7)).run({"number": 7}).output == "customer 7"


def test_an_answer_without_a_prompt_fits_any(tmp_path: Path) -> None:
    assert recorded(tmp_path, {"prompt": None}).run({"number": 9}).output == "Ada Lovelace"


def test_an_answer_that_was_cut_off_is_played_as_that(tmp_path: Path) -> None:
    answer = {"text": "Ada Lo", "finish_reason": "length"}
    played = recorded(tmp_path, {}, {"answer": answer}).run({"number": 7})
    assert played.steps["customer"].output["finish_reason"] == "stop"
    played = recorded(tmp_path, {"answer": answer}).run({"number": 7})
    assert played.steps["customer"].output["finish_reason"] == "length"


def test_what_the_test_says_of_a_model_goes_before(tmp_path: Path) -> None:
    play = recorded(tmp_path, {})
    play.model("clerk", Answer("Bob"))
    assert play.run({"number": 8}).output == "Bob"


@pytest.mark.parametrize(
    ("recording", "field"),
    [
        ("", "(file)"),
        ("[]", "(file)"),
        ('{"hocket_recording": 1, "hocket_recording": 1}', "(file)"),
        ({"hocket_recording": 2, "run_id": "r", "calls": []}, "hocket_recording"),
        ({"hocket_recording": 1, "run_id": "r"}, "calls"),
        ({"hocket_recording": 1, "run_id": "r", "calls": [{"step": "a"}]}, "calls.0"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_with_its_place(
    tmp_path: Path, recording: Any, field: str
) -> None:
    with pytest.raises(RecordingInvalid) as raised:
        Play(PIPELINE).recorded(written(tmp_path, recording))
    assert field in raised.value.fields["field"], raised.value


def test_a_file_that_is_not_there_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(RecordingInvalid, match="hocket runs record RUN"):
        Play(PIPELINE).recorded(tmp_path / "none.json")
