"""Run Schemathesis with all its checks against a server and its OpenAPI document.

It is seeded, so that a test always sends the same requests; `HOCKET_CONTRACT_EXAMPLES` asks for more
(`make contract`).
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from openapi_spec_validator import validate

EXAMPLES = int(os.environ.get("HOCKET_CONTRACT_EXAMPLES", "1"))
SEED = int(os.environ.get("HOCKET_CONTRACT_SEED", "1"))
IS_LONG = "HOCKET_CONTRACT_EXAMPLES" in os.environ
LEFT_OUT = () if IS_LONG else ("--exclude-checks=ignored_auth",)
"""This check repeats each request three times with other keys: `make contract` includes it; for the
suite there is the matrix of permissions."""
TIMEOUT_S = 900 + 60 * EXAMPLES
MAX_RESPONSE_S = 65
"""A request that waits for a run's end may wait for a minute."""
REQUEST_TIMEOUT_S = 70
SHOWN_CHARS = 12_000
UNHIDDEN = "[output.sanitization]\nenabled = false\n"
"""Makes the report show which requests had the key itself, because checks also send other keys."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was sent with the key itself."""

    operation: str
    """Method and path as in the document."""
    status: int


async def document(url: str) -> dict[str, Any]:
    """Return a server's OpenAPI document, which must be valid."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/openapi.json") as response:
        found: dict[str, Any] = await response.json()
    validate(found)
    return found


async def check(
    described: dict[str, Any], url: str, folder: Path, *, key: str, config: str = "", least: int
) -> Sequence[Asked]:
    """Send what the document allows, and what it does not, with a key; no check may fail. At least
    `least` requests must pass for the test to mean anything. Returns the requests sent."""
    schema = folder / "openapi.json"
    schema.write_text(json.dumps(described))
    settings = folder / "schemathesis.toml"
    settings.write_text(UNHIDDEN + config)
    report = folder / "requests.har"
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
        f"--max-response-time={MAX_RESPONSE_S}",
        "--suppress-health-check=all",
        "--generation-database=none",
        "--continue-on-failure",
        "--report=har",
        f"--report-har-path={report}",
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
    return tuple(_asked(described, json.loads(report.read_text()), key))


def _asked(described: dict[str, Any], report: dict[str, Any], key: str) -> Iterator[Asked]:
    """Yield the requests that had the key, no other key, and an answer."""
    templates = sorted(described["paths"], key=lambda path: path.count("{"))  # `own` is not an id
    patterns = [(path, re.compile(re.sub(r"\{\w+\}", "[^/]+", path))) for path in templates]
    for entry in report["log"]["entries"]:
        request, status = entry["request"], entry["response"]["status"]
        sent = {one["name"].lower(): one["value"] for one in request["headers"]}
        if not status or sent.get("authorization") != f"Bearer {key}" or "x-api-key" in sent:
            continue
        place = urlsplit(request["url"]).path
        path = next((path for path, pattern in patterns if pattern.fullmatch(place)), None)
        if path is not None and request["method"].lower() in described["paths"][path]:
            yield Asked(f"{request['method']} {path}", status)
