"""Schemathesis against the HTTP door's own OpenAPI document: whatever comes, no answer is a 5xx, and
every answer is what the document says."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import aiohttp
from openapi_spec_validator import validate

from gateway_process import running_gateway
from hocket.emulator.configuration import parse
from hocket.emulator.running import running
from hocket.gateway.http_door import identity
from hocket.kit.bus import Bus
from hocket.kit.streams import ensure_streams

EXAMPLES = 40
MIN_REQUESTS = 300
TIMEOUT_S = 100
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


async def test_no_request_makes_a_server_error(nats_url: str, tmp_path: Path) -> None:
    bus = await Bus.connect(nats_url, name="test")
    await ensure_streams(bus)
    await bus.close()
    fast = {"prefill_tokens_per_s": 1e9, "decode_tokens_per_s": 1e9, "batch_tokens_per_s": 1e9}
    engines = parse({"engines": [{"port": 0, "profile": {"model": "engine", **fast}}]})
    async with running(engines) as (engine,):
        backend = {"base_url": f"{engine.url}/v1", "model": "engine"}
        section = {"engine": {"backends": [backend], "breaker": False}}
        async with running_gateway(nats_url, tmp_path, section) as gateway:
            described = await document(gateway.url)
            validate(described)
            schema = tmp_path / "openapi.json"
            schema.write_text(json.dumps(over_models(described, "engine", "hocket-extractive")))
            await fuzz(schema, gateway.url)


async def document(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/openapi.json") as response:
        found: dict[str, Any] = await response.json()
        return found


def over_models(described: dict[str, Any], *models: str) -> dict[str, Any]:
    """Return the document for models that there are, so that requests get beyond `model_unknown`; and
    without the header with which a caller asks for an answer in a moment, and rightly gets a 504."""
    for schema in described["components"]["schemas"].values():
        if "model" in schema.get("properties", {}):
            schema["properties"]["model"] = {"enum": list(models)}
    for operations in described["paths"].values():
        for operation in operations.values():
            if isinstance(operation, dict):
                operation["parameters"] = [
                    one
                    for one in operation.get("parameters", [])
                    if one["name"] != identity.TIMEOUT_MS
                ]
    return described


async def fuzz(schema: Path, url: str) -> None:
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "schemathesis",
        "run",
        str(schema),
        f"--url={url}",
        f"--checks={','.join(CHECKS)}",
        f"--max-examples={EXAMPLES}",
        "--phases=examples,coverage,fuzzing",
        "--seed=1",
        "--suppress-health-check=all",
        "--generation-database=none",
        "--no-color",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=schema.parent,
    )
    async with asyncio.timeout(TIMEOUT_S):
        output, _ = await process.communicate()
    said = output.decode(errors="replace")
    assert process.returncode == 0, said[-8_000:]
    passed = re.search(r"(\d+) generated, (\d+) passed", said)
    assert passed is not None, said
    assert int(passed[2]) >= MIN_REQUESTS
