"""Measure a step's time to first token, with and without prefilling the beginning of its prompt.

Uses its own platform in a temporary folder, with `hocket emulate` in real time as the model server: it
prefills 8,000 prompt tokens a second. Each run brings its own document; its first step takes two
seconds, and the second step asks about the document and the first step's answer. The second node has
`prefill` in one pipeline and not in the other; runs follow one another, each with a different document.
The time to first token is the latency of the second step's call, which generates one token. Prints one
line of JSON.

    .venv/bin/python -m bench.gateway.next_step_hints --runs 10
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncpg
import structlog
import yaml

from bench.support.emulators import NotStarted, emulated
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api

PREFILL_TOKENS_PER_S = 8_000.0
CHARS = 48_000
"""Length of a document: 12,000 tokens, which take 1.5 s to prefill."""
FIRST_TOKENS = 100
"""Length of the first step's answer, generated at 50 tokens a second."""
REPLICAS = 2
WAIT_MS = 20_000
LEDGER_S = 2.0


class NoFigure(Exception):
    """A run did not end as it should."""


def engines() -> dict[str, Any]:
    """Return the emulator's configuration."""
    answers = {
        "model": "writer",
        "prefill_tokens_per_s": PREFILL_TOKENS_PER_S,
        "block_tokens": 128,
        "cache_blocks": 2_000,
    }
    first = {"model": "first", "decode_tokens_per_s": 50.0, "output_tokens": FIRST_TOKENS}
    return {
        "engines": [
            {"port": 0, "replicas": REPLICAS, "profile": answers},
            {"port": 0, "profile": first},
        ]
    }


def models(urls: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the gateway's model configuration."""
    cache = {
        "tokens": 2_000 * 128,
        "block_tokens": 128,
        "prefill_tokens_per_s": PREFILL_TOKENS_PER_S,
    }
    prices = {"input_usd_per_mtok": "1", "cached_usd_per_mtok": "0.1", "output_usd_per_mtok": "4"}
    writer = {"model": "writer", "replicas": urls["writer"], "prefix_cache": cache}
    first = {"model": "first", "base_url": urls["first"][0]}
    return {
        "writer": {"backends": [writer | {"prices": prices}]},
        "first": {"backends": [first | {"prices": prices}]},
    }


def pipeline(name: str, *, prefill: bool) -> dict[str, Any]:
    """Return one of the two pipelines."""
    return {
        "pipeline": name,
        "slo_ms": 60_000,
        "nodes": {
            "plan": {
                "type": "llm",
                "model": "first",
                "prompt": "What matters?",
                "max_tokens": FIRST_TOKENS,
            },
            "answer": {
                "type": "llm",
                "model": "writer",
                "with": {"text": "{{ input.text }}", "notes": "{{ nodes.plan.output.text }}"},
                "system": "Answer by the document.\n\n{{ input.text }}",
                "prompt": "Notes: {{ input.notes }}",
                "max_tokens": 1,
                "prefill": prefill,
            },
        },
        "output": "done",
    }


async def main(arguments: argparse.Namespace) -> None:
    """Start everything, measure, and print the result."""
    with tempfile.TemporaryDirectory(prefix="hkt-") as name:
        folder = Path(name)
        async with emulated(folder, engines()) as urls:
            config = folder / "hocket.yaml"
            config.write_text(yaml.safe_dump({"models": models(urls)}), "utf-8")
            async with Platform(
                folder / "d", worker_types=("llm",), config=config, log_level="warning"
            ) as platform:
                api = platform.api()
                connection = await asyncpg.connect(platform.database_url)
                try:
                    result = {}
                    for way, prefill in (("without", False), ("with", True)):
                        spec = pipeline(way, prefill=prefill)
                        await asyncio.to_thread(api.post, "/v1/pipelines", spec)
                        for number in range(arguments.runs):
                            await run(api, way, number)
                        await asyncio.sleep(LEDGER_S)
                        result[way] = await figures(connection, way)
                finally:
                    await connection.close()
    print(json.dumps(result), flush=True)


async def run(api: Api, way: str, number: int) -> None:
    """Run a pipeline with a document that no other run has."""
    line = f"{way} {number}: the tide turns twice a day and nobody minds. "
    text = (line * (CHARS // len(line) + 1))[:CHARS]
    body = {"pipeline": way, "input": {"text": text}, "wait_ms": WAIT_MS}
    end = await asyncio.to_thread(api.post, "/v1/runs", body)
    if end.get("status") != "succeeded":
        raise NoFigure(f"a run ended so: {end}")


async def figures(connection: asyncpg.Connection, way: str) -> dict[str, float]:
    """Return the second steps' times to first token, and the pipeline's cost per run."""
    rows = await connection.fetch(_CALLS, way)
    answers = [row for row in rows if not row["prefill"]]
    before = [row for row in rows if row["prefill"]]
    if not answers or len({row["tokens"] for row in answers}) != 1:
        raise NoFigure(f"the calls are {[dict(row) for row in rows]}")
    took = [row["latency_ms"] for row in answers]
    return {
        "ttft_ms": round(statistics.median(took), 1),
        "max_ms": round(max(took), 1),
        "cached_tokens": statistics.median(row["cached"] for row in answers),
        "prompt_tokens": answers[0]["tokens"],
        "runs": len(answers),
        "prefills": len(before),
        "usd_per_run": round(float(sum(row["usd"] for row in rows)) / len(answers), 6),
    }


_CALLS = """
SELECT call_id LIKE '%:prefill' AS prefill, latency_ms, input_tokens AS tokens,
       cached_tokens AS cached, cost_usd AS usd
FROM hocket.usage WHERE pipeline = $1 AND node = 'answer'
"""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    print(f"load {os.getloadavg()[0]:.2f} before the start", file=sys.stderr)
    try:
        asyncio.run(main(parser.parse_args()))
    except (NoFigure, NotStarted) as error:
        print(f"no figure: {error}", file=sys.stderr)
        sys.exit(1)
