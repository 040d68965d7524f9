"""Estimates the usage of a request whose backend did not report it: it was stopped, timed out,
broke off, or never reports usage.

What happens when a connection closes differs. vLLM, SGLang, llama.cpp, TGI and Ollama stop
generating. Of the providers behind an aggregator, some stop and some (Bedrock, Groq, Google,
Mistral) finish the answer and charge for it
(https://openrouter.ai/docs/api-reference/streaming#stream-cancellation), and a non-streamed reply
is charged in full almost everywhere. So an engine is assumed to continue unless its configuration
says `stops_on_disconnect`; then only what it had written by that time counts. For a non-streamed
answer that is derived from how fast the engine wrote others (`core/budgets/decode_speed.py`) or, if
unknown, from a speed that no engine exceeds.
"""

from hocket.gateway.core.calls import request_content
from hocket.gateway.core.calls.request_content import WORST_OUTPUT_TOKENS
from hocket.gateway.core.protocols.openai_api import MAX_CALL_TOKENS
from hocket.schemas.messages import CallRequest, Completion

BYTES_PER_TOKEN = 4
FASTEST_TOKENS_PER_S = 500
"""The assumed upper bound on the speed, for one caller, of engines that stop on disconnect."""


def used(
    request: CallRequest,
    seen: Completion,
    *,
    cut: bool,
    goes_on: bool,
    elapsed_ms: float,
    written: float | None = None,
) -> Completion:
    """Return the usage to record for a request, marked as estimated.

    `seen` is what was received: tokens that were counted, or estimated within what the call allows, or
    text. `cut` means that its end was not received,
    `goes_on` that the engine keeps generating regardless. `written` is how many tokens of an answer
    the engine writes in `elapsed_ms`, if known.
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
    most = _most_tokens(request)
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


def read_tokens(request: CallRequest, read_bytes: int) -> int:
    """Return the estimated tokens of an answer of which only the size is known: at most as many as the
    call allows, because a reply has more in it than what the model wrote (the log probabilities of each
    token, for example)."""
    return min(read_bytes // BYTES_PER_TOKEN, _most_tokens(request))


def _most_tokens(request: CallRequest) -> int:
    return min(request_content.written_tokens(request, WORST_OUTPUT_TOKENS), MAX_CALL_TOKENS)


def _tokens(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN
