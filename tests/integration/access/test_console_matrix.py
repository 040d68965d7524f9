"""Every page of the console, asked with every role: what is allowed stands in one table, by hand."""

import re
from collections.abc import AsyncIterator

import aiohttp
import pytest

from hocket.kit.access.key_store import WORKER
from hocket.schemas.access.roles import ROLES
from support.rest_rig import Rest, bearer, running_rest

ALL = "viewer developer operator auditor admin"
ALLOWED: dict[str, str] = {
    "GET /console": ALL,
    "GET /console/find": ALL,
    "GET /console/tenants": ALL,
    "GET /console/runs": ALL,
    "GET /console/runs/histogram.json": ALL,
    "GET /console/runs/{run_id}": ALL,
    "GET /console/runs/{run_id}/timeline.json": ALL,
    "GET /console/runs/{run_id}/trace.json": ALL,
    "GET /console/runs/{run_id}/graph.json": ALL,
    "GET /console/runs/{run_id}/steps/{step}": ALL,
    "GET /console/runs/{run_id}/calls/{call_id}": ALL,
    "GET /console/calls/{call_id}": ALL,
    "GET /console/live/runs": ALL,
    "GET /console/live/runs/{run_id}": ALL,
    "GET /console/live/rows": ALL,
    "GET /console/compare": ALL,
    "GET /console/approvals": ALL,
    "GET /console/flow": ALL,
    "GET /console/bulk": ALL,
    "GET /console/schedules": ALL,
    "GET /console/schedules/{name}": ALL,
    "GET /console/schedules/{name}/edit": "developer admin",
    "POST /console/schedules/{name}/edit": "developer admin",
    "GET /console/new/schedule": "developer operator admin",
    "POST /console/new/schedule": "developer operator admin",
    "GET /console/new/webhook": "developer operator admin",
    "POST /console/new/webhook": "developer operator admin",
    "GET /console/new/key": "admin",
    "POST /console/new/key": "admin",
    "GET /console/webhooks": "developer operator auditor admin",
    "GET /console/webhooks/{name}": "developer operator auditor admin",
    "GET /console/webhooks/{name}/{message_id}": "developer operator auditor admin",
    "GET /console/pipelines": ALL,
    "GET /console/pipelines/{name}": ALL,
    "GET /console/pipelines/{name}/graph.json": ALL,
    "GET /console/pipelines/{name}/diff": ALL,
    "GET /console/editor": "developer operator admin",
    "GET /console/money": ALL,
    "GET /console/models": ALL,
    "GET /console/playground": "developer admin",
    "POST /console/playground/calls": "developer admin",
    "GET /console/system": ALL,
    "POST /console/tickets": ALL,
    "POST /console/sign-out-everywhere": ALL,
}
PUBLIC = {
    "GET /console/sign-in",
    "POST /console/sign-in",
    "GET /console/sign-in/provider",
    "GET /console/sign-in/callback",
    "POST /console/sign-out",
}
RUN = "r" + "0" * 24
VALUES = {
    "run_id": RUN, "name": "none", "step": "none", "message_id": "none", "call_id": "none",
}  # fmt: skip
QUERIES = {
    "/console/compare": f"a={RUN}&b={RUN}",
    "/console/pipelines/{name}/diff": "a=1&b=2",
}
SIDES = {"keys": "auditor admin", "audit": "auditor admin", "dead-letters": ALL, "workers": ALL}


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


async def _status(rest: Rest, named: str, query: str = "", **headers: str) -> int:
    method, _, template = named.partition(" ")
    path = re.sub(r"\{([\w:]+)\}", lambda found: VALUES[found[1]], template)
    url = f"{rest.url}{path}?{query}"
    headers["Origin"] = rest.url  # without it, no form is accepted
    async with (
        aiohttp.ClientSession() as bare,
        bare.request(method, url, headers=headers, allow_redirects=False) as reply,
    ):
        return reply.status


async def test_every_page_is_shown_to_whom_the_table_says(rest: Rest) -> None:
    found = {
        f"{method} {one.template}": one.needs
        for one in rest.app.state.operations
        if one.template.startswith("/console") and "/assets/" not in one.template
        for method in one.methods - {"HEAD"}
    }
    assert {named for named, needs in found.items() if needs} == set(ALLOWED), "declare pages here"
    assert {named for named, needs in found.items() if not needs} == PUBLIC
    keys = {role: await rest.make_key(role, "acme") for role in ROLES if role != WORKER}
    for named, allowed in ALLOWED.items():
        query = QUERIES.get(named.partition(" ")[2], "")
        assert await _status(rest, named, query) == 401, named
        for role, key in keys.items():
            own = await _status(rest, named, query, **bearer(key))
            foreign = await _status(rest, named, f"{query}&tenant=rival", **bearer(key))
            assert (own not in (401, 403)) is (role in allowed.split()), (named, role, own)
            assert foreign in (403, 422), (named, role, foreign)


async def test_the_platforms_sides_have_permissions_of_their_own(rest: Rest) -> None:
    keys = {role: await rest.make_key(role, "acme") for role in ROLES if role != WORKER}
    for view, allowed in SIDES.items():
        for role, key in keys.items():
            status = await _status(rest, "GET /console/system", f"view={view}", **bearer(key))
            assert (status == 200) is (role in allowed.split()), (view, role, status)
