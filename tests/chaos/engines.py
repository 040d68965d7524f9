"""Emulated engines behind the models that have prices.

They run in the play's own process, where no fault affects them, and the ledger is compared with their
meters."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hocket.emulator.configuration import parse
from hocket.emulator.running import RunningEngine, running

INPUT_USD, OUTPUT_USD = Decimal("0.5"), Decimal(2)
"""US dollars per million tokens."""
PRICES = {"input_usd_per_mtok": str(INPUT_USD), "output_usd_per_mtok": str(OUTPUT_USD)}
HEDGE = {"quantile": 0.5, "min_ms": 30, "share": 1.0, "burst": 50}
FUNCTIONS = {"probe": "chaos.chaos_handlers:answer", "planner": "chaos.chaos_handlers:plan"}
"""Models without prices, with the functions that answer for them."""
TOKENS_PER_S = 100
PROFILE = {
    "model": "llm",
    "output_tokens": 200,
    "prefill_tokens_per_s": 1e6,
    "decode_tokens_per_s": TOKENS_PER_S,
    "batch_tokens_per_s": 1e6,
    "journal_entries": 1_000_000,
}
FAULTS = {"error_rate": 0.05, "disconnect_rate": 0.03, "delay_rate": 0.05, "delay_s": 0.4}
REPLICAS = 2
"""Engines that continue to generate after the client disconnects; one more engine stops."""


@dataclass(frozen=True)
class Metered:
    """A request as metered by an engine; `ended_at_s` is None if processing never started."""

    request_id: str
    status: str
    input_tokens: int
    output_tokens: int
    asked_at_s: float
    ended_at_s: float | None

    @property
    def cost_usd(self) -> Decimal:
        """Its cost at the configured prices."""
        return cost_usd(self.input_tokens, self.output_tokens)


@dataclass(frozen=True)
class Engines:
    """The engines of a play, for a seed."""

    seed: int
    running: list[RunningEngine]

    def models(self) -> dict[str, Any]:
        """Return the section `models` of the gateways' configuration."""
        writers = [self._backend("writer", number) for number in range(REPLICAS)]
        stopping = self._backend("stopping", REPLICAS) | {"stops_on_disconnect": True}
        common = {"retries": 3, "breaker": False}
        functions = {
            name: {"backends": [{"function": function}]} for name, function in FUNCTIONS.items()
        }
        return functions | {
            "writer": {"backends": writers, "hedge": HEDGE, **common},
            "small": {"backends": [self._backend("small", 0)], **common},
            "large": {"backends": [self._backend("large", 1)], **common},
            "chosen": {"cascade": {"models": ["small", "large"], "accept": "call.task == 'never'"}},
            "stopping": {"backends": [stopping], **common},
        }

    def metered(self) -> list[Metered]:
        """Return all requests that the engines metered."""
        return [
            Metered(
                request_id=entry["request_id"],
                status=entry["status"],
                input_tokens=entry["prompt_tokens"],
                output_tokens=entry["completion_tokens"],
                asked_at_s=entry["asked_at_s"],
                ended_at_s=entry["ended_at_s"],
            )
            for one in self.running
            for entry in one.engine.journal.entries()
        ]

    def _backend(self, model: str, number: int) -> dict[str, Any]:
        return {
            "name": f"{model}{number}",
            "base_url": f"{self.running[number].url}/v1",
            "model": "llm",
            "limit": 64,
            "prices": PRICES,
        }


def cost_usd(input_tokens: int, output_tokens: int) -> Decimal:
    """Return the cost of these tokens at the configured prices."""
    return (input_tokens * INPUT_USD + output_tokens * OUTPUT_USD) / 1_000_000


@asynccontextmanager
async def running_engines(seed: int) -> AsyncIterator[Engines]:
    """Run the engines inside the block."""
    group = {"port": 0, "profile": PROFILE, "faults": FAULTS}
    document = {"seed": seed, "engines": [group | {"replicas": REPLICAS + 1}]}
    async with running(parse(document)) as engines:
        yield Engines(seed, engines)
