"""What a request used whose backend did not say: because it was stopped, took too long, broke off, or
never tells.

What a closed connection ends differs: vLLM, SGLang, llama.cpp, TGI and Ollama stop generating; of
providers behind an aggregator some stop and some (Bedrock, Groq, Google, Mistral) write the answer to
its end and charge for it (https://openrouter.ai/docs/api-reference/streaming#stream-cancellation), and
a whole reply is charged for in full almost everywhere. So an engine is taken to go on unless its
configuration says `stops_on_disconnect`: then only what it has written until then counts. Of a whole
answer that is told by how fast the engine wrote others (`core/budgets/decode_speed.py`); where it is not
known, by what no engine exceeds.
"""

from hocket.gateway.core.budgets.estimate import WORST_OUTPUT_TOKENS
from hocket.gateway.core.calls import request_content
from hocket.gateway.core.protocols.openai_api import MAX_CALL_TOKENS
from hocket.schemas.messages import CallRequest, Completion

BYTES_PER_TOKEN = 4
FASTEST_TOKENS_PER_S = 500
"""No engine that stops with its connection writes faster for one caller."""


def used(
    request: CallRequest,
    seen: Completion,
    *,
    cut: bool,
    goes_on: bool,
    elapsed_ms: float,
    written: float | None = None,
) -> Completion:
    """Return what a request is booked with, marked as estimated.

    `seen` is what came of it: tokens that were counted, or its text. `cut` says that nobody saw its
    end, `goes_on` that the engine writes on nevertheless. `written`: how many tokens of an answer the
    engine writes in `elapsed_ms`, where that is known.
    """
    input_tokens = 1 + sum(map(_tokens, request_content.texts(request)))
    return seen.model_copy(
        update={
            "input_tokens": max(seen.input_tokens, input_tokens, request_content.tokens(request)),
            "output_tokens": 0
            if request_content.embeds(request)
            else _output_tokens(
                request, seen, cut=cut, goes_on=goes_on, elapsed_ms=elapsed_ms, written=written
            ),
            "estimated": True,
        }
    )


def _output_tokens(
    request: CallRequest,
    seen: Completion,
    *,
    cut: bool,
    goes_on: bool,
    elapsed_ms: float,
    written: float | None,
) -> int:
    most = request_content.choices(request) * (
        request_content.max_tokens(request) or WORST_OUTPUT_TOKENS
    )
    most = min(most, MAX_CALL_TOKENS)
    known = max(seen.output_tokens, _tokens(seen.text))
    if not cut:
        return min(known, max(most, seen.output_tokens))
    if goes_on:
        return max(known, most)
    if known:
        return known
    if written is not None:
        return min(most, round(written * request_content.choices(request)))
    return min(most, 1 + int(elapsed_ms / 1000 * FASTEST_TOKENS_PER_S))


def _tokens(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN
