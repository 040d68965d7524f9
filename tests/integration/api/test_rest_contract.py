"""REST answers what its OpenAPI document says, for every request that Schemathesis makes up: valid and
invalid, alone and following the document's links, on a whole platform; and as each role, which gets only
what its permissions say. `make contract` asks as each role, of a tenant and of all, the suite as two.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Collection, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from hocket.admin.requests.identity import DEFAULT_TENANT, TENANT_HEADER
from hocket.admin.requests.permissions import EXTENSION
from hocket.cli.local.platform import Platform
from hocket.schemas.access.roles import ROLES, Permission, permissions_of
from support.contract_rig import IS_LONG, TIMEOUT_S, Asked, check, document

MIN_REQUESTS = 600
SLO_MS = 8_000
"""Of runs that wait: whoever asks for their end does not have to wait for a minute."""
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
PIPELINES = (
    {"pipeline": "echo", "nodes": {"a": ECHO}},
    {"pipeline": "waits", "slo_ms": SLO_MS, "nodes": {"a": {"type": "signal", "signal": "go"}}},
    {
        "pipeline": "fails",
        "nodes": {"a": {"type": "python", "handler": "hocket.workers.builtin:fail"}},
    },
)
NAMES = [spec["pipeline"] for spec in PIPELINES]
BEYOND_SCHEMAS = """
# What JSON Schema cannot say: the rules of a pipeline's graph and expressions, characters that Postgres
# cannot store anywhere in a value, a run's input against its pipeline's own schema, steps and versions
# that there are, days that must not lie far apart, which keys have pools, cron expressions, time zones,
# ETags and private addresses.
[[operations]]
include-path = [
    "/v1/pipelines", "/v1/pipelines/validate", "/v1/runs", "/v1/runs/{run_id}/rerun",
    "/v1/runs/{run_id}/signals",
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


BEARERS = (
    [(role, tenant) for role in ROLES if role != "worker" for tenant in (DEFAULT_TENANT, None)]
    if IS_LONG
    else [("admin", None)]
)
WIDE_ONLY = (
    "/v1/backends/{backend}/", "/v1/audit/verdict",
    "/v1/tenants", "/v1/workers", "/v1/queues", "/v1/partitions",
    "/v1/types/{name}/",
)  # fmt: skip
"""What only keys of all tenants may ask, whatever their role; `PUT /v1/grants` besides."""
UNENDING = "GET /v1/runs/events"
CHANGED = (200, 201, 202, 204)


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    async with Platform(folder / "d", worker_types=("python",)) as running:
        yield running
    shutil.rmtree(folder)


@pytest.mark.skipif(not IS_LONG, reason="it takes long: `make contract` plays it")
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(
    ("role", "tenant"), BEARERS, ids=[f"{role}-of-{tenant or 'all'}" for role, tenant in BEARERS]
)
async def test_every_answer_is_as_documented_and_as_allowed(
    platform: Platform, tmp_path: Path, role: str, tenant: str | None
) -> None:
    api = platform.api()
    for spec in PIPELINES:
        await asyncio.to_thread(api.post, "/v1/pipelines", spec)
    wanted = {"name": "contract", "role": role, "all_tenants": tenant is None}
    key = (await asyncio.to_thread(api.post, "/v1/keys", wanted))["key"]
    described = _within_reach(await document(platform.api_url), tenant)

    asked = await check(
        described, platform.api_url, tmp_path, key=key, config=BEYOND_SCHEMAS, least=MIN_REQUESTS
    )

    _check_allowed(described, asked, role, tenant)
    end = await asyncio.to_thread(
        api.post, "/v1/runs", {"pipeline": "echo", "input": {"v": 1}, "wait_ms": 20_000}
    )
    assert end["status"] == "succeeded"


def _within_reach(described: dict[str, Any], tenant: str | None) -> dict[str, Any]:
    """Return the document with pipelines that there are, so that requests get beyond
    `pipeline_unknown`, and with the key's tenant, so that they get beyond `tenant_forbidden`."""
    schemas = described["components"]["schemas"]
    schemas["OneOfMany"] = deepcopy(schemas["RunSubmission"])  # its pipeline is refused in a 202
    schemas["BulkSubmission"]["properties"]["runs"]["items"] = {
        "$ref": "#/components/schemas/OneOfMany"
    }
    submission = schemas["RunSubmission"]["properties"]
    submission["pipeline"] = {"enum": NAMES}
    for operations in described["paths"].values() if tenant is not None else ():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == TENANT_HEADER:
                    parameter["schema"] = {"enum": [tenant]}
    return described


def _check_allowed(
    described: dict[str, Any], asked: Sequence[Asked], role: str, tenant: str | None
) -> None:
    """What a role may not do was refused each time, and what it may do was done at least once where a
    request needs nothing that is not there."""
    answers: dict[str, set[int]] = {}
    for one in asked:
        answers.setdefault(one.operation, set()).add(one.status)
    allowed = _allowed(described, permissions_of(role, None), wide=tenant is None)
    done = [name for name in allowed if answers.get(name, set()) & set(CHANGED)]
    for name, statuses in answers.items():
        assert 401 not in statuses, f"the key counts no more at {name}"
        if name in allowed:
            assert statuses - {403}, f"{name} was never allowed to {role}"
        else:
            assert not statuses & set(CHANGED), f"{name} was allowed to {role}: {statuses}"
            assert 403 in statuses, f"{name} was refused to {role} otherwise: {statuses}"
    every = _allowed(described, list(Permission), wide=True)
    assert every - answers.keys() == {UNENDING}, "each operation was asked"
    print(f"{role} of {tenant or 'all tenants'}: {len(done)} of {len(allowed)} operations done")


def _allowed(described: dict[str, Any], may: Collection[str], *, wide: bool) -> set[str]:
    """Return the operations that permissions allow."""
    return {
        f"{method.upper()} {path}"
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
        if set(operation[EXTENSION]) <= set(may) and (wide or not _is_wide(method, path))
    }


def _is_wide(method: str, path: str) -> bool:
    return path.startswith(WIDE_ONLY) or (method, path) == ("put", "/v1/grants")
