"""The fields of a body in OpenAI's shape that go to a backend as they came: pure.

Routers and providers read fields that choose another model, another provider or a dearer service
than the one that is booked (`models`, `provider`, `plugins`, `service_tier` ...), and new ones come all
the time. So what goes on is what is known to choose none of that: OpenAI's own parameters and those by
which engines sample. Any other field is refused, unless a backend's `pass_fields` names it.

Of `tools` functions go on, which the caller runs. What a provider runs itself (`web_search`,
`code_interpreter` ...) costs money of its own and reaches the network: it counts as a field
`tools.<type>`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.errors import FieldNotPassed
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.messages import CallRequest

CHOOSES_PRICE = frozenset({"service_tier", "web_search_options", "moderation"})
"""Parameters of OpenAI's that choose a price, a dearer service or another model."""

OPENAI_FIELDS = frozenset(
    """
    audio best_of dimensions echo encoding_format frequency_penalty function_call functions input
    logit_bias logprobs max_completion_tokens max_tokens messages metadata modalities model n
    parallel_tool_calls prediction presence_penalty prompt prompt_cache_key prompt_cache_options
    prompt_cache_retention reasoning_effort response_format safety_identifier seed stop store stream
    stream_options suffix temperature tool_choice tools top_logprobs top_p user verbosity
    """.split()
)
"""The others, of chat completions, completions and embeddings."""

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
"""What vLLM, SGLang, llama.cpp and TGI understand besides, of sampling, templates and guided output."""

FUNCTION_KEYS = frozenset({"type", "function", "strict", "cache_control"})
"""What the entry of a function in `tools` may have."""

KNOWN_FIELDS = OPENAI_FIELDS | ENGINE_FIELDS
"""What goes on to every backend."""


def unusual_fields(request: CallRequest) -> frozenset[str]:
    """Return the fields of a call that go only to backends that let them through."""
    if request.openai is None:
        return frozenset(_run_by_providers(request.tools)) if request.tools else frozenset()
    body = request.openai.body
    unusual = {name for name in body.keys() - KNOWN_FIELDS if body[name] is not None}
    if tools := body.get("tools"):
        unusual.update(_run_by_providers(tools))
    return frozenset(unusual)


def check_passed(model: str, fields: frozenset[str], backends: Iterable[BackendSpec]) -> None:
    """Raise FieldNotPassed where no backend of a model lets all these fields of a call through."""
    held = [fields - spec.pass_fields for spec in backends if spec.sends_fields]
    if held and all(held):
        fewest = sorted(held, key=len)[0]
        raise FieldNotPassed(field=shown_text(min(fewest)), model=model)


def _run_by_providers(tools: Any) -> Iterator[str]:
    """Yield what `tools` holds beside functions, as the name of a field."""
    for tool in tools if isinstance(tools, list | tuple) else [tools]:
        if not isinstance(tool, dict):
            yield "tools"
        elif tool.get("type", "function") != "function":
            yield f"tools.{tool['type']}"
        elif odd := tool.keys() - FUNCTION_KEYS:
            yield f"tools.{min(odd)}"
