"""The profile of one emulated engine: its speeds, limits and memory. All times are virtual."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_RATE = 1e9
MAX_BLOCKS = 10_000_000
MAX_SECONDS = 86_400.0

Rate = Annotated[float, Field(gt=0, le=MAX_RATE)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]


class EngineProfile(BaseModel):
    """One engine: one prefill at a time, first come first served; decoding in a continuous batch.

    A sequence decodes at `decode_tokens_per_s`, unless the batch is so large that its share of
    `batch_tokens_per_s` is less. At most `max_running` requests prefill or decode, `max_waiting` wait.
    The prefix cache holds `cache_blocks` blocks of `block_tokens` tokens, least recently used out first.

    An engine that is not `warm` from the start takes `provision_s` and then `load_s` until it serves;
    after `idle_s` without a request it goes away again (0: never). While it is cold requests `wait`,
    or are refused with 503.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field("emulated", min_length=1, max_length=200)
    prefill_tokens_per_s: Rate = 8_000.0
    decode_tokens_per_s: Rate = 50.0
    batch_tokens_per_s: Rate = 2_000.0
    max_running: int = Field(64, ge=1, le=100_000)
    max_waiting: int = Field(10_000, ge=0, le=1_000_000)
    cache_blocks: int = Field(5_000, ge=0, le=MAX_BLOCKS)
    block_tokens: int = Field(16, ge=1, le=65_536)
    max_model_tokens: int = Field(131_072, ge=1, le=100_000_000)
    output_tokens: int = Field(64, ge=1, le=1_000_000)
    """Tokens of a reply, unless the request says fewer (`max_tokens`)."""
    reply: Literal["words", "echo"] = "words"
    tool_turns: int = Field(1, ge=0, le=1_000)
    """Turns that call a tool before the answer, one tool of the request's after the other."""
    embedding_dimensions: int = Field(64, ge=1, le=8_192)
    warm: bool = True
    provision_s: Seconds = 0.0
    load_s: Seconds = 0.0
    idle_s: Seconds = 0.0
    while_cold: Literal["wait", "refuse"] = "wait"
    journal_entries: int = Field(10_000, ge=1, le=10_000_000)
    """Requests that the engine's journal remembers; of more, the last ones."""
