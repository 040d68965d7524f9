"""Which fields of an OpenAI-style body are forwarded to a backend unchanged. Pure.

Routers and providers read fields that select another model, another provider or a more expensive
service than the one that is booked (`models`, `provider`, `plugins`, `service_tier` ...), and new
ones appear all the time. So only fields known to select none of that are forwarded: OpenAI's own
parameters and the sampling parameters of engines. Any other field is refused, unless a backend's
`pass_fields` names it.

Of `tools`, functions are forwarded, because the caller runs them. Tools that a provider runs itself
(`web_search`, `code_interpreter` ...) cost extra and reach the network; each counts as a field
`tools.<type>`. A `cache_control` with a longer lifetime than the usual one costs more, wherever it
stands in messages and tools, and counts as a field `cache_control`. Sound costs more per token than
text: `audio`, parts of messages that hold it (`input_audio`, `audio_url`), and `modalities` that are
not only text are held back, too.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hocket.gateway.core.calls.request_content import RESPONSE_LIMIT
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.content.content_notes import noted
from hocket.gateway.core.errors import FieldNotPassed
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.messages import CallRequest

MODALITIES = "modalities"
OF_SOUND = frozenset({"audio", MODALITIES})
"""OpenAI parameters that ask for an answer in sound."""
CHOOSES_PRICE = frozenset({"service_tier", "web_search_options", "moderation"}) | OF_SOUND
"""OpenAI parameters that select a price, a more expensive service or another model."""

OPENAI_FIELDS = frozenset(
    """
    best_of dimensions echo encoding_format frequency_penalty function_call functions input
    logit_bias logprobs max_completion_tokens max_tokens messages metadata model n parallel_tool_calls
    prediction presence_penalty prompt prompt_cache_key prompt_cache_options prompt_cache_retention
    reasoning_effort response_format safety_identifier seed stop store stream stream_options suffix
    temperature tool_choice tools top_logprobs top_p user verbosity
    """.split()
)
"""The other OpenAI parameters of chat completions, completions and embeddings."""

ENGINE_FIELDS = frozenset(
    """
    add_generation_prompt add_special_tokens allowed_token_ids bad_words cache_prompt
    chat_template_kwargs continue_final_message documents dynatemp_exponent dynatemp_range
    dry_allowed_length dry_base dry_multiplier dry_penalty_last_n dry_sequence_breakers ebnf
    enable_thinking grammar guided_choice guided_decoding_backend guided_grammar guided_json
    guided_regex guided_whitespace_pattern ignore_eos include_reasoning include_stop_str_in_output
    input_type json_schema length_penalty min_keep min_p min_tokens mirostat mirostat_eta mirostat_tau
    no_stop_trim prompt_logprobs reasoning regex repeat_last_n repeat_penalty repetition_penalty
    return_token_ids return_tokens_as_token_ids separate_reasoning skip_special_tokens
    spaces_between_special_tokens stop_token_ids stream_reasoning structured_outputs tfs_z thinking
    thinking_budget top_a top_k top_n_sigma truncate truncate_prompt_tokens typical_p
    xtc_probability xtc_threshold
    """.split()
)
"""Parameters that vLLM, SGLang, llama.cpp and TGI add, for sampling, templates and guided output."""

CACHE_CONTROL = "cache_control"
USUAL_TTL = "5m"
"""The lifetime in a prompt cache that a mark without one stands for."""

FUNCTION_KEYS = frozenset({"type", "function", "strict", CACHE_CONTROL})
"""The keys allowed in a function's entry in `tools`."""

_SOUND = ("audio", "input_audio", "audio_url")
"""The fields of messages (an earlier answer) and of their parts that hold sound."""
_TEXT_ONLY: tuple[list[str], ...] = ([], ["text"])

KNOWN_FIELDS = OPENAI_FIELDS | ENGINE_FIELDS | {RESPONSE_LIMIT}
"""Fields forwarded to every backend."""


def unusual_fields(request: CallRequest) -> frozenset[str]:
    """Return the fields of a call that are forwarded only to backends that allow them; a request is
    looked through once."""
    return noted(request, "_unusual", _unusual)


def _unusual(request: CallRequest) -> frozenset[str]:
    if request.openai is None:
        return frozenset(_of_tools(request.tools)) if request.tools else frozenset()
    body = request.openai.body
    unusual = {name for name in body.keys() - KNOWN_FIELDS if body[name] is not None}
    if body.get(MODALITIES) in _TEXT_ONLY:
        unusual.discard(MODALITIES)
    if tools := body.get("tools"):
        unusual.update(_of_tools(tools))
    messages = body.get("messages")
    if isinstance(messages, list):
        unusual.update(_of_messages(messages))
    return frozenset(unusual)


def lives_longer(mark: Mapping[str, Any]) -> bool:
    """Return whether a cache mark asks for another lifetime than the usual one."""
    return mark.get("ttl") not in (None, USUAL_TTL)


def check_passed(model: str, fields: frozenset[str], backends: Iterable[BackendSpec]) -> None:
    """Raise FieldNotPassed if no backend of a model allows all of these fields."""
    held = [fields - spec.pass_fields for spec in backends if spec.sends_fields]
    if held and all(held):
        fewest = sorted(held, key=len)[0]
        raise FieldNotPassed(field=shown_text(min(fewest)), model=model)


def _of_messages(messages: list[Any]) -> Iterator[str]:
    """Yield, as field names, what is unusual in `messages`."""
    holders = list(_with_parts(messages))
    if _is_any_cached_longer(holders):
        yield CACHE_CONTROL
    for holder in holders:
        if isinstance(holder, dict):
            yield from (name for name in _SOUND if holder.get(name) is not None)


def _with_parts(messages: list[Any]) -> Iterator[Any]:
    """Yield messages, their parts and their tool calls."""
    for message in messages:
        yield message
        if isinstance(message, dict):
            for name in ("content", "tool_calls"):
                parts = message.get(name)
                if isinstance(parts, list):
                    yield from parts


def _is_any_cached_longer(holders: Iterable[Any]) -> bool:
    for holder in holders:
        if isinstance(holder, dict) and CACHE_CONTROL in holder:
            mark = holder[CACHE_CONTROL]
            if isinstance(mark, dict) and lives_longer(mark):
                return True
    return False


def _of_tools(tools: Any) -> Iterator[str]:
    """Yield, as field names, what is unusual in `tools`."""
    yield from _run_by_providers(tools)
    if isinstance(tools, list | tuple) and _is_any_cached_longer(tools):
        yield CACHE_CONTROL


def _run_by_providers(tools: Any) -> Iterator[str]:
    """Yield, as field names, the entries of `tools` that are not functions."""
    for tool in tools if isinstance(tools, list | tuple) else [tools]:
        if not isinstance(tool, dict):
            yield "tools"
        elif tool.get("type", "function") != "function":
            yield f"tools.{tool['type']}"
        elif odd := tool.keys() - FUNCTION_KEYS:
            yield f"tools.{min(odd)}"
