"""What a role may not do, no page offers it."""

import re
from collections.abc import AsyncIterator, Iterator

import pytest

from hocket.kit.access.key_store import WORKER
from hocket.schemas.access.roles import ROLES
from support.administration.console_pages import EVERY_PAGE
from support.administration.console_rig import asked_bare, cookie_of
from support.administration.console_scene import WAITING, set_up
from support.rest_rig import Rest, running_rest

ACTS = {
    "retry": "POST /runs/{run_id}/retry",
    "redrive": "POST /dead-letters/{seq}/redrive",
    "revoke": "DELETE /keys/{key_id}",
    "bulkCancel": "POST /bulk/operations",
    "bulkRetry": "POST /bulk/operations",
}
"""What scripts ask for where a button of these is pressed."""
HARMLESS = {"out", "out-everywhere", "copy", "compare", "saveView", "showFresh", "arm"}
"""What needs no permission; what `arm` asks for stands in `data-path`."""
OFFERED_TO = {
    "viewer": set[str](),
    "developer": {"retry", "apply", "signals", "schedule", "edit", "webhook"},
    "operator": {"retry", "drain", "signals", "schedule", "webhook"},
    "auditor": set[str](),
    "admin": {
        "retry", "apply", "drain", "revoke", "signals", "schedule", "edit", "webhook", "key",
    },
}  # fmt: skip
"""By hand, some of what each role is offered and not: pages that offer nothing would pass otherwise."""


OF_ALL = ("admin", "operator")
"""Whose keys are of all tenants: only those change what is everybody's."""


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        await set_up(rest)
        yield rest


def offers_of(page: str) -> Iterator[str]:
    """Yield the operations of the API that a page offers, as `POST /runs/…/cancel`."""
    yield from (said for said in re.findall(r'data-api="([A-Z]+ /[^"]*)"', page))
    yield from (f"POST {path}" for path in re.findall(r'data-path="(/[^"]*)"', page))
    yield from (f"POST {path}" for path in re.findall(r'method="post" action="([^"?]+)', page))
    yield from (
        f"GET {path}" for path in re.findall(r'href="(/console/(?:new/|[^"]+/edit)[^"?]*)', page)
    )
    for act in re.findall(r'data-act="([\w-]+)"', page):
        assert act in ACTS or act in HARMLESS, f"say here what {act} asks for"
        if act in ACTS:
            yield ACTS[act]
    if 'id="apply"' in page:
        yield "POST /pipelines"
    if 'id="playground"' in page:
        yield "POST /console/playground/calls"


@pytest.mark.parametrize("role", sorted(role for role in ROLES if role != WORKER))
async def test_a_role_is_offered_only_what_it_may_ask_for(rest: Rest, role: str) -> None:
    mine = await cookie_of(rest, await rest.make_key(role, None if role in OF_ALL else "default"))
    needs = {
        (method, re.compile(re.sub(r"\{[^}]+\}", "[^/]+", one.template))): set(one.needs)
        for one in rest.app.state.operations
        for method in one.methods
    }
    offered: set[str] = set()
    for path in (*EVERY_PAGE, f"/runs/{WAITING}", f"/runs/{WAITING}/steps/send"):
        answer = await asked_bare(rest, "GET", f"/console{path}", headers=mine)
        assert answer.status in (200, 403), path
        if answer.status == 200:
            offered |= set(offers_of(answer.body))
    for said in offered:
        method, _, path = said.partition(" ")
        asked = path if path.startswith("/console") else f"/v1{path}"
        needed = [
            one for (of, pattern), one in needs.items() if of == method and pattern.fullmatch(asked)
        ]
        assert needed, f"there is no operation {said}"
        assert all(one <= set(ROLES[role]) for one in needed), (role, said)
    for word in OFFERED_TO["admin"]:
        found = any(said.endswith(f"/{word}") or said == ACTS.get(word) for said in offered)
        if word == "apply":
            found = "POST /pipelines" in offered
        assert found is (word in OFFERED_TO[role]), (role, word, sorted(offered))
