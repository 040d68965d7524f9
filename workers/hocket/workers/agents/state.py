"""The state of an agent that is passed from one round to the next. Pure."""

from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hocket.schemas.messages import CallReply, ChatMessage


class Usage(BaseModel):
    """What the model used in all rounds; money of tools is not in it."""

    model_config = ConfigDict(frozen=True)

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: Decimal = Decimal(0)

    @property
    def tokens(self) -> int:
        """The tokens of prompts and answers together."""
        return self.input_tokens + self.output_tokens

    def with_call(self, reply: CallReply) -> "Usage":
        """Return it with one more call."""
        return Usage(
            input_tokens=self.input_tokens + reply.input_tokens,
            output_tokens=self.output_tokens + reply.output_tokens,
            cached_tokens=self.cached_tokens + reply.cached_tokens,
            cost_usd=self.cost_usd + reply.cost_usd,
        )


class MadeCall(BaseModel):
    """A call that is carried out: its step below the round, and the id by which the model knows it."""

    model_config = ConfigDict(frozen=True)

    id: str
    step: str
    tool: str
    arguments: dict[str, Any]


class Refused(BaseModel):
    """A call that is not carried out, and what the model is told of it."""

    model_config = ConfigDict(frozen=True)

    id: str
    reason: str


class Rounds(BaseModel):
    """Those that are over. `messages` have no system message; `results` is what the coordinator adds, by
    step."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    done: bool = False
    rounds: int = 0
    tool_calls: int = 0
    messages: tuple[ChatMessage, ...] = ()
    calls: tuple[MadeCall, ...] = ()
    refused: tuple[Refused, ...] = ()
    results: dict[str, Any] = Field(default_factory=dict)
    usage: Usage = Usage()
    most_tokens: int = 0
    """Of one round so far; `most_usd` and `longest_ms` likewise."""
    most_usd: Decimal = Decimal(0)
    longest_ms: float = 0.0
    began_at_ms: float = 0.0
    """When the last of them began."""
    run_ends_at_ms: float = 0.0
    """The deadline of the run at that time; 0 if a former release wrote this."""
