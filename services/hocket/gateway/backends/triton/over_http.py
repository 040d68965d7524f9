"""Triton over HTTP: the KServe v2 protocol with its binary tensors, and Triton's extensions.

A body is JSON that describes the tensors, followed by their bytes; a header says where the JSON
ends. This is implemented here because tritonclient's HTTP module would bring gevent into the
process; the format is one page of the protocol's "binary tensor data extension".
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from hocket.gateway.backends.http_endpoint import HttpEndpoint, Reply
from hocket.gateway.backends.protocol import (
    BackendBroken,
    BackendMisconfigured,
    BackendRefused,
    BackendUnreachable,
)
from hocket.gateway.backends.triton.transport_protocol import Answer
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.tensors import Tensor, TensorInvalid, encoded
from hocket.gateway.core.protocols.triton import Interface, Port

HEADER_LENGTH = "Inference-Header-Content-Length"
MAX_LENGTH_DIGITS = 10


class OverHttp:
    """See `Transport`."""

    def __init__(self, spec: BackendSpec, now_ms: Callable[[], float]) -> None:
        secret = "" if spec.api_key is None else spec.api_key.get_secret_value()
        self._spec = spec
        self._endpoint = HttpEndpoint(
            spec.name,
            spec.base_url,
            headers={"Authorization": f"Bearer {secret}"} if secret else {},
            limit=spec.limit,
            now_ms=now_ms,
            secret=secret,
        )
        self._model = quote(spec.target, safe="")
        version = quote(spec.triton.version, safe="")
        self._path = f"v2/models/{self._model}" + (f"/versions/{version}" if version else "")

    async def interface(self, *, timeout_ms: float) -> Interface:
        metadata = await self._get(self._path, timeout_ms)
        config = await self._get(f"{self._path}/config", timeout_ms)
        policy = config.get("model_transaction_policy")
        try:
            return Interface(
                model=str(metadata["name"]),
                inputs=dict(map(_port, metadata.get("inputs", ()))),
                outputs=dict(map(_port, metadata.get("outputs", ()))),
                max_batch=int(config.get("max_batch_size", 0)),
                decoupled=isinstance(policy, dict) and policy.get("decoupled") is True,
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._endpoint.errors.malformed("its metadata cannot be read") from error

    async def infer(self, inputs: Sequence[Tensor], *, timeout_ms: float) -> Answer:
        head = {
            "inputs": [
                {
                    "name": tensor.name,
                    "datatype": tensor.datatype,
                    "shape": list(tensor.shape),
                    "parameters": {"binary_data_size": len(tensor.content)},
                }
                for tensor in inputs
            ],
            "parameters": {"binary_data_output": True},
        }
        encoded_head = json.dumps(head).encode()
        content = b"".join([encoded_head, *(tensor.content for tensor in inputs)])
        headers = {
            "Content-Type": "application/octet-stream",
            HEADER_LENGTH: str(len(encoded_head)),
        }
        return await self._endpoint.ask(
            "POST",
            f"{self._path}/infer",
            content,
            headers=headers,
            timeout_ms=timeout_ms,
            read=lambda reply: {tensor.name: tensor for tensor in self._tensors(reply)},
        )

    def stream(
        self,
        inputs: Sequence[Tensor],  # noqa: ARG002
        *,
        timeout_ms: float,  # noqa: ARG002
    ) -> AsyncIterator[Answer]:
        raise BackendMisconfigured(
            component=self._spec.name,
            status="not sent",
            reason="it sends several responses to one request (decoupled): use grpc:// for it",
        )

    async def load(self, *, timeout_ms: float) -> None:
        await self._post(f"v2/repository/models/{self._model}/load", timeout_ms)

    async def unload(self, *, timeout_ms: float) -> None:
        await self._post(f"v2/repository/models/{self._model}/unload", timeout_ms)

    async def ready(self, *, timeout_ms: float) -> bool:
        try:
            await self._endpoint.send("GET", f"{self._path}/ready", timeout_ms=timeout_ms)
        except (BackendRefused, BackendMisconfigured, BackendBroken, BackendUnreachable):
            return False
        return True

    async def statistics(self, *, timeout_ms: float) -> dict[str, Any]:
        return await self._get(f"{self._path}/stats", timeout_ms)

    async def close(self) -> None:
        await self._endpoint.close()

    async def _get(self, path: str, timeout_ms: float) -> dict[str, Any]:
        return await self._endpoint.ask(
            "GET",
            path,
            timeout_ms=timeout_ms,
            read=lambda reply: self._endpoint.object_of(reply.content),
        )

    async def _post(self, path: str, timeout_ms: float) -> None:
        await self._endpoint.send("POST", path, b"{}", timeout_ms=timeout_ms)

    def _tensors(self, reply: Reply) -> Iterator[Tensor]:
        length = reply.headers.get(HEADER_LENGTH.lower(), "")
        has_length = length.isascii() and length.isdigit() and len(length) <= MAX_LENGTH_DIGITS
        at = int(length) if has_length else len(reply.content)
        head = self._endpoint.object_of(reply.content[:at])
        try:
            for output in head["outputs"]:
                name, datatype, shape = _described(output)
                parameters = output.get("parameters")
                size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
                if size is None:
                    yield encoded(name, datatype, output["data"], shape)
                    continue
                content = reply.content[at : at + size]
                at += size
                yield Tensor(name, datatype, shape, content)
        except (KeyError, TypeError, AttributeError, TensorInvalid) as error:
            raise self._endpoint.errors.malformed("its outputs cannot be read") from error


def _port(described: Mapping[str, Any]) -> tuple[str, Port]:
    shape = list(map(int, described["shape"]))
    name, datatype, sizes = _described({**described, "shape": shape})
    return name, Port(datatype, sizes)


def _described(tensor: Mapping[str, Any]) -> tuple[str, str, tuple[int, ...]]:
    """Return name, datatype and shape of a tensor; raise TypeError if they are something else."""
    name, datatype, shape = tensor["name"], tensor["datatype"], tensor["shape"]
    if not (isinstance(name, str) and isinstance(datatype, str)):
        raise TypeError("names are text")
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise TypeError("a shape is a list of sizes")
    return name, datatype, tuple(shape)
