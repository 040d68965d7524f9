"""Gateways in front of emulated engines, with a ledger: what is booked is compared with the engines'
own meters."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from hocket.emulator.configuration import parse
from hocket.emulator.running import RunningEngine, running
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from hocket.kit.process import clock
from hocket.schemas.messages import Attribution, CallRequest, ChatMessage
from support.gateway.gateway_process import Gateway, running_gateway
from support.ledger_rig import drained, running_ledger

BOUND_S = 60.0
INPUT_USD, OUTPUT_USD = Decimal("0.5"), Decimal(2)
PRICES = {"input_usd_per_mtok": str(INPUT_USD), "output_usd_per_mtok": str(OUTPUT_USD)}
HEDGE = {"quantile": 0.5, "min_ms": 30, "share": 1.0, "burst": 50}
Tokens = tuple[int, int]


@dataclass
class House:
    """Gateways in front of two engines, and a ledger."""

    bus: Bus
    pool: asyncpg.Pool
    engines: list[RunningEngine]
    gateways: list[Gateway]
    stack: AsyncExitStack
    nats_url: str
    folder: Path
    models: dict[str, Any]
    sections: dict[str, Any]

    async def starts(self, name: str) -> None:
        """Start another gateway."""
        (self.folder / name).mkdir()
        started = running_gateway(self.nats_url, self.folder / name, self.models, **self.sections)
        self.gateways.append(await self.stack.enter_async_context(started))

    async def stops(self) -> None:
        """Stop the gateway that was started first, and wait until it has ended."""
        stopped = self.gateways.pop(0)
        stopped.process.terminate()
        await stopped.process.wait()

    def metered(self) -> dict[str, Counter[Tokens]]:
        """Return what the engines metered, by call."""
        found: dict[str, Counter[Tokens]] = {}
        for one in self.engines:
            for entry in one.engine.journal.entries():
                tokens = (entry["prompt_tokens"], entry["completion_tokens"])
                if any(tokens):
                    found.setdefault(entry["request_id"], Counter())[tokens] += 1
        return found

    async def booked(self) -> dict[str, Counter[Tokens]]:
        """Return what the ledger has booked, by call."""
        found: dict[str, Counter[Tokens]] = {}
        for row in await self.pool.fetch("SELECT * FROM hocket.usage"):
            tokens = (row["input_tokens"], row["output_tokens"])
            if not any(tokens):
                continue
            assert not row["estimated"], dict(row)
            cost_usd = (tokens[0] * INPUT_USD + tokens[1] * OUTPUT_USD) / 1_000_000
            assert row["cost_usd"] == cost_usd, dict(row)
            found.setdefault(base_of(row["call_id"]), Counter())[tokens] += 1
        return found

    async def script(self, *faults: dict[str, Any]) -> None:
        """Script faults for the next requests of each engine."""
        async with aiohttp.ClientSession() as session:
            for one in self.engines:
                answer = await session.post(f"{one.url}/emulator/script", json=list(faults))
                answer.raise_for_status()

    async def streamed(
        self,
        gateway: Gateway,
        call_id: str,
        *,
        pieces: int | None,
        budget_usd: Decimal | None = None,
        **headers: str,
    ) -> None:
        """Request a stream at a gateway's door, and disconnect after `pieces` pieces."""
        body = {
            "model": "writer",
            "stream": True,
            "messages": [{"role": "user", "content": "How often, at this door?"}],
            "max_tokens": 40,
        }
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"{gateway.url}/chat/completions",
                json=body,
                headers={**_headers(call_id, budget_usd), **headers},
            ) as response,
        ):
            seen = 0
            async for _ in response.content:
                seen += 1
                if pieces is not None and seen > pieces:
                    return

    async def posted(
        self,
        gateway: Gateway,
        path: str,
        call_id: str,
        body: dict[str, Any],
        *,
        budget_usd: Decimal | None = None,
        **headers: str,
    ) -> int:
        """Request a complete answer at a gateway's door, and return the status."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"{gateway.url}/{path}",
                json={"model": "writer", **body},
                headers={**_headers(call_id, budget_usd), **headers},
            ) as response,
        ):
            await response.read()
            return response.status

    async def embedded(self, gateway: Gateway, call_id: str, **asked: Any) -> None:
        """Request embeddings at a gateway's door."""
        body = {"input": ["word " * 40, "another word"]}
        await self.posted(gateway, "embeddings", call_id, body, **asked)


def _headers(call_id: str, budget_usd: Decimal | None) -> dict[str, str]:
    budget = {} if budget_usd is None else {"X-Hocket-Budget-Usd": str(budget_usd)}
    return {"X-Hocket-Call-Id": call_id, "X-Hocket-Run-Id": "agent-7", **budget}


def base_of(call_id: str) -> str:
    """Return a call's id without the parts that distinguish its requests."""
    parts = call_id.split(":")
    while parts[-1] == "h" or (parts[-1][:1] in "rt" and parts[-1][1:].isdecimal()):
        parts.pop()
    return ":".join(parts)


def asks(number: int, **fields: Any) -> CallRequest:
    return CallRequest.model_validate(
        {
            "call_id": f"judged:{number}",
            "model": "writer",
            "messages": (ChatMessage(role="user", content="word " * (1 + number % 17)),),
            "max_tokens": 8 + number % 40,
            "deadline_at_ms": clock.now_ms() + 1_000 * BOUND_S,
            "attribution": Attribution(run_id="r1", pipeline="report", node="draft"),
            **fields,
        }
    )


@asynccontextmanager
async def judged_house(
    bus: Bus,
    nats_url: str,
    database_url: str,
    folder: Path,
    names: Sequence[str] = ("one",),
    **sections: Any,
) -> AsyncIterator[House]:
    """Run two engines, gateways with these names in front of them, and a ledger. `sections` are
    sections of the gateways' configuration other than `models:`."""
    fast = {"prefill_tokens_per_s": 1e6, "decode_tokens_per_s": 200, "batch_tokens_per_s": 1e6}
    profile = {"model": "llm", "max_running": 64, **fast}
    engines = parse({"engines": [{"port": 0, "replicas": 2, "profile": profile}]})
    pool = await connect_pool(database_url, size=2, name="test")
    async with running(engines) as emulated:
        backends = [
            {
                "name": f"engine{number}",
                "base_url": f"{one.url}/v1",
                "model": "llm",
                "limit": 64,
                "prices": PRICES,
            }
            for number, one in enumerate(emulated)
        ]
        models = {"writer": {"backends": backends, "hedge": HEDGE, "retries": 3, "breaker": False}}
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(running_ledger(bus, pool))
            started = House(bus, pool, emulated, [], stack, nats_url, folder, models, sections)
            for name in names:
                await started.starts(name)
            yield started
    await pool.close()


async def equal(house: House) -> bool:
    """Return whether the ledger has what the engines metered, and nothing else."""
    await drained(house.bus)
    return house.metered() == await house.booked()
