"""What a tenant's pipelines may use: set over REST and the command line, checked when a pipeline is
applied, when a step goes out, and at the gateway's doors."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hocket.admin.keys.answering import KeysDoor
from hocket.cli.app import app
from hocket.cli.commands.access.grants import replace_list
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.kit.access.key_source import DatabaseKeys
from hocket.kit.process import clock
from hocket.schemas.access.grants import KINDS
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import Attribution, CallRequest, ChatMessage
from support.gateway.gateway_process import Gateway, call, running_gateway
from support.gateway.mock_upstream import running_upstream
from support.rest_rig import Answer, Rest, bearer, running_rest
from support.worker_rig import eventually

USAGE_KEY = "u" * 32
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
PIPELINE = {
    "pipeline": "ask",
    "slo_ms": 600_000,
    "nodes": {"work": {**ECHO, "queue": "gpu"}, "answer": {**ECHO, "needs": ["work"]}},
}


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


async def put(rest: Rest, grants: dict[str, Any], **headers: str) -> Answer:
    return await rest.ask("PUT", "/v1/grants", json=grants, headers=headers)


async def test_a_pipeline_that_uses_what_is_not_granted_is_not_applied(rest: Rest) -> None:
    assert (await rest.get("/v1/grants")).body["models"] is None
    assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
    answer = await put(rest, {"queues": ["cpu"], "node_types": ["python"]})
    assert answer.status == 200
    changed = {**PIPELINE, "slo_ms": 500_000}
    for path in ("/v1/pipelines", "/v1/pipelines/validate"):
        refused = await rest.post(path, changed)
        assert (refused.status, refused.body["code"]) == (403, "grant_missing")
        assert refused.error["field"] == "nodes.work.queue"
        assert "node `work` uses the queue `gpu`" in refused.error["message"]
    assert (await put(rest, {})).status == 200
    assert (await rest.post("/v1/pipelines", changed)).status == 201


async def test_grants_of_one_tenant_are_not_those_of_another(rest: Rest) -> None:
    await put(rest, {"queues": []}, **{"X-Hocket-Tenant": "acme"})
    assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
    theirs = {"X-Hocket-Tenant": "acme"}
    refused = await rest.post("/v1/pipelines", PIPELINE, headers=theirs)
    assert refused.body["code"] == "grant_missing"


async def test_only_keys_of_all_tenants_set_grants_and_the_audit_has_it(rest: Rest) -> None:
    own = await rest.make_key("admin", "acme")
    refused = await put(rest, {}, **bearer(own))
    assert (refused.status, refused.body["code"]) == (403, "tenant_forbidden")
    developer = await rest.make_key("developer", None)
    refused = await put(rest, {}, **bearer(developer))
    assert (refused.status, refused.body["code"]) == (403, "permission_missing")
    operator = await rest.make_key("operator", None)
    assert (await put(rest, {"models": ["small"]}, **bearer(operator))).status == 200
    entries = (await rest.get("/v1/audit?limit=500")).body["entries"]
    (entry,) = [one for one in entries if one["action"] == "grants.set"]
    assert (entry["target"], entry["before"], entry["after"]) == (
        "tenant:default", {}, {"models": ["small"]},
    )  # fmt: skip


async def test_a_change_by_another_is_not_undone_unseen(rest: Rest) -> None:
    async with rest.session.get(f"{rest.url}/v1/grants") as answer:
        seen = answer.headers["ETag"]
    assert (await put(rest, {"models": []}, **{"If-Match": seen})).status == 200
    assert (await put(rest, {}, **{"If-Match": seen})).status == 412
    assert (await rest.get("/v1/grants")).body["models"] == []


async def test_commands_that_set_lists_side_by_side_undo_none(rest: Rest) -> None:
    api = Api(rest.url, "default", rest.key)
    settings = [asyncio.to_thread(replace_list, api, kind, ["one"], as_json=True) for kind in KINDS]
    await asyncio.gather(*settings)
    assert (await rest.get("/v1/grants")).body == {kind: ["one"] for kind in KINDS}


async def test_a_kind_that_there_is_not_is_refused(rest: Rest) -> None:
    refused = await put(rest, {"model": ["small"]})
    assert refused.status == 422
    assert "model" in refused.error["message"]


@pytest.fixture
async def gateway(
    rest: Rest, nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Gateway]:
    monkeypatch.setenv("HOCKET_USAGE_KEY", USAGE_KEY)
    seals = Capabilities([USAGE_KEY.encode()])
    async with (
        running_upstream() as upstream,
        KeysDoor(rest.bus, DatabaseKeys(rest.pool), seals).open(),
    ):
        models = {
            name: {"backends": [{"base_url": upstream.base_url, "model": "m"}]}
            for name in ("small", "large")
        }
        async with running_gateway(nats_url, tmp_path, models, access={"open": False}) as gateway:
            yield gateway


async def test_a_handler_calls_no_model_that_its_tenant_has_no_grant_for(
    rest: Rest, gateway: Gateway
) -> None:
    calls = 0

    async def code_of(model: str, tenant: str = "default") -> str | None:
        nonlocal calls
        calls += 1
        reply = await call(
            rest.bus,
            CallRequest(
                call_id=f"c{calls}",
                model=model,
                messages=(ChatMessage(role="user", content="?"),),
                deadline_at_ms=clock.now_ms() + 60_000,
                attribution=Attribution(tenant=tenant, pipeline="ask"),
            ),
        )
        return None if reply.error is None else reply.error.code

    assert await code_of("large") is None
    await put(rest, {"models": ["small"]})

    async def is_refused() -> bool:
        return await code_of("large") == "grant_missing"

    await eventually(is_refused)
    assert await code_of("small") is None
    assert await code_of("large", tenant="acme") is None
    key = await rest.make_key("developer")
    body = {"model": "large", "messages": [{"role": "user", "content": "?"}]}
    url = f"{gateway.url}/chat/completions"
    async with rest.session.post(url, json=body, headers=bearer(key)) as answer:
        assert answer.status == 403
        assert (await answer.json())["error"]["code"] == "grant_missing"
    async with rest.session.get(f"{gateway.url}/models", headers=bearer(key)) as answer:
        assert [one["id"] for one in (await answer.json())["data"]] == ["small"]
    async with rest.session.get(f"{gateway.url}/models/large", headers=bearer(key)) as answer:
        assert answer.status == 403
    await put(rest, {})

    async def is_allowed() -> bool:
        return await code_of("large") is None

    await eventually(is_allowed)


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    async with Platform(folder / "d", services=("coordinator", "admin")) as running:
        yield running
    shutil.rmtree(folder)


async def test_steps_of_a_version_that_was_applied_before_end_when_a_grant_is_withdrawn(
    platform: Platform,
) -> None:
    api = platform.api()
    await asyncio.to_thread(api.post, "/v1/pipelines", PIPELINE)

    def hocket(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["--data-dir", str(platform.data_dir), *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    told = await asyncio.to_thread(hocket, "grants", "set", "queues", "cpu", "other")
    assert "cpu, other" in told

    async def is_refused() -> bool:
        return (await _ended(api))["error"]["code"] == "grant_missing"

    first = await _ended(api)
    if first["error"] is None or first["error"]["code"] != "grant_missing":
        await eventually(is_refused)
    run = await _ended(api)
    assert "node `work` uses the queue `gpu`" in run["error"]["message"]
    assert run["status"] == "failed"
    assert "any" in await asyncio.to_thread(hocket, "grants", "clear")


async def _ended(api: Api) -> dict[str, Any]:
    """Submit a run and return it as it has ended. Without workers it ends by its grant or its time."""
    task = {"pipeline": "ask", "deadline_ms": 3_000}
    made = await asyncio.to_thread(api.post, "/v1/runs", task)
    while True:
        run: dict[str, Any] = await asyncio.to_thread(api.get, f"/v1/runs/{made['run_id']}")
        if run["status"] not in ("running", "accepted", "queued"):
            return run
        await asyncio.sleep(0.05)
