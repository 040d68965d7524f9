"""Keys are created with a form, which shows the key once and nowhere else."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from hocket.schemas.access.roles import Permission
from support.administration.console_rig import asked_bare, cookie_of, fault_of, posted, value_of
from support.rest_rig import Rest, bearer

NEW = "/new/key"
LATER = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(days=30)
FIELDS: dict[str, Any] = {
    "name": "ci of search",
    "role": "developer",
    "expires_at": f"{LATER:%Y-%m-%dT%H:%M}",
    "requests_per_s": "2.5",
    "models": "writer\r\nsmall, cheap\r\n",
    "pools": "",
    "scopes": ["runs.read", "models.call"],
}


@pytest.fixture
async def mine(rest: Rest) -> dict[str, str]:
    return await cookie_of(rest, await rest.make_key("admin"))


def key_in(page: str) -> str:
    found = re.findall(r'<code id="once">(hk_[^<]+)</code>', page)
    assert len(found) == 1
    return str(found[0])


async def test_a_key_is_created_with_all_that_rest_offers(rest: Rest, mine: dict[str, str]) -> None:
    answer = await posted(rest, NEW, FIELDS, mine)
    key = key_in(answer.body)
    made = (await rest.get(f"/v1/keys/{key.split('_')[1]}")).body
    own = (await rest.get("/v1/runs", headers=bearer(key))).status

    assert answer.status == 201
    assert {name: made[name] for name in ("name", "role", "tenant", "requests_per_s")} == {
        "name": "ci of search", "role": "developer", "tenant": "default", "requests_per_s": 2.5,
    }  # fmt: skip
    assert made["models"] == ["writer", "small, cheap"]
    assert sorted(made["scopes"]) == ["models.call", "runs.read"]
    assert datetime.fromisoformat(made["expires_at"]) == LATER
    assert own == 200


async def test_the_key_is_shown_once_and_nowhere_else(rest: Rest, mine: dict[str, str]) -> None:
    with capture_logs() as lines:
        answer = await posted(rest, NEW, FIELDS, mine)
    key = key_in(answer.body)
    secret = key.split("_")[2]
    audit = (await rest.get("/v1/audit?limit=500")).body["entries"]
    entry = next(one for one in audit if one["target"] == f"key:{key.split('_')[1]}")
    tables = await rest.pool.fetch(
        "SELECT to_jsonb(k)::text AS row FROM hocket.api_key k"
        " UNION ALL SELECT to_jsonb(a)::text FROM hocket.audit a"
    )
    pages = [
        (await rest.get(f"/console/system?view={view}", headers={"Accept": "text/html"})).body
        for view in ("keys", "audit")
    ]

    assert answer.headers["Cache-Control"] == "no-store"
    assert "Location" not in answer.headers
    assert secret not in str(answer.headers)
    assert entry["action"] == "keys.create"
    assert entry["after"]["name"] == "ci of search"
    assert len(tables) > 2
    for place in (str(lines), *(row["row"] for row in tables), *pages):
        assert secret not in place


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("name", "", "It is empty. Fill it in."),
        ("name", "k\u00e9y", "It is empty, begins or ends with a space, or has a character"),
        ("role", "", "It is empty. Fill it in."),
        ("role", "owner", "It is not one of its values. Use `viewer`"),
        ("expires_at", "tomorrow", "It is not a time. Write it as `2026-12-31T23:59`"),
        ("expires_at", "2026-02-30T00:00", "There is no such time."),
        (
            "expires_at",
            "2020-01-01T00:00",
            "The key would already have expired. Choose a time in the future",
        ),
        ("requests_per_s", "many", "It is not a number."),
        ("requests_per_s", "0", "It is out of bounds. Use 0.01 or more."),
        ("models", " \x1b", "Entry 1: it is empty, begins or ends with a space"),
        ("pools", "crm lookup", "Entry 1: it is not a pool."),
        ("pools", "crm.lookup", "The role is `developer`. Use it with the role `worker`."),
        ("scopes", ["keys.manage"], "The role `developer` does not have keys.manage."),
    ],
)
async def test_what_is_wrong_is_said_at_its_field_and_what_was_typed_stays(
    rest: Rest, mine: dict[str, str], field: str, typed: Any, said: str
) -> None:
    fields = {**FIELDS, field: typed}
    before = await rest.pool.fetchval("SELECT count(*) FROM hocket.api_key")
    answer = await posted(rest, NEW, fields, mine)

    assert answer.status == 422
    assert fault_of(answer.body, field).startswith(said.replace("`", "")), answer.body
    for name in ("name", "role", "requests_per_s"):
        assert value_of(answer.body, name) == fields[name], name
    assert "hk_" not in answer.body
    assert await rest.pool.fetchval("SELECT count(*) FROM hocket.api_key") == before


async def test_nobody_creates_a_key_that_may_do_more_than_their_own(rest: Rest) -> None:
    ends = datetime.now(UTC) + timedelta(days=1)
    scopes = frozenset({Permission.KEYS_MANAGE, Permission.RUNS_READ})
    narrow = await rest.make_key("admin", expires_at=ends, requests_per_s=50.0, scopes=scopes)
    mine = await cookie_of(rest, narrow)
    fields = {**FIELDS, "role": "admin", "scopes": ["runs.read"], "expires_at": "", "models": ""}
    role = await posted(rest, NEW, {**fields, "scopes": []}, mine)
    expiry = await posted(rest, NEW, fields, mine)
    page = await asked_bare(rest, "GET", f"/console{NEW}", headers=mine)

    assert role.status == 403
    assert "A key cannot grant what it does not have" in fault_of(role.body, "role")
    assert expiry.status == 403
    assert fault_of(expiry.body, "expires_at").startswith("A key cannot grant more than it has, ")
    assert set(re.findall(r'name="scopes" value="([^"]+)"', page.body)) == set(scopes)


async def test_a_key_of_one_tenant_creates_keys_of_that_tenant(
    rest: Rest, mine: dict[str, str]
) -> None:
    page = await asked_bare(rest, "GET", f"/console{NEW}", headers=mine)
    refused = await posted(rest, NEW, {**FIELDS, "all_tenants": "true"}, mine)

    worker = {"name": "w", "role": "worker", "pools": "crm.lookup"}
    narrow = await posted(rest, NEW, worker, mine)

    assert 'name="all_tenants"' not in page.body
    assert '<option value="worker">' not in page.body
    assert narrow.status == 422
    assert "Steps of a node type come from all tenants." in fault_of(narrow.body, "all_tenants")
    assert refused.status == 403
    assert "hk_" not in refused.body


async def test_an_all_tenants_key_chooses_the_tenant_of_a_key(rest: Rest) -> None:
    everybody = await cookie_of(rest, await rest.make_key("admin", None))
    page = await asked_bare(rest, "GET", f"/console{NEW}?tenant=acme", headers=everybody)
    made: list[Any] = []
    worker = {
        **FIELDS, "role": "worker", "scopes": [], "models": "", "pools": "crm.lookup\r\nllm@bulk",
    }  # fmt: skip
    for fields in ({**FIELDS, "all_tenants": "false"}, {**worker, "all_tenants": "true"}):
        answer = await posted(rest, f"{NEW}?tenant=acme", fields, everybody)
        assert answer.status == 201, answer.body
        made.append((await rest.get(f"/v1/keys/{key_in(answer.body).split('_')[1]}")).body)

    assert '<option value="false">acme</option>' in page.body
    assert [one["tenant"] for one in made] == ["acme", None]
    assert made[1]["pools"] == ["crm.lookup", "llm@bulk"]
