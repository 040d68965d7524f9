"""Run the protocol's own suite (npm: @modelcontextprotocol/conformance) against `hocket mcp`.

It plays the scenarios that a server of tools can pass. The others need a server made for the suite,
with prompts, resources, images and logging. `make mcp-conformance` runs it, and needs npx and a
registry."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hocket.cli.local.platform import Platform

SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-error",
    "json-schema-2020-12",
    "dns-rebinding-protection",
)
NPX = ("npx", "--yes", "--package", "node@22", "--package", "@modelcontextprotocol/conformance@0.1")
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
REASON = "This tool intentionally returns an error for testing"
ADDRESS = {"properties": {"street": {"type": "string"}, "city": {"type": "string"}}}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", **ADDRESS}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
PIPELINES: list[dict[str, Any]] = [
    {
        "pipeline": "test_simple_text",
        "nodes": {"a": ECHO},
        "output": "This is a simple text response for testing.",
    },
    {
        "pipeline": "test_error_handling",
        "nodes": {
            "a": ECHO | {"handler": "hocket.workers.builtin:fail", "with": {"reason": REASON}}
        },
    },
    {"pipeline": "json_schema_2020_12_tool", "input": SCHEMA, "nodes": {"a": ECHO}},
]


async def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    try:
        async with Platform(folder / "d") as platform:
            for one in PIPELINES:
                await asyncio.to_thread(platform.api().post, "/v1/pipelines", one)
            words = ["--data-dir", str(platform.data_dir), "mcp", "--http", "--port", "0"]
            serving = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-m", "hocket.cli", *words], stdout=subprocess.PIPE, text=True
            )
            try:
                assert serving.stdout is not None
                url = serving.stdout.readline().split()[-1]
                return await asyncio.to_thread(suite, url, folder)
            finally:
                serving.kill()
                serving.wait()
    finally:
        shutil.rmtree(folder)


def suite(url: str, folder: Path) -> int:
    failed = 0
    for scenario in SCENARIOS:
        words = [*NPX, "conformance", "server", "--url", url, "--scenario", scenario]
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
        failed += done.returncode != 0
        print(f"{scenario}: {'passed' if done.returncode == 0 else 'FAILED'}")
        if done.returncode:
            print(done.stdout, done.stderr)
    print(f"{len(SCENARIOS) - failed} passed, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
