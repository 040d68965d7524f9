"""Schemathesis with all its checks against a server and its OpenAPI document.

Seeded, so that a test always asks the same; `HOCKET_CONTRACT_EXAMPLES` asks for more (`make contract`).
"""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import aiohttp
from openapi_spec_validator import validate

EXAMPLES = int(os.environ.get("HOCKET_CONTRACT_EXAMPLES", "2"))
SEED = int(os.environ.get("HOCKET_CONTRACT_SEED", "1"))
LEFT_OUT = () if "HOCKET_CONTRACT_EXAMPLES" in os.environ else ("--exclude-checks=ignored_auth",)
"""Each request thrice more, with other keys: `make contract` asks that, the suite has the matrix."""
TIMEOUT_S = 300 + 60 * EXAMPLES
REQUEST_TIMEOUT_S = 20
SHOWN_CHARS = 12_000


async def document(url: str) -> dict[str, Any]:
    """Return a server's document, which must be valid OpenAPI."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/openapi.json") as response:
        found: dict[str, Any] = await response.json()
    validate(found)
    return found


async def check(
    described: dict[str, Any], url: str, folder: Path, *, key: str, config: str = "", least: int
) -> None:
    """Ask the server, with a key, whatever its document allows, and what it does not; no check may fail.
    `least` is how many requests it takes for that to mean something."""
    schema = folder / "openapi.json"
    schema.write_text(json.dumps(described))
    settings = folder / "schemathesis.toml"
    settings.write_text(config)
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "schemathesis",
        f"--config-file={settings}",
        "run",
        str(schema),
        f"--url={url}",
        f"--header=Authorization: Bearer {key}",
        "--checks=all",
        *LEFT_OUT,
        f"--max-examples={EXAMPLES}",
        "--phases=examples,coverage,fuzzing,stateful",
        f"--seed={SEED}",
        f"--request-timeout={REQUEST_TIMEOUT_S}",
        "--suppress-health-check=all",
        "--generation-database=none",
        "--continue-on-failure",
        "--no-color",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = output.decode(errors="replace")
    assert process.returncode == 0, said[-SHOWN_CHARS:]
    passed = re.search(r"(\d+) generated, (\d+) passed", said)
    assert passed is not None, said
    print(f"{url}: {passed[1]} requests, {passed[2]} as documented")
    assert int(passed[2]) >= least
