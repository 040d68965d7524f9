"""Hooks: what goes out masked comes back whole, and what a failing hook does to a call."""

import asyncio
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from threading import get_ident
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.gateway.backends.protocol import Chunk, Chunks
from hocket.gateway.config.routes import Routes
from hocket.gateway.core.calls import pii
from hocket.gateway.core.calls.pii import PATTERNS, Masks, Pattern, Unmasking
from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.config.hook_rules import read
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.protocols.openai_api import Assembly
from hocket.gateway.hooks.builder import BuiltHook, build
from hocket.gateway.hooks.pii import INLINE_ANSWER_CHARS, INLINE_CHARS, PiiHook, Restored
from hocket.gateway.hooks.protocol import Answering, Changed
from hocket.schemas.messages import CallRequest, ChatMessage, Completion, Document
from support.gateway.routing_rig import Rig, Scripted, backend, breaks, request, says

MODELS = {
    "writer": {"backends": [backend("ours")]},
    "theirs": {"backends": [backend("t", mode="serverless")]},
}
TABLE = parse(MODELS, {})
MAIL, CARD, ACCOUNT = "ada@example.org", "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00"


def masked(text: str) -> str:
    return Masks(PATTERNS.values(), [text]).mask(text)


# ---- what is found --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Write to {MAIL}.", "Write to <EMAIL_1>."),
        (f"{MAIL}, bob@x.co, {MAIL}", "<EMAIL_1>, <EMAIL_2>, <EMAIL_1>"),
        (f"card {CARD}!", "card <CARD_1>!"),
        ("card 4111-1111-1111-1111", "card <CARD_1>"),
        (f"7 {CARD} 10.0.0.7", "7 <CARD_1> <IP_1>"),
        (f"1234 {CARD} 99 {CARD}", "1234 <CARD_1> 99 <CARD_1>"),
        (f"{ACCOUNT} EUR 12", "<IBAN_1> EUR 12"),
        (f"pay to {ACCOUNT} today", "pay to <IBAN_1> today"),
        ("GB82WEST12345698765432", "<IBAN_1>"),
        ("from 192.168.3.14, 2001:db8::7", "from <IP_1>, <IP_2>"),
        ("call +49 30 901820 or (212) 555-0142", "call <PHONE_1> or <PHONE_2>"),
        ("tel 030/901820, +44 20 7946 0958", "tel <PHONE_1>, <PHONE_2>"),
    ],
)
def test_personal_data_is_replaced_by_its_kind_and_number(text: str, expected: str) -> None:
    assert masked(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "card 4111 1111 1111 1112",  # Luhn says no
        "DE88370400440532013000",  # so does MOD 97
        "at 12:30:45 on 2026-05-04",
        "version 1.2.3, pi 3.14159265358979, 999.1.2.3",
        "a @ b, x@y, std::vector<int>::size_type",
        "order 12345678, the years 1998-2004, 100 200 300",
        "0.123456789 and -273.15",
    ],
)
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("4111 1111 1111 1111", "CARD"),
        ("ada@example.org", "EMAIL"),
        ("555-555-0142", "PHONE"),
        ("10.1.2.3", "IP"),
        ("DE89 3704 0044 0532 0130 00", "IBAN"),
    ],
)
@pytest.mark.parametrize("before", ["\n", "\t", "\u00a0", '"', "\\"])
def test_personal_data_in_json_is_found_behind_escapes(before: str, value: str, kind: str) -> None:
    """Arguments of tools and their results are JSON, in which a new line is `\\n`."""
    for levels in (1, 2):
        text = f"It is:{before}{value}{before}"
        expected = f"It is:{before}<{kind}_1>{before}"
        for _ in range(levels):
            text, expected = json.dumps(text), json.dumps(expected)
        masks = Masks(PATTERNS.values(), [text])
        assert masks.mask(text) == expected
        assert masks.unmask(expected) == text


@pytest.mark.parametrize("value", ["jos\u00e9@example.org", "\u00e9va.\u0141-x@example.org"])
@pytest.mark.parametrize("before", ["", "\n", "\u2019", "\\", "<", "To: "])
def test_an_address_with_escaped_letters_is_found_whole(before: str, value: str) -> None:
    """Most JSON encoders write other letters than ASCII's as escapes."""
    for levels in (1, 2):
        text, expected = f"{before}{value}!", f"{before}<EMAIL_1>!"
        for _ in range(levels):
            text, expected = json.dumps(text), json.dumps(expected)
        masks = Masks(PATTERNS.values(), [text])
        assert masks.mask(text) == expected
        assert masks.values == {"<EMAIL_1>": value}
        assert masks.mask(value) == "<EMAIL_1>"


def test_a_pattern_of_ones_own_may_hold_a_backslash() -> None:
    login = Pattern("LOGIN", re.compile(r"ACME\\[a-z]+"))
    assert Masks([login], []).mask("as ACME\\nadia") == "as <LOGIN_1>"


def test_a_placeholder_is_not_masked_again() -> None:
    ticket = Pattern("TICKET", re.compile(r"[A-Z]+_[0-9]+"))
    masks, text = Masks([ticket], []), json.dumps("See:\nABC_7")
    assert masks.mask(text) == json.dumps("See:\n<TICKET_1>")
    assert masks.unmask(masks.mask(text)) == text


def test_placeholders_stand_nowhere_in_the_text_before() -> None:
    text = f"Say <EMAIL_1> to {MAIL}"
    masks = Masks(PATTERNS.values(), [text])
    assert masks.mask(text) == "Say <EMAIL_1> to <EMAIL_x1>"
    assert masks.unmask("<EMAIL_1> <EMAIL_x1>") == f"<EMAIL_1> {MAIL}"


def test_a_long_text_without_any_end_is_looked_through_in_linear_time() -> None:
    for part in ("a", "1", "1 ", "a.", "DE89 ", "0-", "f:", "+49", "(1", "\\u00e9", "a\\u00e9@b."):
        text = part * 3_000
        assert len(Masks(PATTERNS.values(), [text]).mask(text)) > 0


words = st.sampled_from(["Ada", MAIL, CARD, ACCOUNT, "+49 30 901820", "10.0.0.7", "<", "<EMAIL_"])


@given(st.lists(words, max_size=12))
def test_what_is_masked_comes_back_as_it_was(parts: list[str]) -> None:
    text = " ".join(parts)
    masks = Masks(PATTERNS.values(), [text])
    said = masks.mask(text)
    assert masks.unmask(said) == text
    for value in (MAIL, CARD, ACCOUNT):
        assert value not in said


@settings(deadline=None)
@given(st.lists(words, max_size=8), st.lists(st.integers(1, 9), min_size=1, max_size=80))
def test_a_stream_cut_anywhere_says_the_same_as_the_whole(
    parts: list[str], sizes: list[int]
) -> None:
    text = " ".join(parts)
    masks = Masks(PATTERNS.values(), [text])
    said = masks.mask(text)
    unmasking, heard, at = Unmasking(masks), "", 0
    for size in [*sizes, len(said)]:
        heard += unmasking.piece(said[at : at + size])
        at += size
    assert heard + unmasking.rest() == text


def escaped(text: str, *, upper: bool = False) -> str:
    """Return a text as a string of JSON in which `<` and `>` are escaped, as Go's encoder writes it."""
    begin, end = (r"\u003C", r"\u003E") if upper else (r"\u003c", r"\u003e")
    return json.dumps(text).replace("<", begin).replace(">", end)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("value", [MAIL, 'C-"7\\"', "C-<7>"])
def test_values_are_put_back_where_json_escapes_their_placeholders(value: str, upper: bool) -> None:
    """Ollama writes the arguments of tools with Go's encoder."""
    custom = Pattern("CUSTOMER", re.compile(r"C-\S+"))
    masks = Masks([PATTERNS["EMAIL"], custom], [])
    for before in ("", "\\", "\n", "\\\\", "<", "u003c"):
        text = f"{before}{value} and {value}"
        said = escaped(masks.mask(value).join((before, " and ", "")), upper=upper)
        assert json.loads(masks.unmask_json(said)) == text
        stream = Unmasking(masks, in_json=True)
        assert json.loads("".join(map(stream.piece, said)) + stream.rest()) == text


def test_an_escaped_backslash_before_a_u_begins_no_placeholder() -> None:
    masks = Masks(PATTERNS.values(), [])
    masks.mask(MAIL)
    for said in (r'"\\u003cEMAIL_1\u003e"', r'"\u003cEMAIL_1\\u003e"', r'"<EMAIL_1\\u003e"'):
        stream = Unmasking(masks, in_json=True)
        assert masks.unmask_json(said) == said
        assert "".join(map(stream.piece, said)) + stream.rest() == said


def test_placeholders_stand_nowhere_in_the_text_before_though_they_are_escaped() -> None:
    text = rf'{{"to":"\u003cEMAIL_1\u003e","cc":"{MAIL}"}}'
    masks = Masks(PATTERNS.values(), [text])
    assert masks.unmask_json(masks.mask(text)) == text


json_words = st.sampled_from(
    [
        MAIL,
        CARD,
        "<",
        ">",
        "<EMAIL_",
        "\\",
        '"',
        "\n",
        r"\u003c",
        r"\u003cEMAIL_1\u003e",
        "u003c",
        "é",
    ]
)


@settings(deadline=None)
@given(
    st.lists(json_words, max_size=8),
    st.lists(st.integers(1, 9), min_size=1, max_size=80),
    st.integers(1, 40),
    st.booleans(),
)
def test_a_stream_of_json_cut_anywhere_says_the_same_as_the_whole(
    parts: list[str], sizes: list[int], slice_chars: int, upper: bool
) -> None:
    text = "".join(parts)
    masks = Masks(PATTERNS.values(), [text, json.dumps(text)])
    said = escaped(masks.mask(text), upper=upper)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pii, "SLICE_CHARS", slice_chars)
        assert json.loads(masks.unmask_json(said)) == masks.unmask(masks.mask(text))
    unmasking, heard, at = Unmasking(masks, in_json=True), "", 0
    for size in [*sizes, len(said)]:
        heard += unmasking.piece(said[at : at + size])
        at += size
    assert heard + unmasking.rest() == masks.unmask_json(said)


# ---- calls ----------------------------------------------------------------------------------


def with_hooks(rig: Rig, *entries: Mapping[str, Any]) -> Rig:
    """Let calls go through hooks."""
    routes = rig.calls.routes
    hooks = build(read(list(entries), {}, routes.table))
    rig.calls.replace(Routes(routes.table, routes.served, hooks=hooks))
    return rig


def with_hook(rig: Rig, hook: Any, **rule: Any) -> Rig:
    """Let calls go through a hook of the test's own."""
    routes = rig.calls.routes
    (found,) = read([{"use": "a.b:c", **rule}], {}, routes.table)
    built = (BuiltHook(found, hook),)
    rig.calls.replace(Routes(routes.table, routes.served, hooks=built))
    return rig


def echoes() -> Scripted:
    """A backend that says what it was told, in small pieces where it streams."""

    async def behaviour(got: CallRequest, chunks: Chunks | None) -> Completion:
        text = got.messages[0].content if got.messages else ""
        for start in range(0, len(text), 3):
            if chunks is not None:
                await chunks(Chunk(text[start : start + 3], output_tokens=start))
        call = {"id": "1", "function": {"name": "f", "arguments": json.dumps({"to": text})}}
        return Completion(text=text, data={"said": [text]}, tool_calls=(call,))

    return Scripted(behaviour)


def asks(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


async def test_a_backend_gets_placeholders_and_the_caller_the_values() -> None:
    rig = with_hooks(Rig(MODELS, ours=echoes()), {"use": "pii"})
    document = Document(id="P1", text=f"by {MAIL}", rows=((CARD, 7),))
    reply = await rig.make(**asks(f"Write {MAIL}", documents=(document,)))
    (got,) = rig.backends["ours"].requests
    assert got.messages[0].content == "Write <EMAIL_1>"
    assert (got.documents[0].text, got.documents[0].rows) == ("by <EMAIL_1>", (("<CARD_1>", 7),))
    assert (reply.text, reply.data) == (f"Write {MAIL}", {"said": [f"Write {MAIL}"]})
    assert json.loads(reply.tool_calls[0]["function"]["arguments"]) == {"to": f"Write {MAIL}"}


async def test_a_card_in_a_table_is_masked_also_as_a_number() -> None:
    rows = ((4111111111111111, 4111111111111112, 7, True),)
    document = Document(id="S1", kind="table", columns=("a", "b", "c", "d"), rows=rows)
    changed = await PiiHook({}).before(request(**asks("Who?", documents=(document,))))
    (sent,) = changed.request.documents
    assert sent.rows == (("<CARD_1>", 4111111111111112, 7, True),)


async def test_a_stream_gives_the_values_back_piece_by_piece() -> None:
    heard: list[str] = []

    async def take(chunk: Chunk) -> None:
        heard.append(chunk.text)

    rig = with_hooks(Rig(MODELS, ours=echoes()), {"use": "pii"})
    reply = await rig.make(**asks(f"Write to {MAIL}", chunks=take))
    assert "".join(heard) == reply.text == f"Write to {MAIL}"
    assert len(heard) > 2


async def test_events_of_openai_streams_and_bodies_are_masked_and_restored() -> None:
    hook = PiiHook({})
    body = {
        "model": "writer",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": MAIL}]},
            {"role": "user", "content": CARD},
        ],
        "tools": [{"type": "function"}],
    }
    changed = await hook.before(request(openai={"path": "chat/completions", "body": body}))
    assert changed.request.openai is not None
    sent = changed.request.openai.body["messages"]
    assert (sent[0]["content"][0]["text"], sent[1]["content"]) == ("<EMAIL_1>", "<CARD_1>")
    assert changed.answering is not None
    answering, heard, arguments = changed.answering(), "", ""
    for content, tail in (("to <EM", ""), ("AIL_1", '{"to": "<EMAI'), ("> <", 'L_1>"}')):
        calls = [{"index": 0, "function": {"arguments": tail}}] if tail else []
        delta = {"content": content, **({"tool_calls": calls} if calls else {})}
        said = answering.chunk(_event(delta)).openai
        assert said is not None
        heard += said["choices"][0]["delta"]["content"]
        for call in said["choices"][0]["delta"].get("tool_calls", ()):
            arguments += call["function"]["arguments"]
    last = answering.chunk(_event({}, reason="stop")).openai
    assert last is not None
    heard += last["choices"][0]["delta"]["content"]
    assert (heard, arguments) == (f"to {MAIL} <", json.dumps({"to": MAIL}))


async def test_arguments_that_end_with_what_might_begin_a_placeholder_arrive_whole() -> None:
    """Two calls under one index, as of Gemini, and one under an index of its own."""
    changed = await PiiHook({}).before(request(**asks(MAIL)))
    assert changed.answering is not None
    answering = changed.answering()
    told: list[dict[str, Any]] = []
    deltas = (
        {"index": 0, "id": "a", "function": {"name": "less", "arguments": '{"when": "1 <2'}},
        {"index": 0, "id": "b", "function": {"name": "less", "arguments": '{"when": "3 <4'}},
        {"index": 1, "id": "c", "function": {"name": "less", "arguments": '{"when": "<E'}},
        {"index": 1, "function": {"arguments": "MAIL_1> <6"}},
    )
    events = [*(_event({"tool_calls": [one]}) for one in deltas), _event({}, reason="tool_calls")]
    assembly = Assembly(request(**asks(MAIL)))
    for event in events:
        said = answering.chunk(event).openai
        assert said is not None
        assembly.add(said)
        told += said["choices"][0]["delta"].get("tool_calls", ())
    assert [call["function"]["arguments"] for call in assembly.completion().tool_calls] == [
        '{"when": "1 <2',
        '{"when": "3 <4',
        f'{{"when": "{MAIL} <6',
    ]
    assert [call["index"] for call in told] == [0, 0, 0, 1, 1, 0, 1]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "refusal"])
async def test_reasoning_and_refusals_come_back_whole_and_in_streams(field: str) -> None:
    changed = await PiiHook({}).before(request(**asks(MAIL)))
    assert changed.answering is not None
    message = {"content": None, field: "about <EMAIL_1>"}
    whole = Completion(openai={"choices": [{"message": message}]})
    told = (await changed.answering().completion(whole)).openai
    assert told == {"choices": [{"message": {"content": None, field: f"about {MAIL}"}}]}
    deltas = [{field: "about <EM"}, {field: "AIL_1>, a <"}, {"content": "to <EMAIL_"}]
    events = [*map(_event, deltas), _event({"content": "1>"}, "stop")]
    said = _streamed(changed.answering(), events)
    assert "".join(one.get(field) or "" for one in said) == f"about {MAIL}, a <"
    assert "".join(one.get("content") or "" for one in said) == f"to {MAIL}"
    if field != "refusal":
        assert field not in said[-1]  # what the model thought is told before what it says


async def test_callers_who_get_only_the_text_of_events_get_the_values_too() -> None:
    """Over NATS, pieces of a call in OpenAI's format are text."""
    changed = await PiiHook({}).before(request(**asks(MAIL)))
    assert changed.answering is not None
    answering, said = changed.answering(), ""
    others = {"index": 1, "delta": {"content": "<EMAIL_1>"}}
    for text, reason in (("to <EM", None), ("AIL_1> <", None), ("", "stop")):
        first = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
        said += answering.chunk(Chunk(text, openai={"choices": [first, others]})).text
    legacy = {"index": 0, "text": "<EMAIL_1>"}
    assert answering.chunk(Chunk("<EMAIL_1>", openai={"choices": [legacy]})).text == MAIL
    assert said == f"to {MAIL} <"
    assert answering.chunk(Chunk("", openai={"choices": [], "usage": {}}, is_usage=True)).text == ""


async def test_arguments_of_a_legacy_function_come_back_whole_and_in_streams() -> None:
    changed = await PiiHook({}).before(request(**asks(MAIL)))
    assert changed.answering is not None
    call = {"name": "mail", "arguments": '{"to": "<EMAIL_1>"}'}
    whole = Completion(openai={"choices": [{"message": {"content": None, "function_call": call}}]})
    told = (await changed.answering().completion(whole)).openai
    assert told is not None
    arguments = json.dumps({"to": MAIL})
    assert told["choices"][0]["message"]["function_call"] == {**call, "arguments": arguments}
    deltas = [
        {"name": "mail", "arguments": ""},
        {"arguments": '{"to": "<EMA'},
        {"arguments": "IL_1"},
    ]
    events = [_event({"function_call": one}) for one in [*deltas, {"arguments": '>"} <'}]]
    said = _streamed(changed.answering(), [*events, _event({}, "function_call")])
    assert said[0]["function_call"] == deltas[0]
    assert "".join(one["function_call"]["arguments"] for one in said) == f"{arguments} <"
    assert not any(one.get("tool_calls") for one in said)
    assert "function_call" not in _streamed(changed.answering(), [_event({}, "stop")])[0]


async def test_thinking_in_parts_of_the_content_comes_back_in_streams() -> None:
    """As of Mistral's reasoning models."""

    def thinks(text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}

    changed = await PiiHook({}).before(request(**asks(MAIL)))
    assert changed.answering is not None
    contents = [[thinks("so <EMA")], [thinks("IL_1> <")], "Dear ", [{"type": "text", "text": "<E"}]]
    events = [_event({"content": one}) for one in contents]
    said = _streamed(changed.answering(), [*events, _event({"content": "MAIL_1> <"}, "stop")])
    assert [one["content"] for one in said] == [
        [thinks("so ")],
        [thinks(f"{MAIL} ")],
        [thinks("<"), {"type": "text", "text": "Dear "}],
        [{"type": "text", "text": ""}],
        f"{MAIL} <",
    ]


def _streamed(answering: Answering, events: list[Chunk]) -> list[dict[str, Any]]:
    """Return the deltas that a caller gets."""
    told = [answering.chunk(event).openai for event in events]
    return [one["choices"][0]["delta"] for one in told if one is not None]


def test_an_empty_finish_reason_ends_no_text() -> None:
    """Some engines write one into every chunk."""
    masks = Masks(PATTERNS.values(), [])
    assert masks.mask("a@b.example") == "<EMAIL_1>"
    restored = Restored(masks)
    pieces = [restored.chunk(_event({"content": part}, "")) for part in ("<EMA", "IL_1>")]
    said = [piece.openai["choices"][0]["delta"]["content"] for piece in pieces if piece.openai]
    assert "".join(said) == "a@b.example"


async def test_whatever_a_body_says_in_other_places_is_masked_as_well() -> None:
    body = {
        "model": "writer",
        "messages": [
            {"role": "user", "content": "Who wrote it?"},
            {"role": "assistant", "content": "Wait.", "reasoning_content": f"Was it {MAIL}?"},
        ],
        "documents": [{"title": "Mail", "text": f"from {MAIL}"}],
        "user": MAIL,
        "safety_identifier": MAIL,
        "stop": ["END", f"From: {MAIL}"],
    }
    wanted = request(openai={"path": "chat/completions", "body": body})
    changed = await PiiHook({}).before(wanted)
    assert changed.request.openai is not None
    sent = changed.request.openai.body
    assert sent["documents"] == [{"title": "Mail", "text": "from <EMAIL_1>"}]
    assert sent["messages"][1]["reasoning_content"] == "Was it <EMAIL_1>?"
    assert (sent["user"], sent["safety_identifier"]) == ("<EMAIL_1>", "<EMAIL_1>")
    assert sent["stop"] == ["END", "From: <EMAIL_1>"], "which is what the model writes"


@pytest.mark.parametrize(
    ("key", "is_sent"),
    [("team-7", True), (None, True), (MAIL, False), (f"user {MAIL}", False), ([MAIL], False)],
)
async def test_a_cache_key_with_personal_data_is_left_out(key: Any, is_sent: bool) -> None:
    """A digest of it could be reversed, and a placeholder would be another's, too."""
    body = {"model": "writer", "messages": [], "prompt_cache_key": key}
    changed = await PiiHook({}).before(request(openai={"path": "chat/completions", "body": body}))
    assert changed.request.openai is not None
    left = {"model": "writer", "messages": []}
    assert changed.request.openai.body == (body if is_sent else left)
    assert body["prompt_cache_key"] == key


def file_part(text: str, kind: str = "text/plain") -> dict[str, Any]:
    data = f"data:{kind};base64,{b64encode(text.encode()).decode()}"
    return {"type": "file", "file": {"filename": "a", "file_data": data}}


async def test_a_file_of_text_is_masked_and_one_of_another_kind_is_not_read() -> None:
    parts = [file_part(f"From {MAIL}, {CARD}"), file_part(MAIL, "application/pdf")]
    body = {"model": "writer", "messages": [{"role": "user", "content": parts}]}
    changed = await PiiHook({}).before(request(openai={"path": "chat/completions", "body": body}))
    assert changed.request.openai is not None
    sent = changed.request.openai.body["messages"][0]["content"]
    assert sent == [file_part("From <EMAIL_1>, <CARD_1>"), parts[1]]
    assert changed.answering is not None
    told = await changed.answering().completion(Completion(text="<EMAIL_1>"))
    assert told.text == MAIL


async def test_a_file_without_a_type_is_masked() -> None:
    file = {"type": "file", "file": {"file_data": b64encode(MAIL.encode()).decode()}}
    body = {"model": "writer", "messages": [{"role": "user", "content": [file]}]}
    changed = await PiiHook({}).before(request(openai={"path": "chat/completions", "body": body}))
    assert changed.request.openai is not None
    sent = changed.request.openai.body["messages"][0]["content"][0]["file"]["file_data"]
    assert b64decode(sent) == b"<EMAIL_1>"


async def test_values_are_not_put_back_into_a_file_of_an_answer_which_could_not_hold_them() -> None:
    changed = await PiiHook({}).before(request(**asks("To \u0430nna@example.com")))
    assert changed.answering is not None
    file = "data:text/csv;base64," + b64encode("caf\u00e9 <EMAIL_1>".encode("latin-1")).decode()
    message = {"role": "assistant", "content": file}
    given = Completion(text=file, data={"file": file}, openai={"choices": [{"message": message}]})
    assert await changed.answering().completion(given) == given


def called(arguments: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def in_places(text: str) -> list[dict[str, Any]]:
    """Return fields of calls, each with a text in a place other than a message's content."""
    bodies: list[dict[str, Any]] = [
        {"messages": [called(text)]},
        {"messages": [], "metadata": {"a": text}},
        {"messages": [], "prediction": {"type": "content", "content": text}},
        {"messages": [], "user": text},
        {"prompt": "", "suffix": text},
        {"messages": [], "stop": ["END", text]},
        {"messages": [], "prompt_cache_key": text},
        {"messages": [{"role": "user", "content": [file_part(text)]}]},
    ]
    document = Document(id="S1", kind="table", columns=("a",), rows=((text,),))
    return [
        asks("Who?", documents=(document,)),
        {"messages": (ChatMessage.model_validate(called(text)),)},
        *({"openai": {"path": "chat/completions", "body": body}} for body in bodies),
    ]


@pytest.mark.parametrize("place", range(10))
@pytest.mark.parametrize(("chars", "on_loop"), [(INLINE_CHARS // 2, True), (INLINE_CHARS, False)])
async def test_a_long_text_is_searched_in_a_thread_wherever_it_is(
    place: int, chars: int, on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()

    def mask(masks: Masks, text: str) -> str:
        threads.add(get_ident())
        return text

    monkeypatch.setattr(Masks, "mask", mask)
    await PiiHook({}).before(request(**in_places("a" * chars)[place]))
    assert (get_ident() in threads) is on_loop


@pytest.mark.parametrize("place", range(10))
async def test_a_placeholder_that_a_call_has_already_is_not_taken_wherever_it_is(
    place: int,
) -> None:
    wanted = request(**in_places("<EMAIL_1>")[place], embed=(MAIL,))
    changed = await PiiHook({}).before(wanted)
    (sent,) = changed.request.embed
    assert sent == "<EMAIL_x1>"
    assert changed.answering is not None
    told = await changed.answering().completion(Completion(text=f"<EMAIL_1> {sent}"))
    assert told.text == f"<EMAIL_1> {MAIL}"


async def test_thinking_that_its_model_signed_goes_back_as_it_came() -> None:
    """Anthropic refuses a turn whose thinking was changed, and models think of addresses."""
    signed = {"type": "thinking", "thinking": "It listens on 127.0.0.1.", "signature": "s"}
    unsigned = {"type": "thinking", "thinking": MAIL}
    hidden = {"type": "redacted_thinking", "data": "4111-1111-1111-1111"}
    turn = {"role": "assistant", "content": MAIL, "thinking_blocks": [signed, hidden, unsigned]}
    wanted = request(openai={"path": "chat/completions", "body": {"messages": [turn]}})
    changed = await PiiHook({}).before(wanted)
    assert changed.request.openai is not None
    (sent,) = changed.request.openai.body["messages"]
    assert sent["content"] == "<EMAIL_1>"
    masked = {"type": "thinking", "thinking": "<EMAIL_1>"}
    assert sent["thinking_blocks"] == [signed, hidden, masked]


def _event(delta: dict[str, Any], reason: str | None = None) -> Chunk:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return Chunk(delta.get("content", ""), openai={"choices": [choice]})


async def test_a_hook_for_serverless_backends_leaves_our_own_alone() -> None:
    rig = with_hooks(Rig(MODELS, ours=says("a"), t=says("b")), {"use": "pii", "only": "serverless"})
    await rig.make("c1", **asks(MAIL))
    await rig.make("c2", model="theirs", **asks(MAIL))
    sent = [rig.backends[name].requests[0].messages[0].content for name in ("ours", "t")]
    assert sent == [MAIL, "<EMAIL_1>"]


async def test_a_hook_for_a_model_sees_the_calls_that_come_to_it_as_a_fallback() -> None:
    section = {**MODELS, "writer": {**MODELS["writer"], "fallbacks": ["theirs"]}}
    rig = with_hooks(Rig(section, ours=breaks(), t=says("b")), {"use": "pii", "models": ["theirs"]})
    reply = await rig.make(**asks(MAIL))
    sent = [rig.backends[name].requests[0].messages[0].content for name in ("ours", "t")]
    assert (reply.text, sent) == ("b", [MAIL, "<EMAIL_1>"])


class Slow:
    """A hook that never ends."""

    async def before(self, request: CallRequest) -> Changed:
        await asyncio.Event().wait()
        raise AssertionError


class Broken:
    """A hook that fails."""

    async def before(self, request: CallRequest) -> Changed:
        raise ValueError("no luck")


@pytest.mark.parametrize("hook", [Slow(), Broken()], ids=["too slow", "broken"])
async def test_a_closed_hook_that_fails_lets_nothing_out(hook: Any) -> None:
    rig = with_hook(Rig(MODELS, ours=says("a")), hook, budget_ms=5)
    reply = await rig.make(**asks(MAIL))
    assert reply.error is not None
    assert reply.error.code == "hook_failed"
    assert (rig.backends["ours"].requests, rig.records) == ([], [])
    assert [told.error_code for told in rig.refused] == ["hook_failed"]


class Guard:
    """A hook that refuses every answer."""

    async def before(self, request: CallRequest) -> Changed:
        return Changed(request, Guard)

    def chunk(self, chunk: Chunk) -> Chunk:
        return chunk

    def rest(self) -> str:
        return ""

    async def completion(self, completion: Completion) -> Completion:
        raise ValueError("not for you")


async def test_an_answer_that_a_closed_hook_refuses_reaches_nobody() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": MAIL}}

    async def behaviour(_: CallRequest, __: Chunks | None) -> Completion:
        return Completion(text=MAIL, data=[MAIL], tool_calls=(call,), output_tokens=7)

    rig = with_hook(Rig(MODELS, ours=Scripted(behaviour)), Guard())
    reply = await rig.make(**asks(MAIL))
    assert reply.error is not None
    assert reply.error.code == "hook_failed"
    assert (reply.text, reply.data, reply.tool_calls, reply.openai) == ("", None, (), None)
    (record,) = rig.records
    assert record.output_tokens == reply.output_tokens == 7


@pytest.mark.parametrize("hook", [Slow(), Broken()], ids=["too slow", "broken"])
async def test_an_open_hook_that_fails_is_left_out(hook: Any) -> None:
    rig = with_hook(Rig(MODELS, ours=says("a")), hook, budget_ms=5, on_failure="open")
    reply = await rig.make(**asks(MAIL))
    assert reply.text == "a"
    assert rig.backends["ours"].requests[0].messages[0].content == MAIL


def test_a_hook_of_the_users_is_imported_and_made_with_its_options() -> None:
    (built,) = build(read([{"use": "hocket.gateway.hooks.pii:PiiHook"}], {}, TABLE))
    assert isinstance(built.hook, PiiHook)


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"use": "pii"}, "hooks"),
        ([{"use": "what ever"}], "hooks[0].use"),
        ([{"use": "pii", "models": ["poet"]}], "hooks[0].models"),
        ([{"use": "pii", "budget_ms": 0}], "hooks[0].budget_ms"),
        ([{"use": "pii", "on_failure": "ajar"}], "hooks[0].on_failure"),
        ([{"use": "pii", "options": {"kinds": ["DNA"]}}], "hooks: options.kinds"),
        ([{"use": "pii", "options": {"patterns": {"X": "("}}}], "hooks: options.patterns.X"),
        ([{"use": "pii", "options": {"mask": True}}], "hooks: options.mask"),
        ([{"use": "no.such.module:hook"}], "hooks[0]"),
    ],
)
def test_a_wrong_hook_is_refused_with_its_field(section: Any, field: str) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        build(read(section, {}, TABLE))
    assert refused.value.fields["field"] == field


async def test_kinds_and_patterns_of_ones_own_say_what_is_masked() -> None:
    hook = PiiHook({"kinds": ["CARD"], "patterns": {"CUSTOMER": "C-[0-9]{4}"}, "unmask": False})
    changed = await hook.before(request(**asks(f"{MAIL} {CARD} C-1234")))
    assert changed.request.messages[0].content == f"{MAIL} <CARD_1> <CUSTOMER_1>"
    assert changed.answering is None


@pytest.mark.parametrize("place", ["text", "data", "tool_calls", "openai"])
async def test_values_are_put_back_into_a_long_answer_in_a_thread(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    unmask = Masks._restored

    def seen(masks: Masks, *given: Any) -> str:
        threads.append(get_ident())
        return unmask(masks, *given)

    monkeypatch.setattr(Masks, "_restored", seen)
    changed = await PiiHook({}).before(request(**asks(MAIL)))
    assert changed.answering is not None
    for chars in (1, INLINE_ANSWER_CHARS + 1):
        said, expected = (f"{one} {'x' * chars}" for one in ("<EMAIL_1>", MAIL))
        values = (_answered(text)[place] for text in (said, expected))
        answer, restored = (Completion.model_validate({place: value}) for value in values)
        assert await changed.answering().completion(answer) == restored
    assert len(set(threads)) == 2
    assert threads[0] == get_ident()


def _answered(text: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": text}
    choices = [{"message": {"content": text}, "logprobs": {"content": [0] * INLINE_ANSWER_CHARS}}]
    return {
        "text": text,
        "data": [text],
        "tool_calls": ({"id": "1", "function": function},),
        "openai": {"choices": choices},
    }


async def test_putting_values_back_takes_as_long_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer is paid for."""
    completion = Restored.completion

    async def slow(restored: Restored, answer: Completion) -> Completion:
        await asyncio.sleep(0.02)
        return await completion(restored, answer)

    monkeypatch.setattr(Restored, "completion", slow)
    rig = with_hooks(Rig(MODELS, ours=echoes()), {"use": "pii", "budget_ms": 1})
    assert (await rig.make(**asks(MAIL))).text == MAIL


class Exits:
    """A hook that exits, as a command line does that does not like its arguments."""

    def __init__(self, _options: object = None) -> None:
        if _options is not None:
            raise KeyboardInterrupt if _options else SystemExit("usage")

    async def before(self, request: CallRequest) -> Changed:
        if request.messages[0].content == MAIL:
            raise SystemExit("no luck")
        return Changed(request, Exits)

    def chunk(self, chunk: Chunk) -> Chunk:
        raise SystemExit("no luck")

    def rest(self) -> str:
        return ""

    async def completion(self, completion: Completion) -> Completion:
        raise KeyboardInterrupt


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("content", [MAIL, "What?"])
async def test_a_hook_that_exits_ends_its_call_and_not_the_gateway(
    content: str, streams: bool
) -> None:
    rig = with_hook(Rig(MODELS, ours=says("a")), Exits())
    chunks: list[Chunk] = []

    async def take(chunk: Chunk) -> None:
        chunks.append(chunk)

    reply = await rig.make(**asks(content), chunks=take if streams else None)
    assert reply.error is not None
    assert (reply.error.code, chunks) == ("hook_failed", [])


def test_a_hook_that_exits_when_it_is_made_is_refused_with_its_field() -> None:
    with pytest.raises(RoutingInvalid, match="SystemExit") as refused:
        build(read([{"use": f"{__name__}:Exits"}], {}, TABLE))
    assert refused.value.fields["field"] == "hooks[0]"


def test_ctrl_c_while_a_hook_is_made_ends_the_gateway() -> None:
    with pytest.raises(KeyboardInterrupt):
        build(read([{"use": f"{__name__}:Exits", "options": {"any": 1}}], {}, TABLE))
