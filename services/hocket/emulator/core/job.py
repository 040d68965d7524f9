"""A job of an engine, and its events."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """One sequence: its prompt (a token count and a chain of full blocks),
    and the number of tokens to generate."""

    job_id: str
    prompt_tokens: int
    output_tokens: int
    chain: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A job's prompt has been computed, and its first token generated."""

    job_id: str
    at_ms: float
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A job's last token has been generated."""

    job_id: str
    at_ms: float


Event = Prefilled | Finished
