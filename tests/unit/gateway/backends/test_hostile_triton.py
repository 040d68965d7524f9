"""Replies of a Triton server that means harm: each costs its call a typed error, and says no key."""

import json
from typing import Any

import pytest
from pydantic import SecretStr

from hocket.gateway.backends.http_endpoint import Reply
from hocket.gateway.backends.protocol import BackendReplyMalformed
from hocket.gateway.backends.triton.over_http import OverHttp
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.tensors import Tensor, TensorInvalid, decoded

SECRET = "sk-very-secret-0123456789"
SPEC = BackendSpec("b", "triton", "m", base_url="http://127.0.0.1:9", api_key=SecretStr(SECRET))
WHOLE = {"name": "OUT", "datatype": "INT32", "shape": [1], "data": [7]}


def reply(output: Any, length: str | None = None) -> Reply:
    content = json.dumps({"outputs": [output]}).encode()
    headers = {} if length is None else {"inference-header-content-length": length}
    return Reply(headers, content)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ["OUT"]},
        {"datatype": ["INT32"]},
        {"shape": ["1"], "parameters": {"binary_data_size": 0}},
        {"shape": "1", "parameters": {"binary_data_size": 0}},
        {"shape": [1.0], "parameters": {"binary_data_size": 0}},
    ],
)
async def test_an_output_that_is_described_wrongly_is_malformed(fields: dict[str, Any]) -> None:
    server = OverHttp(SPEC, lambda: 0.0)
    with pytest.raises(BackendReplyMalformed):
        list(server._tensors(reply({**WHOLE, **fields})))
    await server.close()


@pytest.mark.parametrize("length", ["²", "9" * 5_000, "-1", "x"])
async def test_a_length_that_is_none_is_as_if_it_were_missing(length: str) -> None:
    server = OverHttp(SPEC, lambda: 0.0)
    (tensor,) = server._tensors(reply(WHOLE, length))
    assert decoded(tensor) == [7]
    await server.close()


def test_a_tensor_of_very_many_dimensions_is_not_valid() -> None:
    with pytest.raises(TensorInvalid, match="deeper than 16"):
        decoded(Tensor("OUT", "INT32", (1,) * 5_000, b"\0" * 4))


async def test_the_key_of_a_triton_server_reaches_nobody() -> None:
    server = OverHttp(SPEC, lambda: 0.0)
    failed = server._endpoint.errors.failure(401, {}, f"Wrong key: {SECRET}".encode())
    assert SECRET not in str(failed)
    await server.close()


@pytest.mark.parametrize("shape", [(10**12, 0), (10**7, 1, 1, 0), (-1, -1)])
def test_a_shape_that_names_very_many_lists_is_not_valid(shape: tuple[int, ...]) -> None:
    content = b"\0" * 4 if 0 not in shape else b""
    with pytest.raises(TensorInvalid, match="lists"):
        decoded(Tensor("OUT", "INT32", shape, content))


def test_a_tensor_without_values_is_valid() -> None:
    assert decoded(Tensor("OUT", "INT32", (2, 0), b"")) == [[], []]
