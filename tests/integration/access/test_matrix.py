"""Every operation of REST and of the gateway's HTTP door, asked with every role, for the own tenant and
for a foreign one: what is allowed stands in one table, by hand, and nothing else is."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fastapi import APIRouter, FastAPI
from prometheus_client import CollectorRegistry

from hocket.admin import app as admin_app
from hocket.admin.keys.answering import KeysDoor
from hocket.admin.requests.permissions import OperationUndeclared
from hocket.kit.access.key_source import DatabaseKeys
from hocket.kit.access.key_store import WORKER
from hocket.schemas.access.roles import ROLES, Permission
from hocket.schemas.capabilities import Capabilities
from support.gateway.gateway_process import Gateway, running_gateway
from support.gateway.mock_upstream import running_upstream
from support.rest_rig import Answer, Rest, bearer, running_rest

ALL = "viewer developer operator auditor admin"
ALLOWED: dict[str, str] = {
    "GET /v1/runs": ALL,
    "POST /v1/runs": "developer operator admin",
    "GET /v1/runs/{run_id}": ALL,
    "GET /v1/runs/{run_id}/steps": ALL,
    "GET /v1/runs/{run_id}/cost": ALL,
    "GET /v1/runs/{run_id}/journal": ALL,
    "GET /v1/runs/{run_id}/compare": ALL,
    "GET /v1/runs/{run_id}/events": ALL,
    "GET /v1/runs/{run_id}/trace": ALL,
    "GET /v1/runs/events": ALL,
    "GET /v1/runs/export": ALL,
    "GET /v1/approvals": ALL,
    "GET /v1/flow": ALL,
    "GET /v1/flow/runs": ALL,
    "POST /v1/data/delete": "admin",
    "POST /v1/bulk/runs": "developer operator admin",
    "POST /v1/bulk/preview": ALL,
    "GET /v1/bulk/operations": ALL,
    "POST /v1/bulk/operations": "developer operator admin",
    "GET /v1/bulk/operations/{operation_id}": ALL,
    "POST /v1/bulk/operations/{operation_id}/stop": "developer operator admin",
    "GET /v1/schedules": ALL,
    "POST /v1/schedule-preview": ALL,
    "PUT /v1/schedules/{name}": "developer operator admin",
    "GET /v1/schedules/{name}": ALL,
    "DELETE /v1/schedules/{name}": "developer operator admin",
    "POST /v1/schedules/{name}/pause": "developer operator admin",
    "POST /v1/schedules/{name}/resume": "developer operator admin",
    "POST /v1/schedules/{name}/trigger": "developer operator admin",
    "GET /v1/schedules/{name}/next": ALL,
    "GET /v1/schedules/{name}/firings": ALL,
    "GET /v1/webhooks": "developer operator auditor admin",
    "PUT /v1/webhooks/{name}": "developer operator admin",
    "GET /v1/webhooks/{name}": "developer operator auditor admin",
    "DELETE /v1/webhooks/{name}": "developer operator admin",
    "POST /v1/webhooks/{name}/enable": "developer operator admin",
    "POST /v1/webhooks/{name}/disable": "developer operator admin",
    "POST /v1/webhooks/{name}/rotate": "developer operator admin",
    "POST /v1/webhooks/{name}/test": "developer operator admin",
    "POST /v1/webhooks/{name}/redeliver": "developer operator admin",
    "GET /v1/webhooks/{name}/deliveries": "developer operator auditor admin",
    "GET /v1/webhooks/{name}/deliveries/{message_id}": "developer operator auditor admin",
    "POST /v1/webhooks/{name}/deliveries/{message_id}/redeliver": "developer operator admin",
    "POST /v1/runs/{run_id}/cancel": "developer operator admin",
    "POST /v1/runs/{run_id}/signals": "developer operator admin",
    "POST /v1/runs/{run_id}/retry": "developer operator admin",
    "POST /v1/runs/{run_id}/rerun": "developer operator admin",
    "GET /v1/pipelines": ALL,
    "POST /v1/pipelines": "developer admin",
    "POST /v1/pipelines/validate": "developer operator admin",
    "GET /v1/pipelines/{name}": ALL,
    "DELETE /v1/pipelines/{name}": "developer admin",
    "GET /v1/pipelines/{name}/diff": ALL,
    "GET /v1/pipelines/{name}/release": ALL,
    "POST /v1/pipelines/{name}/activate": "developer operator admin",
    "POST /v1/pipelines/{name}/rollback": "developer operator admin",
    "GET /v1/pipelines/{name}/canary": ALL,
    "PUT /v1/pipelines/{name}/canary": "developer operator admin",
    "DELETE /v1/pipelines/{name}/canary": "developer operator admin",
    "POST /v1/pipelines/{name}/archive": "developer operator admin",
    "POST /v1/pipelines/{name}/unarchive": "developer operator admin",
    "GET /v1/schemas/pipeline": ALL,
    "GET /v1/types": ALL,
    "GET /v1/types/{name}": ALL,
    "POST /v1/types/{name}/drain": "",  # only keys of all tenants
    "POST /v1/types/{name}/resume": "",
    "GET /v1/costs/pipelines": ALL,
    "GET /v1/costs/cache": ALL,
    "GET /v1/costs/kinds": ALL,
    "GET /v1/costs/nodes": ALL,
    "GET /v1/costs/runs": ALL,
    "GET /v1/calls": ALL,
    "GET /v1/calls/{call_id}": ALL,
    "GET /v1/content": "developer admin",
    "GET /v1/experiments": ALL,
    "POST /v1/experiments/outcomes": "developer operator admin",
    "POST /v1/experiments/{experiment}/arms/{arm}/rollback": "operator admin",
    "POST /v1/experiments/{experiment}/arms/{arm}/restore": "operator admin",
    "GET /v1/dead-letters": ALL,
    "GET /v1/dead-letters/{seq}": ALL,
    "POST /v1/dead-letters/{seq}/redrive": "operator admin",
    "DELETE /v1/dead-letters/{seq}": "operator admin",
    "GET /v1/health": ALL,
    "GET /v1/tenants": "",  # only keys of all tenants, as the next three
    "GET /v1/workers": "",
    "GET /v1/queues": "",
    "GET /v1/partitions": "",
    "GET /v1/keys": "auditor admin",
    "POST /v1/keys": "admin",
    "GET /v1/keys/own": ALL,
    "GET /v1/keys/{key_id}": "auditor admin",
    "POST /v1/keys/{key_id}/rotate": "admin",
    "DELETE /v1/keys/{key_id}": "admin",
    "GET /v1/roles": ALL,
    "GET /v1/runs/{run_id}/logs": ALL,
    "GET /v1/backends": ALL,
    "GET /v1/model-rates": ALL,
    "GET /v1/costs/budgets": ALL,
    "POST /v1/backends/{backend}/drain": "",  # only keys of all tenants
    "POST /v1/backends/{backend}/resume": "",
    "POST /v1/backends/{backend}/warm": "",
    "POST /v1/backends/{backend}/reset": "",
    "GET /v1/grants": ALL,
    "PUT /v1/grants": "",  # only keys of all tenants
    "GET /v1/audit": "auditor admin",
    "GET /v1/audit/verdict": "",  # only keys of all tenants
}
PUBLIC = {"/healthz": 200, "/readyz": 200, "/docs": 200, "/openapi.json": 200, "/sign-in": 404}
"""What is told without a key; this platform has no provider to sign in at."""
DOOR: dict[str, str] = {
    "POST /chat/completions": "developer admin",
    "POST /completions": "developer admin",
    "POST /embeddings": "developer admin",
    "POST /responses": "developer admin",
    "GET /models": ALL,
    "GET /models/{model}": ALL,
}
GRANTS: dict[str, str] = {
    "viewer": "platform.read runs.read pipelines.read costs.read models.read experiments.read "
    "schedules.read dead_letters.read grants.read",
    "developer": "platform.read runs.read pipelines.read costs.read models.read experiments.read "
    "schedules.read dead_letters.read grants.read content.read runs.submit runs.cancel runs.signal "
    "pipelines.check pipelines.apply pipelines.release schedules.manage webhooks.read webhooks.manage "
    "models.call",
    "operator": "platform.read runs.read pipelines.read costs.read models.read experiments.read "
    "schedules.read dead_letters.read grants.read runs.submit runs.cancel runs.signal "
    "pipelines.check pipelines.release schedules.manage webhooks.read webhooks.manage "
    "experiments.control models.control workers.control dead_letters.manage grants.manage",
    "auditor": "platform.read runs.read pipelines.read costs.read models.read experiments.read "
    "schedules.read webhooks.read dead_letters.read grants.read keys.read audit.read",
    "admin": "platform.read runs.read pipelines.read costs.read models.read experiments.read "
    "schedules.read dead_letters.read grants.read content.read runs.submit runs.cancel runs.signal "
    "pipelines.check pipelines.apply pipelines.release schedules.manage webhooks.read "
    "webhooks.manage models.call experiments.control models.control workers.control "
    "dead_letters.manage grants.manage keys.read keys.manage audit.read data.delete steps.run",
    "worker": "steps.run",
}
VALUES = {
    "run_id": "r" + "0" * 24, "name": "none", "call_id": "none", "experiment": "none", "arm": "none",
    "backend": "none",
    "seq": "1", "operation_id": "b" + "0" * 24, "key_id": "0" * 12, "model": "scripted",
    "message_id": "msg_" + "0" * 24,
}  # fmt: skip
BODIES: dict[str, Any] = {
    "/v1/runs": {"pipeline": "none"},
    "/v1/runs/{run_id}/signals": {"name": "go"},
    "/v1/data/delete": {"tenant": "none"},
    "/v1/bulk/runs": {"runs": [{"pipeline": "none"}]},
    "/v1/schedules/{name}": {"cron": "0 0 * * *", "task": {"pipeline": "none"}},
    "/v1/schedule-preview": {"cron": "0 0 * * *"},
    "/v1/webhooks/{name}": {"url": "https://example.com/"},
    "/v1/webhooks/{name}/redeliver": {"since": "2026-03-01T00:00:00Z"},
    "/v1/bulk/preview": {"action": "cancel"},
    "/v1/bulk/operations": {"action": "cancel"},
    "/v1/pipelines": {"pipeline": "mine", "nodes": {"a": {"type": "signal", "signal": "go"}}},
    "/v1/pipelines/{name}/activate": {"version": 1},
    "/v1/pipelines/{name}/canary": {"version": 1, "share": 0.1},
    "/v1/pipelines/validate": {"pipeline": "p", "nodes": {"a": {"type": "signal", "signal": "go"}}},
    "/v1/keys": {"name": "more", "role": "viewer"},
    "/chat/completions": {"model": "scripted", "messages": [{"role": "user", "content": "?"}]},
    "/completions": {"model": "scripted", "prompt": "?"},
    "/embeddings": {"model": "scripted", "input": "?"},
    "/responses": {"model": "scripted", "input": "?"},
}
BODIES |= {f"/v1/backends/{{backend}}/{action}": {"for_s": 1} for action in ("warm",)}
BODIES |= {f"/v1/backends/{{backend}}/{action}": {} for action in ("drain", "resume", "reset")}
USAGE_KEY = "u" * 32
QUERIES = {
    "/v1/calls": "?run=none",
    "/v1/content": "?run=none",
    "/v1/pipelines/{name}/diff": "?before=1",
}


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for path, item in document["paths"].items():
        for method in item.keys() & {"get", "post", "put", "patch", "delete"}:
            yield method.upper(), path


def test_roles_are_what_the_table_says() -> None:
    said = {role: set(text.split()) for role, text in GRANTS.items()}
    assert {role: set(allowed) for role, allowed in ROLES.items()} == said


async def test_every_operation_of_rest_is_allowed_to_whom_the_table_says(rest: Rest) -> None:
    document = (await rest.get("/openapi.json")).body
    found = {f"{method} {path}" for method, path in operations(document)}
    assert found == set(ALLOWED), "declare new operations here, and who may ask them"
    keys = {role: await rest.make_key(role, "acme") for role in ROLES if role != WORKER}
    wide = {role: await rest.make_key(role, None) for role in keys}
    worker = await rest.make_key(WORKER, None, pools=("crm.lookup",))
    cells = 0
    for method, path in operations(document):
        named = f"{method} {path}"

        async def asked(method: str = method, path: str = path, **headers: str) -> Answer:
            place = re.sub(r"\{(\w+)\}", lambda found: VALUES[found[1]], path)
            url = rest.url + place + QUERIES.get(path, "")
            body = BODIES.get(path, {}) if method in ("POST", "PUT") else None
            async with (
                aiohttp.ClientSession() as bare,
                bare.request(method, url, json=body, headers=headers) as reply,
            ):
                is_stream = reply.content_type == "text/event-stream"
                text = "" if is_stream else await reply.text()
                told = json.loads(text) if "json" in reply.content_type and text else {}
                return Answer(reply.status, told, reply.headers)

        nobody = await asked()
        assert (nobody.status, nobody.body["code"]) == (401, "key_missing"), named
        assert nobody.headers["WWW-Authenticate"] == "Bearer"
        assert nobody.body["cure"], named
        for role, key in keys.items():
            own = await asked(**bearer(key))
            said = await asked(**bearer(key), **{"X-Hocket-Tenant": "acme"})
            foreign = await asked(**bearer(key), **{"X-Hocket-Tenant": "rival"})
            assert (foreign.status, foreign.body["code"]) == (403, "tenant_forbidden"), named
            assert foreign.body["cure"]
            is_allowed = role in ALLOWED[named].split()
            for answer in (own, said):
                assert (answer.status not in (401, 403)) is is_allowed, (named, role, answer)
                assert is_allowed or answer.body["code"] in DENIALS, (named, role, answer.body)
            other = await asked(**bearer(wide[role]), **{"X-Hocket-Tenant": "rival"})
            expected = is_allowed or role in WIDE_ONLY.get(named, "").split()
            assert (other.status not in (401, 403)) is expected, (named, role, other)
            cells += 4
        denied = await asked(**bearer(worker))
        assert (denied.status, denied.body["code"]) == (403, "permission_missing"), named
        cells += 2
    print(f"{cells} cells (operation, role, tenant) were right")
    assert cells == len(ALLOWED) * (4 * len(keys) + 2)


BACKEND_ACTIONS = ("drain", "resume", "warm", "reset")
DENIALS = ("permission_missing", "tenant_forbidden")
WIDE_ONLY = {
    "GET /v1/audit/verdict": "auditor admin",
    **{f"POST /v1/types/{{name}}/{action}": "operator admin" for action in ("drain", "resume")},
    **{f"GET /v1/{name}": ALL for name in ("tenants", "workers", "queues", "partitions")},
    "PUT /v1/grants": "operator admin",
    **{f"POST /v1/backends/{{backend}}/{action}": "operator admin" for action in BACKEND_ACTIONS},
}


async def test_what_is_public_is_what_the_table_says(rest: Rest) -> None:
    async with aiohttp.ClientSession() as bare:
        for path, status in PUBLIC.items():
            async with bare.get(rest.url + path) as reply:
                assert reply.status == status, path
        for path in ("/", "/v1", "/v1/health", "/metrics", "/docs/none", "/openapi.json/"):
            async with bare.get(rest.url + path) as reply:
                assert reply.status == 401, path


async def test_an_operation_that_names_no_permission_does_not_start(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = APIRouter()

    @router.get("/v1/forgotten")
    async def forgotten() -> str:
        return "for everybody"

    monkeypatch.setattr(admin_app, "ROUTERS", (*admin_app.ROUTERS, router))
    context = rest.app.state.context
    with pytest.raises(OperationUndeclared, match="forgotten"):
        admin_app.make_app(context, CollectorRegistry(), rest.book)


def test_the_document_names_what_each_operation_needs(rest: Rest) -> None:
    assert isinstance(rest.app, FastAPI)
    document = rest.app.openapi()
    for method, path in operations(document):
        needed = document["paths"][path][method.lower()]["x-hocket-permissions"]
        assert needed, path
        assert set(needed) <= set(Permission)


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
        backend = {"base_url": upstream.base_url, "model": "m-1"}
        section = {"scripted": {"backends": [backend]}}
        async with running_gateway(nats_url, tmp_path, section, access={"open": False}) as gateway:
            yield gateway


async def test_every_path_of_the_http_door_is_allowed_to_whom_the_table_says(
    rest: Rest, gateway: Gateway
) -> None:
    async with aiohttp.ClientSession() as bare:
        async with bare.get(gateway.url + "/openapi.json") as reply:
            document = await reply.json()
        assert {f"{method} {path}" for method, path in operations(document)} == set(DOOR)
        for method, path in operations(document):
            named = f"{method} {path}"

            async def asked(
                method: str = method, path: str = path, **headers: str
            ) -> tuple[int, Any]:
                url = gateway.url + path.replace("{model}", "scripted")
                body = BODIES.get(path) if method == "POST" else None
                async with bare.request(method, url, json=body, headers=headers) as reply:
                    told = await reply.json()
                    return reply.status, (told.get("error") or {}).get("code")

            assert await asked() == (401, "invalid_api_key"), named
            for role in ROLES:
                pools = ("crm.lookup",) if role == WORKER else None
                tenant = None if role == WORKER else "acme"
                key = await rest.make_key(role, tenant, pools=pools)
                for headers in (bearer(key), {"x-api-key": key}):
                    status, code = await asked(**headers)
                    is_allowed = role in DOOR[named].split()
                    assert (status not in (401, 403)) is is_allowed, (named, role, status, code)
                    assert is_allowed or code == "permission_missing"
                if method == "POST" and role in DOOR[named].split():
                    foreign = await asked(**bearer(key), **{"X-Hocket-Tenant": "rival"})
                    assert foreign == (403, "tenant_forbidden"), (named, role)
