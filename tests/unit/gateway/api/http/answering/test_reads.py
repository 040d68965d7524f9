"""What the HTTP door answers that is no call, over TCP."""

import aiohttp
import pytest

from support.gateway.door_rig import MODELS, running
from support.gateway.routing_rig import Rig, says

WRITER = {"id": "writer", "object": "model", "created": 0, "owned_by": "hocket"}


async def test_models_and_the_description_of_the_api_are_read() -> None:
    async with (
        running(Rig(MODELS, a=says("tidal"))) as door,
        aiohttp.ClientSession(door.url) as client,
    ):
        listed = await (await client.get("/v1/models")).json()
        one = await (await client.get("/v1/models/writer")).json()
        head = await client.head("/v1/models")
        document = await (await client.get("/openapi.json")).json()
    assert (listed["object"], WRITER in listed["data"]) == ("list", True)
    assert one == WRITER
    assert head.status == 200
    assert "/chat/completions" in document["paths"]


async def test_the_models_are_those_of_the_tenant_that_the_caller_names() -> None:
    def allows(tenant: str, model: str) -> bool:
        return (tenant, model) == ("acme", "writer")

    seen = {}
    async with (
        running(Rig(MODELS, a=says("tidal")), allows) as door,
        aiohttp.ClientSession(door.url) as client,
    ):
        for tenant in ("acme", "globex"):
            headers = {"X-Hocket-Tenant": tenant}
            listed = await (await client.get("/v1/models", headers=headers)).json()
            one = await client.get("/v1/models/writer", headers=headers)
            seen[tenant] = listed["data"], one.status
        told = (await one.json())["error"]
    assert seen == {"acme": ([WRITER], 200), "globex": ([], 403)}
    assert told["code"] == "grant_missing"


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed", "named"),
    [
        ("GET", "/v1/models/nobody", 404, None, "nobody"),
        ("GET", "/v1/nothing", 404, None, "/v1/nothing"),
        ("GET", "/openapi.json/more", 404, None, "/openapi.json/more"),
        ("GET", "/v1/chat/completions", 405, "POST", "POST"),
        ("POST", "/v1/models", 405, "GET, HEAD", "GET, HEAD"),
        ("GET", "/v1/models?limit=3", 400, None, "limit"),
        ("GET", "/v1/\N{REPLACEMENT CHARACTER}", 404, None, "There is no"),
    ],
)
async def test_what_is_not_there_to_be_read_is_refused_and_named(
    method: str, path: str, status: int, allowed: str | None, named: str
) -> None:
    async with (
        running(Rig(MODELS, a=says("tidal"))) as door,
        aiohttp.ClientSession(door.url) as client,
    ):
        answer = await client.request(method, path)
        error = (await answer.json())["error"]
    assert (answer.status, answer.headers.get("Allow")) == (status, allowed)
    assert named in error["message"]
