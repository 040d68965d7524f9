"""What a body must be to be a call."""

import sys
import tracemalloc
from typing import Any

import pytest

from hocket.gateway.api.http import bodies
from hocket.gateway.api.http.body_types import BodyInvalid
from hocket.gateway.core.calls.request_content import choices, most_tokens
from hocket.gateway.core.protocols.openai_api import CHAT, COMPLETIONS, EMBEDDINGS, plain
from hocket.gateway.core.protocols.responses.request import RESPONSES
from hocket.schemas.messages import OpenAIBody
from support.gateway.door_rig import MODELS, asks, running, status
from support.gateway.routing_rig import Rig, request, says


async def test_a_models_name_is_printable() -> None:
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        writer.write(door.request(asks(model="a\nb")))
        assert await status(reader) == 400
        writer.close()


def test_a_count_is_an_integer_however_it_is_written() -> None:
    written = b'{"model": "a", "prompt": "b", "n": 2.0, "best_of": 3.0, "max_tokens": 5.0}'
    body = bodies.read(COMPLETIONS, written)
    call = request(openai=OpenAIBody(path="completions", body=body))
    assert repr(body["best_of"]) == "3"
    assert (choices(call), most_tokens(body), plain(call).max_tokens) == (3, 5, 5)

    with pytest.raises(BodyInvalid) as refused:
        bodies.read(COMPLETIONS, b'{"model": "a", "prompt": "b", "best_of": 2.5}')
    assert refused.value.fields["field"] == "best_of"


def test_best_of_counts_in_a_chat_as_well_because_engines_take_it_there() -> None:
    asked = b'{"model": "a", "messages": [{"role": "user", "content": "b"}], "best_of": %s}'
    body = bodies.read(CHAT, asked % b"128.0")
    assert choices(request(openai=OpenAIBody(path="chat/completions", body=body))) == 128

    for wrong in (b"129", b"0", b"true", b'"2"'):
        with pytest.raises(BodyInvalid) as refused:
            bodies.read(CHAT, asked % wrong)
        assert refused.value.fields["field"] == "best_of"


@pytest.mark.parametrize("other", [b"null", b"3"])
def test_a_backend_that_gets_plain_parameters_gets_the_limit_that_is_reserved(other: bytes) -> None:
    written = b'{"model": "a", "prompt": "b", "max_completion_tokens": %s, "max_tokens": 5}' % other
    body = bodies.read(COMPLETIONS, written)
    call = request(openai=OpenAIBody(path="completions", body=body))
    assert plain(call).max_tokens == most_tokens(body) == 5


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({f"k{number}": "v" for number in range(17)}, "metadata"),
        ({"k" * 65: "v"}, "metadata"),
        ({"k": "v" * 513}, "metadata.k"),
        ({"k": 5}, "metadata.k"),
        ("text", "metadata"),
    ],
)
def test_the_metadata_of_a_response_which_come_back_are_bounded(metadata: Any, field: str) -> None:
    with pytest.raises(BodyInvalid) as refused:
        bodies.checked(RESPONSES, {"model": "a", "input": "b", "metadata": metadata})
    assert refused.value.fields["field"].startswith(field)
    most = {f"{number:064}": "v" * 512 for number in range(16)}
    for fine in (most, {}, None):
        bodies.checked(RESPONSES, {"model": "a", "input": "b", "metadata": fine})


IMAGE = [{"role": "user", "content": [{"type": "input_image", "image_url": 5}]}]


@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        (RESPONSES, {"input": IMAGE}, "input.0.content.0.image_url"),
        (RESPONSES, {"input": [{"type": "message"}]}, "input.0.role"),
        (RESPONSES, {"input": [{"type": "nothing"}]}, "input.0"),
        (RESPONSES, {"input": 5}, "input"),
        (RESPONSES, {}, "input"),
        (RESPONSES, {"input": "a", "tool_choice": 5}, "tool_choice"),
        (RESPONSES, {"input": "a", "tools": [{"type": "function"}]}, "tools.0.name"),
        (EMBEDDINGS, {"input": [["a"]]}, "input.0.0"),
        (COMPLETIONS, {"prompt": 5}, "prompt"),
        (CHAT, {"messages": [{"role": "a", "content": 5}]}, "messages.0.content"),
        (CHAT, {"messages": [{"role": "a", "content": ["b"]}]}, "messages.0.content.0"),
    ],
)
def test_a_fault_is_named_as_the_caller_wrote_it(
    path: str, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(BodyInvalid) as refused:
        bodies.checked(path, {"model": "a", **fields})
    assert refused.value.fields["field"] == field


@pytest.mark.parametrize("path", [RESPONSES, EMBEDDINGS])
def test_an_empty_list_is_told_to_be_too_short_and_not_to_be_a_text(path: str) -> None:
    with pytest.raises(BodyInvalid) as refused:
        bodies.checked(path, {"model": "a", "input": []})
    assert refused.value.fields["field"] == "input"
    assert "at least 1 item" in refused.value.fields["reason"]


MANY = 100_000


@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        (COMPLETIONS, {"prompt": [None] * MANY}, "prompt.0"),
        (EMBEDDINGS, {"input": [[None] * MANY]}, "input.0.0"),
        (CHAT, {"messages": [{"role": "a", "content": [1] * MANY}]}, "messages.0.content.0"),
        (CHAT, {"messages": [{"role": "a", "tool_calls": [1] * MANY}]}, "messages.0.tool_calls.0"),
        (RESPONSES, {"input": [{"role": "user", "content": [1] * MANY}]}, "input.0.content.0"),
    ],
)
def test_of_many_faults_the_first_is_told_and_the_others_are_not_looked_for(
    path: str, fields: dict[str, Any], field: str
) -> None:
    tracemalloc.start()
    with pytest.raises(BodyInvalid) as refused:
        bodies.checked(path, {"model": "a", **fields})
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.fields["field"] == field
    assert peak_bytes < 10 * MANY


def asked(field: str, ids: str) -> bytes:
    return f'{{"model": "a", "{field}": {ids}}}'.encode()


@pytest.mark.parametrize(
    ("path", "field", "nest"),
    [
        (COMPLETIONS, "prompt", "%s"),
        (COMPLETIONS, "prompt", "[%s]"),
        (EMBEDDINGS, "input", "%s"),
        (EMBEDDINGS, "input", "[%s]"),
    ],
)
def test_the_ids_of_tokens_are_integers_however_they_are_written(
    path: str, field: str, nest: str
) -> None:
    for right in ("[5, 7]", "[5.0, 7]", "[5, 7.0]"):
        assert bodies.read(path, asked(field, nest % right))[field]
    for wrong in ("[5, 7.5]", "[5, true]", "[5, -7]", '[5, "7"]', "[5, null]"):
        with pytest.raises(BodyInvalid) as refused:
            bodies.read(path, asked(field, nest % wrong))
        assert refused.value.fields["field"].startswith(f"{field}.")


def test_millions_of_token_ids_are_read_without_a_step_of_python_for_each() -> None:
    steps = 0

    def trace(*_: object) -> None:
        nonlocal steps
        steps += 1

    content = b'{"model": "a", "prompt": [[%s]]}' % b",".join([b"1"] * 100_000)
    sys.setprofile(trace)
    try:
        bodies.read(COMPLETIONS, content)
    finally:
        sys.setprofile(None)
    assert steps < 10_000
