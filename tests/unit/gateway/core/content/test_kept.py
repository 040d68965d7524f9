"""Whose prompts and answers are kept, and what of them."""

import json
import time
from base64 import b64encode
from typing import Any

import pytest

from hocket.gateway.core.content import kept as keeping
from hocket.gateway.core.content.kept import MAX_CHARS, held_content
from hocket.gateway.core.content.policy import read
from hocket.gateway.core.errors import RoutingInvalid
from hocket.schemas.messages import Attribution, CallReply, CallRequest, ChatMessage, OpenAIBody
from hocket.schemas.tracing.content import CallContent, Kept

POLICY = {
    "keep": "none",
    "tenants": {"acme": "redacted", "shy": "none"},
    "pipelines": {"support": "full", "acme/billing": "none", "shy/open": "full"},
}
SAID = "Mail bob@example.org, then bob@example.org or eve@example.org"


@pytest.mark.parametrize(
    ("tenant", "pipeline", "kept"),
    [
        ("other", "p", None),
        ("other", None, None),
        ("other", "support", "full"),
        ("acme", "p", "redacted"),
        ("acme", "support", "redacted"),
        ("acme", "billing", None),
        ("shy", "support", None),
        ("shy", "open", "full"),
    ],
)
def test_what_is_nearer_to_the_call_decides(
    tenant: str, pipeline: str | None, kept: str | None
) -> None:
    assert read(POLICY, {}).of(Attribution(tenant=tenant, pipeline=pipeline)) == kept


def test_without_a_section_nothing_is_kept() -> None:
    assert read(None, {}).of(Attribution(tenant="acme", pipeline="p")) is None


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"keep": "all"}, "content.keep"),
        ({"kept": "full"}, "content.kept"),
        ({"tenants": {"acme": True}}, "content.tenants.acme"),
        ({"tenants": {"acme/p": "full"}}, "content.tenants.acme/p"),
        ({"pipelines": {"a/b/c": "full"}}, "content.pipelines.a/b/c"),
        ([], "content"),
    ],
)
def test_a_wrong_section_names_its_field(section: Any, field: str) -> None:
    with pytest.raises(RoutingInvalid) as raised:
        read(section, {})
    assert raised.value.fields["field"] == field


def request(**fields: Any) -> CallRequest:
    given: dict[str, Any] = {"call_id": "c", "model": "m", "deadline_at_ms": 0}
    return CallRequest(**given, attribution=Attribution(tenant="acme"), **fields)


def kept_content(
    asked: CallRequest, reply: CallReply, kept: Kept, started_at_ms: float
) -> CallContent:
    return keeping.kept_content(held_content(asked, reply, kept, started_at_ms))


def test_personal_data_is_replaced_in_prompt_and_answer_alike() -> None:
    asked = request(messages=(ChatMessage(role="user", content=SAID),))
    content = kept_content(asked, CallReply(call_id="c", text="I wrote to eve@example.org"),
                           "redacted", 0.0)  # fmt: skip
    (message,) = content.prompt["messages"]
    assert message["content"] == "Mail <EMAIL_1>, then <EMAIL_1> or <EMAIL_2>"
    assert content.answer == {"text": "I wrote to <EMAIL_2>"}
    whole = kept_content(asked, CallReply(call_id="c", text="ok"), "full", 0.0)
    assert whole.prompt["messages"][0]["content"] == SAID


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("", {}), ("stop", {}), ("tool_calls", {}), ("length", {"finish_reason": "length"})],
)
def test_why_an_answer_ended_is_kept_if_it_is_not_complete(
    reason: str, expected: dict[str, str]
) -> None:
    reply = CallReply(call_id="c", text="The tide ri", finish_reason=reason)
    assert kept_content(request(), reply, "full", 0.0).answer == {"text": "The tide ri"} | expected


def test_what_is_cut_was_redacted_before() -> None:
    text = "x" * (MAX_CHARS - 60) + SAID
    asked = request(messages=(ChatMessage(role="user", content=text),))
    content = kept_content(asked, CallReply(call_id="c", text="ok"), "redacted", 0.0)
    assert content.is_cut
    assert len(content.prompt) == MAX_CHARS
    assert "bob" not in content.prompt


@pytest.mark.parametrize("short", range(0, 60, 7))
def test_no_value_is_kept_in_part_where_a_long_prompt_is_cut(short: int) -> None:
    card, account = "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00"
    text = " " * short + f"{SAID} {card} {account}. " * 20_000
    asked = request(messages=(ChatMessage(role="user", content=text),))
    content = kept_content(asked, CallReply(call_id="c", text=text), "redacted", 0.0)
    assert content.is_cut
    for kept in (content.prompt, content.answer):
        assert 10_000 < len(kept) <= MAX_CHARS
        assert not any(part in kept for part in ("@", "bob", "eve", "4111", "3704", "DE89"))


def test_what_is_kept_in_full_is_the_beginning_of_its_json_whatever_it_is() -> None:
    content = [{"type": "text", "text": '"\n' * 9}, {"x" * 30: [None, True, 1.5, 10**30, {}, []]}]
    body = {"messages": [{"role": "user", "content": content * 900}, {"role": "user"}]}
    asked = request(openai=OpenAIBody(path="chat/completions", body=body))
    kept = kept_content(asked, CallReply(call_id="c", text="x" * 70_000), "full", 0.0)
    assert kept.prompt == json.dumps(body)[:MAX_CHARS]
    assert kept.answer == json.dumps({"text": "x" * 70_000})[:MAX_CHARS]
    assert kept.is_cut


def test_a_long_prompt_of_numbers_is_masked_as_far_as_it_is_kept() -> None:
    asked = request(messages=(ChatMessage(role="user", content="1 " * 10_000_000),))
    began = time.process_time()
    content = kept_content(asked, CallReply(call_id="c", text="ok"), "redacted", 0.0)
    assert content.is_cut
    assert time.process_time() - began < 5  # all of it takes minutes


def test_a_body_of_openai_s_api_is_kept_without_what_no_model_reads() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": SAID}], "user": "u1"}
    asked = request(openai=OpenAIBody(path="chat/completions", body=body))
    choices = [{"message": {"content": "to bob@example.org"}}]
    reply = CallReply(call_id="c", openai={"id": "x", "choices": choices})
    content = kept_content(asked, reply, "redacted", 0.0)
    assert set(content.prompt) == {"messages"}
    assert "example.org" not in json.dumps([content.prompt, content.answer])
    assert content.answer == {"choices": [{"message": {"content": "to <EMAIL_1>"}}]}


def test_files_and_images_are_kept_as_their_type_and_size_if_personal_data_is_replaced() -> None:
    data = b64encode(b"from bob@example.org " * 9_000).decode()
    file = {"filename": "a.txt", "file_data": f"data:text/plain;base64,{data}"}
    parts = [{"type": "file", "file": file}, {"type": "text", "text": SAID}]
    body = {"messages": [{"role": "user", "content": parts}]}
    asked = request(openai=OpenAIBody(path="chat/completions", body=body))
    content = kept_content(asked, CallReply(call_id="c", text="ok"), "redacted", 0.0)
    kept_file, kept_text = content.prompt["messages"][0]["content"]
    assert kept_file["file"] == {"filename": "a.txt", "file_data": "data:text/plain, 189000 bytes"}
    assert kept_text["text"] == "Mail <EMAIL_1>, then <EMAIL_1> or <EMAIL_2>"
    assert not content.is_cut
    whole = kept_content(asked, CallReply(call_id="c", text="ok"), "full", 0.0)
    assert whole.is_cut
    assert whole.prompt == json.dumps(body)[:MAX_CHARS]


def test_all_answers_and_the_documents_of_a_body_are_kept() -> None:
    body = {"messages": [], "n": 2, "documents": [{"title": "Tide", "text": "High at nine."}]}
    asked = request(openai=OpenAIBody(path="chat/completions", body=body))
    choices = [
        {"message": {"content": text}} for text in ("At nine.", "At 9, says bob@example.org")
    ]
    reply = CallReply(call_id="c", text="At nine.", openai={"choices": choices})
    content = kept_content(asked, reply, "redacted", 0.0)
    assert content.prompt == {"messages": [], "documents": body["documents"]}
    assert content.answer["text"] == "At nine."
    said = [choice["message"]["content"] for choice in content.answer["choices"]]
    assert said == ["At nine.", "At 9, says <EMAIL_1>"]
    alone = CallReply(call_id="c", text="At nine.", openai={"choices": choices[:1]})
    assert kept_content(asked, alone, "full", 0.0).answer == {"text": "At nine."}


def test_of_an_answer_neither_its_reasoning_nor_its_probabilities_are_kept() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    message = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "At nine."}],
        "reasoning_content": "hm",
        "thinking_blocks": [{"type": "thinking", "thinking": "hm"}],
        "refusal": None,
        "tool_calls": [call],
    }
    first = {"index": 0, "message": message, "logprobs": {"content": []}, "finish_reason": "stop"}
    second = {"index": 1, "text": "At 9.", "logprobs": {}, "finish_reason": "length"}
    reply = CallReply(call_id="c", text="At nine.", openai={"choices": [first, second, None]})
    assert kept_content(request(), reply, "full", 0.0).answer["choices"] == [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"content": "At nine.", "tool_calls": [call]},
        },
        {"index": 1, "finish_reason": "length", "text": "At 9."},
    ]


def test_words_behind_what_looks_like_a_file_are_kept() -> None:
    text = "data:text/plain;base64," + "A" * 1_100 + f" and now: {SAID}"
    asked = request(messages=(ChatMessage(role="user", content=text),))
    kept = kept_content(asked, CallReply(call_id="c", text="ok"), "redacted", 0.0)
    said = kept.prompt["messages"][0]["content"]
    assert said.startswith("data:text/plain, 777 bytes AAAA")
    assert said.endswith("A and now: Mail <EMAIL_1>, then <EMAIL_1> or <EMAIL_2>")


def test_of_many_files_only_the_beginning_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MOST_LOOKED_AT", 10_000)
    file = "data:image/png;base64," + "A" * 3_000 + f" {SAID}"
    body = {"messages": [{"role": "user", "content": [*[file] * 6, SAID]}]}
    asked = request(openai=OpenAIBody(path="chat/completions", body=body))
    kept = kept_content(asked, CallReply(call_id="c", text="ok"), "redacted", 0.0)
    *files, said = kept.prompt["messages"][0]["content"]
    assert [one.endswith("<EMAIL_2>") for one in files] == [True] * 4 + [False] * 2
    assert files[-1].startswith("data:image/png, ")
    assert said == "Mail <EMAIL_1>, then <EMAIL_1> or <EMAIL_2>"
    assert not kept.is_cut


def test_a_file_without_a_type_is_kept_as_its_size_if_personal_data_is_replaced() -> None:
    file = {"type": "file", "file": {"file_data": b64encode(b"bob@example.org").decode()}}
    body = {"messages": [{"role": "user", "content": [file]}]}
    asked = request(openai=OpenAIBody(path="chat/completions", body=body))
    reply = CallReply(call_id="c", text="ok")
    kept = kept_content(asked, reply, "redacted", 0.0).prompt["messages"][0]["content"]
    assert kept == [{"type": "file", "file": {"file_data": "15 bytes"}}]
    assert kept_content(asked, reply, "full", 0.0).prompt == body


def test_words_that_begin_like_a_file_and_names_of_parts_are_masked_as_well() -> None:
    image = "data:image/png;base64,iVBORw0KGgo="
    said = [
        "data: mail eve@example.org",
        "data:text/plain,eve@example.org",
        "data:a/b;base64, eve@example.org",
    ]
    body = {"messages": [{"role": "user", "content": [*said, image]}]}
    request = CallRequest(
        call_id="c",
        model="writer",
        openai=OpenAIBody(path="chat/completions", body=body),
        deadline_at_ms=1.0,
        attribution=Attribution(tenant="acme"),
    )
    reply = CallReply(call_id="c", model="writer", data={"eve@example.org": {"due": 1}})

    kept = kept_content(request, reply, "redacted", 0.0)

    assert "eve@" not in json.dumps([kept.prompt, kept.answer])
    assert "data:image/png, 8 bytes" in json.dumps(kept.prompt)
    assert kept.answer == {"data": {"<EMAIL_1>": {"due": 1}}}


def test_a_card_is_masked_also_as_a_number_and_behind_a_line_break_in_json() -> None:
    card = 4111111111111111
    function = {"name": "note", "arguments": json.dumps({"text": f"Card:\n{card}", "card": card})}
    reply = CallReply(
        call_id="c", data={"card": card, "n": 7}, tool_calls=({"function": function},)
    )
    request = CallRequest(call_id="c", model="m", deadline_at_ms=1)
    answer = kept_content(request, reply, "redacted", 0).answer
    assert answer["data"] == {"card": "<CARD_1>", "n": 7}
    assert str(card) not in json.dumps(answer)
