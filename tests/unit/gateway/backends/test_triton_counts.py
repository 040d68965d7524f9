"""Models on Triton whose outputs do not tell how many tokens they used."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import pytest

from hocket.gateway.backends.protocol import BackendBroken, Chunk
from hocket.gateway.backends.triton.backend import TritonBackend
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.tensors import Tensor, encoded
from hocket.gateway.core.protocols.triton import Interface, Port, TritonOptions
from hocket.schemas.messages import CallRequest

INTERFACE = Interface(
    "m",
    {"text_input": Port("BYTES", (1,))},
    {"text_output": Port("BYTES", (1,)), "IN": Port("INT32", (1,)), "OUT": Port("INT32", (1,))},
)
COUNTED = TritonOptions(input_tokens="IN", output_tokens="OUT")
PER_TOKEN = Prices(input_usd_per_mtok=Decimal(1), output_usd_per_mtok=Decimal(2))
PER_REQUEST = Prices(request_usd=Decimal("0.01"))


class Server:
    """A server that answers every request with the same text and counts."""

    async def interface(self, *, timeout_ms: float) -> Interface:
        return INTERFACE

    async def infer(
        self,
        inputs: Sequence[Tensor],
        *,
        timeout_ms: float,
    ) -> dict[str, Tensor]:
        return {
            "text_output": encoded("text_output", "BYTES", ["an answer"]),
            "IN": encoded("IN", "INT32", [7]),
            "OUT": encoded("OUT", "INT32", [3]),
        }


@pytest.mark.parametrize(
    ("options", "prices", "estimated"),
    [
        (COUNTED, PER_TOKEN, False),
        (TritonOptions(), PER_TOKEN, True),
        (TritonOptions(input_tokens="IN"), PER_TOKEN, True),
        (TritonOptions(), PER_REQUEST, False),
        (TritonOptions(), Prices(), False),
    ],
)
async def test_what_is_priced_by_tokens_that_nobody_counts_is_estimated(
    options: TritonOptions, prices: Prices, estimated: bool
) -> None:
    spec = BackendSpec("b", kind="triton", target="m", triton=options, prices=prices)
    backend = TritonBackend(spec, cast(Any, Server()))
    request = CallRequest(
        call_id="c",
        tenant="t",
        model="m",
        messages=({"role": "user", "content": "a question"},),
        deadline_at_ms=1.0,
    )
    made = await backend.call(request, timeout_ms=60_000)
    assert (made.text, made.estimated) == ("an answer", estimated)
    assert made.input_tokens == (7 if options.input_tokens else 0)


class BreakingServer:
    """A server whose stream breaks off after some answers."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    async def interface(self, *, timeout_ms: float) -> Interface:
        return replace(INTERFACE, decoupled=True)

    async def stream(
        self,
        inputs: Sequence[Tensor],
        *,
        timeout_ms: float,
    ) -> AsyncIterator[dict[str, Tensor]]:
        for text in self._texts:
            yield {"text_output": encoded("text_output", "BYTES", [text])}
        raise BackendBroken(component="b", status="stream", reason="it broke")


@pytest.mark.parametrize(
    ("texts", "streams", "tokens"),
    [
        ((), True, 0),
        (("a", "b"), True, 2),
        (("a", "b"), False, 2),
        (("a" * 40, "b"), True, 10),
    ],
)
async def test_a_stream_that_breaks_off_has_spent_what_arrived(
    texts: Sequence[str], streams: bool, tokens: int
) -> None:
    spec = BackendSpec("b", kind="triton", target="m", prices=PER_TOKEN)
    backend = TritonBackend(spec, cast(Any, BreakingServer(texts)))
    request = CallRequest(
        call_id="c",
        model="m",
        messages=({"role": "user", "content": "a question"},),
        deadline_at_ms=1.0,
    )
    seen: list[Chunk] = []

    async def take(chunk: Chunk) -> None:
        seen.append(chunk)

    with pytest.raises(BackendBroken) as broken:
        await backend.call(request, timeout_ms=60_000, chunks=take if streams else None)
    spent = broken.value.spent
    assert (spent.output_tokens, spent.estimated) == (tokens, bool(tokens))
    assert (seen[-1].output_tokens if seen else 0) == (tokens if streams else 0)
