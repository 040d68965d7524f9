"""A job of an engine, and what happens to it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """One sequence: its prompt as a count of tokens and as full blocks, and the tokens to make."""

    job_id: str
    prompt_tokens: int
    output_tokens: int
    chain: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A job's prompt is read, and its first token there."""

    job_id: str
    at_ms: float
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A job's last token is there."""

    job_id: str
    at_ms: float


Event = Prefilled | Finished
