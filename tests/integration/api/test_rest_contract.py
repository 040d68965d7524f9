"""REST answers what its OpenAPI document says, for every request that Schemathesis makes up: valid and
invalid, alone and following the document's links, on a whole platform."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path

import pytest

from hocket.cli.local.platform import Platform
from support.contract_rig import TIMEOUT_S, check, document

MIN_REQUESTS = 600
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
PIPELINES = (
    {"pipeline": "echo", "nodes": {"a": ECHO}},
    {"pipeline": "waits", "nodes": {"a": {"type": "signal", "signal": "go"}}},
    {
        "pipeline": "fails",
        "nodes": {"a": {"type": "python", "handler": "hocket.workers.builtin:fail"}},
    },
)
NAMES = [spec["pipeline"] for spec in PIPELINES]
BEYOND_SCHEMAS = """
# What JSON Schema cannot say: the rules of a pipeline's graph and expressions, a run's input against its
# pipeline's own schema, steps and versions that there are, days that must not lie far apart, which
# keys have pools, cron expressions, time
# zones, ETags and private addresses.
[[operations]]
include-path = [
    "/v1/pipelines", "/v1/pipelines/validate", "/v1/runs", "/v1/runs/{run_id}/rerun",
    "/v1/bulk/runs", "/v1/bulk/operations",
    "/v1/costs/pipelines", "/v1/costs/kinds", "/v1/costs/cache", "/v1/keys",
]
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]

[[operations]]
include-path = [
    "/v1/schedules/{name}", "/v1/schedules/{name}/pause", "/v1/schedules/{name}/resume",
    "/v1/schedule-preview", "/v1/webhooks/{name}", "/v1/webhooks/{name}/enable",
    "/v1/webhooks/{name}/disable", "/v1/grants",
]
checks.positive_data_acceptance.expected-statuses = [
    "2xx", "401", "403", "404", "409", "412", "413", "422"
]

# A stream that has no end.
[[operations]]
include-path = "/v1/runs/events"
enabled = false
"""


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    async with Platform(folder / "d", worker_types=("python",)) as running:
        yield running
    shutil.rmtree(folder)


@pytest.mark.timeout(TIMEOUT_S)
async def test_every_answer_is_as_documented(platform: Platform, tmp_path: Path) -> None:
    api = platform.api()
    for spec in PIPELINES:
        await asyncio.to_thread(api.post, "/v1/pipelines", spec)
    described = await document(platform.api_url)
    schemas = described["components"]["schemas"]
    schemas["OneOfMany"] = deepcopy(schemas["RunSubmission"])  # its pipeline is refused in a 202
    schemas["BulkSubmission"]["properties"]["runs"]["items"] = {
        "$ref": "#/components/schemas/OneOfMany"
    }
    submission = schemas["RunSubmission"]["properties"]
    submission["pipeline"] = {"enum": NAMES}  # so that requests get beyond `pipeline_unknown`

    await check(
        described,
        platform.api_url,
        tmp_path,
        key=platform.api_key,
        config=BEYOND_SCHEMAS,
        least=MIN_REQUESTS,
    )

    end = await asyncio.to_thread(
        api.post, "/v1/runs", {"pipeline": "echo", "input": {"v": 1}, "wait_ms": 20_000}
    )
    assert end["status"] == "succeeded"
