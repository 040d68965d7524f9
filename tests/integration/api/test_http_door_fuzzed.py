"""The gateway's HTTP door answers what its OpenAPI document says, for every request that Schemathesis
makes up."""

from pathlib import Path
from typing import Any

import pytest

from hocket.gateway.api.http import identity
from hocket.gateway.core.config.access import hashed
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from support.contract_rig import IS_LONG, TIMEOUT_S, check, document
from support.gateway.gateway_process import running_gateway
from support.gateway.mock_upstream import running_upstream

MIN_REQUESTS = 150
KEY = "hk-of-the-fuzzer"
MET = {
    identity.RESIDENCY: "eu",
    identity.LABELS: "precision=fp8",
    identity.RUN_LABELS: "team=search,customer=%C3%A4",  # its pattern is beyond Schemathesis
}


@pytest.mark.skipif(not IS_LONG, reason="it takes long: `make contract` plays it")
@pytest.mark.timeout(TIMEOUT_S)
async def test_every_answer_is_as_documented(nats_url: str, tmp_path: Path) -> None:
    bus = await Bus.connect(nats_url, name="test")
    await ensure_streams(bus)
    await bus.close()
    async with running_upstream() as upstream:  # it takes whatever OpenAI's API takes
        suits = {"residency": "eu", "labels": {"precision": "fp8"}, "quality": 1}
        backend = {"base_url": upstream.base_url, "model": "m-1", **suits}
        section = {"engine": {"backends": [backend], "breaker": False}}
        access = {"keys": [{"name": "fuzz", "sha256": hashed(KEY)}]}
        async with running_gateway(nats_url, tmp_path, section, access=access) as gateway:
            described = over_models(await document(gateway.url), "engine")
            await check(described, gateway.url, tmp_path, key=KEY, least=MIN_REQUESTS)


def over_models(described: dict[str, Any], *models: str) -> dict[str, Any]:
    """Return the document for models that there are, so that requests get beyond `model_unknown`; and
    without the header with which a caller asks for an answer in a moment, and rightly gets a 504, and
    the one by which it gets a former answer again; with requirements that the backend meets."""
    for schema in described["components"]["schemas"].values():
        if "model" in schema.get("properties", {}):
            schema["properties"]["model"] = {"enum": list(models)}
    for operations in described["paths"].values():
        for operation in operations.values():
            if isinstance(operation, dict):
                operation["parameters"] = [
                    one
                    for one in operation.get("parameters", [])
                    if one["name"] not in (identity.TIMEOUT_MS, identity.CALL_ID)
                ]
                for one in operation["parameters"]:
                    if one["name"] in MET:
                        one["schema"] = {"enum": [MET[one["name"]]]}
    return described
