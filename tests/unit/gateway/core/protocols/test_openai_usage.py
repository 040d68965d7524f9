"""The usage that OpenAI-compatible backends report."""

from typing import Any

import pytest

from hocket.gateway.core.protocols.openai_api import usage

COUNTS = {"prompt_tokens": 120, "completion_tokens": 7}


@pytest.mark.parametrize(
    ("more", "written"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 30}}, 30),
        ({"prompt_tokens_details": {"cached_tokens": 20}, "cache_creation_input_tokens": 30}, 30),
        ({"prompt_tokens_details": {"cached_tokens": 20}, "cache_creation_input_tokens": None}, 0),
        ({"prompt_tokens_details": {"cached_tokens": 20}}, 0),
    ],
)
def test_what_was_written_to_a_prompt_cache_is_read_wherever_routers_report_it(
    more: dict[str, Any], written: int
) -> None:
    used = usage({**COUNTS, **more})
    assert (used.input_tokens, used.cached_tokens) == (120, 20)
    assert used.cache_write_tokens == written
