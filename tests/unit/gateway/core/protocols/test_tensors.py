"""Tensors as bytes, and calls as tensors."""

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.protocols.tensors import Tensor, TensorInvalid, decoded, encoded
from hocket.gateway.core.protocols.triton import (
    Interface,
    InterfaceUnsuited,
    Port,
    TritonOptions,
    completion,
    requests,
)
from hocket.schemas.messages import CallRequest, ChatMessage

LLM = Interface(
    "llm",
    inputs={
        "text_input": Port("BYTES", (-1, 1)),
        "stop_words": Port("BYTES", (-1, 1)),
        "max_tokens": Port("INT32", (-1, 1)),
        "temperature": Port("FP32", (-1, 1)),
    },
    outputs={"text_output": Port("BYTES", (-1, 1)), "log": Port("BYTES", (-1, 1))},
    max_batch=8,
)


def call(*contents: str, **fields: Any) -> CallRequest:
    messages = tuple(ChatMessage(role="user", content=content) for content in contents)
    return CallRequest(call_id="c", model="m", messages=messages, deadline_at_ms=1, **fields)


@pytest.mark.parametrize(
    ("datatype", "value", "content"),
    [
        ("INT32", [[1], [-2]], b"\x01\0\0\0\xfe\xff\xff\xff"),
        ("FP32", [0.5], b"\0\0\0\x3f"),
        ("FP16", [1.0], b"\0\x3c"),
        ("BOOL", [True, False], b"\x01\0"),
        ("UINT8", [255], b"\xff"),
        ("BYTES", ["ab", ""], b"\x02\0\0\0ab\0\0\0\0"),
        ("BYTES", ["é"], b"\x02\0\0\0\xc3\xa9"),
    ],
)
def test_a_tensor_is_what_the_protocol_says(datatype: str, value: Any, content: bytes) -> None:
    assert encoded("x", datatype, value).content == content


@given(st.lists(st.lists(st.floats(width=64, allow_nan=False), min_size=3, max_size=3), min_size=1))
def test_a_matrix_comes_back(matrix: list[list[float]]) -> None:
    assert decoded(encoded("x", "FP64", matrix)) == matrix


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_texts_come_back(texts: list[str]) -> None:
    assert decoded(encoded("x", "BYTES", texts)) == texts


@pytest.mark.parametrize(
    ("datatype", "value", "shape", "reason"),
    [
        ("INT8", [200], None, "not INT8"),
        ("INT8", [1.5], None, "not INT8"),
        ("INT64", ["one"], None, "not INT64"),
        ("BYTES", [1], None, "not text"),
        ("BF16", [1.0], None, "not supported"),
        ("FP32", [[1.0], [1.0, 2.0]], None, "different lengths"),
        ("FP32", [1.0, [2.0]], None, "different depths"),
        ("FP32", [[1.0], 2.0], None, "different lengths"),
        ("FP32", [1.0, 2.0, 3.0], (2, 2), "do not fill"),
        ("FP32", [1.0], (-1, -1), "do not fill"),
    ],
)
def test_what_is_no_tensor_is_refused(
    datatype: str, value: Any, shape: tuple[int, ...] | None, reason: str
) -> None:
    with pytest.raises(TensorInvalid, match=reason):
        encoded("x", datatype, value, shape)


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor("x", "BYTES", (1,), b"\x09\0\0\0ab"),
        Tensor("x", "BYTES", (2,), b"\x01\0\0\0a"),
        Tensor("x", "INT32", (1,), b"\0\0\0"),
        Tensor("x", "INT32", (2,), b"\0\0\0\0"),
        Tensor("x", "WHAT", (1,), b"\0"),
    ],
)
def test_a_broken_answer_is_refused(tensor: Tensor) -> None:
    with pytest.raises(TensorInvalid):
        decoded(tensor)


def test_a_model_gets_the_parameters_it_has_an_input_for() -> None:
    ((text, tokens),) = requests(call("Hi", max_tokens=9), LLM, TritonOptions())
    assert (text.name, text.shape, decoded(text)) == ("text_input", (1, 1), [["Hi"]])
    assert (tokens.name, tokens.shape, decoded(tokens)) == ("max_tokens", (1, 1), [[9]])


def test_a_conversation_has_its_roles() -> None:
    ((text,),) = requests(call("Hi", "Still there?"), LLM, TritonOptions())
    assert decoded(text) == [["user: Hi\n\nuser: Still there?"]]


def test_messages_can_go_as_json() -> None:
    ((text,),) = requests(call("Hi"), LLM, TritonOptions(messages_input="stop_words"))
    assert decoded(text) == [['[{"role": "user", "content": "Hi"}]']]


def test_texts_go_in_batches_that_the_model_takes() -> None:
    texts = tuple("abcdefghij")
    asked = requests(call(embed=texts), LLM, TritonOptions())
    assert [tensor.shape for (tensor,) in asked] == [(8, 1), (2, 1)]


def test_the_text_is_found_among_other_outputs() -> None:
    answer = {
        name: encoded(name, "BYTES", [[text]])
        for name, text in (("log", "ok"), ("text_output", "tidal"))
    }
    made = completion(call("Hi"), LLM, TritonOptions(finish_reason="log"), [answer])
    assert (made.text, made.finish_reason) == ("tidal", "ok")


def test_two_texts_without_a_usual_name_have_to_be_named() -> None:
    unclear = Interface("m", {}, {"a": Port("BYTES", (1,)), "b": Port("BYTES", (1,))})
    with pytest.raises(InterfaceUnsuited, match="a, b"):
        completion(call("Hi"), unclear, TritonOptions(), [{}])


@pytest.mark.parametrize("shape", [(3,), (1, 3), (1, 1, 3)])
def test_one_vector_is_found_in_every_usual_shape(shape: tuple[int, ...]) -> None:
    interface = Interface("m", {}, {"v": Port("FP32", shape)})
    answer = {"v": Tensor("v", "FP32", shape, struct.pack("<3f", 1, 2, 3))}
    made = completion(call(embed=("x",)), interface, TritonOptions(), [answer])
    assert made.embeddings == ((1.0, 2.0, 3.0),)
    assert math.prod(shape) == 3


def test_a_negative_count_of_tokens_is_refused() -> None:
    answer = {"n": encoded("n", "INT32", [-1]), "text_output": encoded("t", "BYTES", ["x"])}
    with pytest.raises(TensorInvalid, match="below 0"):
        completion(call("Hi"), LLM, TritonOptions(input_tokens="n"), [answer])


def test_a_text_that_every_answer_lacks_is_missing_and_not_empty() -> None:
    """A version of the model with other outputs may be loaded since they were asked for."""
    renamed = {"answer": encoded("answer", "BYTES", ["tidal"])}
    with pytest.raises(TensorInvalid, match=r"text_output.*missing"):
        completion(call("Hi"), LLM, TritonOptions(), [renamed])
    told = {"text_output": encoded("text_output", "BYTES", ["tidal"])}
    assert completion(call("Hi"), LLM, TritonOptions(), [told, renamed]).text == "tidal"
    assert completion(call("Hi"), LLM, TritonOptions(), []).text == ""


def test_a_call_with_tensors_gets_every_output_although_the_text_is_missing() -> None:
    answer = {"answer": encoded("answer", "INT32", [7])}
    made = completion(call(context={"tensors": {}}), LLM, TritonOptions(), [answer])
    assert (made.text, made.data) == ("", {"answer": [7]})


@pytest.mark.parametrize(
    "tensor",
    [
        encoded("v", "FP64", [1e39]),
        encoded("v", "FP64", [math.nan]),
        encoded("v", "FP32", [-math.inf, math.inf]),
        encoded("v", "BYTES", ["1.0"]),
        encoded("v", "FP32", 1.0),
    ],
)
def test_an_output_that_holds_no_embedding_is_refused(tensor: Tensor) -> None:
    with pytest.raises(TensorInvalid):
        completion(call(embed=("x",)), LLM, TritonOptions(embedding_output="v"), [{"v": tensor}])
