"""Keys, from their making to their end: at REST, over several processes, and in the audit."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import asyncpg
import pytest
from structlog.testing import capture_logs

from hocket.admin.keys.answering import KeysDoor
from hocket.kit.access import audit_log, key_source, key_store, people_store
from hocket.kit.access.audit_log import Actor
from hocket.kit.access.grant_book import GrantBook
from hocket.kit.access.key_book import KeyBook
from hocket.kit.access.key_source import AskedKeys, DatabaseKeys, KeysUntold
from hocket.kit.access.key_store import NewKey
from hocket.schemas.access.grants import Grants
from hocket.schemas.access.keys import AccessDenied, parts_of
from hocket.schemas.access.roles import permissions_of
from hocket.schemas.capabilities import Capabilities
from support.rest_rig import Answer, Rest, bearer, running_rest

BOUND_S = 30.0
REVOKED_WITHIN_S = 5.0
SPEC = {"pipeline": "p", "nodes": {"a": {"type": "signal", "signal": "go"}}}
RUN = """
INSERT INTO hocket.run (run_id, tenant, pipeline, version, priority, status, input, output, accepted_at,
                        deadline_at, finished_at, partition)
VALUES ('r' || repeat('1', 24), 'default', 'p', 1, 'standard', 'succeeded', '{"secret": "question"}',
        '{"secret": "answer"}', now(), now(), now(), 0)
"""


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


async def made(rest: Rest, role: str = "viewer", **more: Any) -> dict[str, Any]:
    headers = {"X-Hocket-Tenant": more.pop("tenant", "default")}
    answer = await rest.post("/v1/keys", {"name": "n", "role": role, **more}, headers=headers)
    assert answer.status == 201, answer
    return dict(answer.body)


async def asked(rest: Rest, key: str, path: str = "/v1/keys/own", **options: Any) -> Answer:
    headers = {**bearer(key), **options.pop("headers", {})}
    return await rest.ask(options.pop("method", "GET"), path, headers=headers, **options)


@pytest.mark.parametrize(("path", "rows"), [("/v1/keys", "keys"), ("/v1/audit", "entries")])
async def test_the_last_page_has_no_next_though_it_is_full(
    rest: Rest, path: str, rows: str
) -> None:
    for _ in range(3):
        await made(rest)
    every = (await rest.get(path)).body[rows]
    full = (await rest.get(f"{path}?limit={len(every)}")).body
    assert (full[rows], full["next"]) == (every, None)
    first = (await rest.get(f"{path}?limit={len(every) - 1}")).body
    last = (await rest.get(f"{path}?limit=1&after={first['next']}")).body
    assert (first[rows] + last[rows], last["next"]) == (every, None)


async def test_a_key_counts_from_its_making_and_its_secret_is_shown_once(rest: Rest) -> None:
    key = await made(rest, "developer")
    own = await asked(rest, key["key"])
    assert own.body["key_id"] == key["key_id"]
    assert set(own.body["permissions"]) == permissions_of("developer", None)
    shown = (await rest.get(f"/v1/keys/{key['key_id']}")).body
    assert "key" not in shown
    parts = parts_of(key["key"])
    assert parts is not None
    assert parts[1] not in json.dumps((await rest.get("/v1/keys")).body)


@pytest.mark.parametrize(
    "sent",
    [
        {"Authorization": "Bearer none"},
        {"Authorization": "Basic aGs6aGs="},
        {"X-Api-Key": "hk_000000000000_" + "0" * 64},
        {"X-Api-Key": "hk_'; DROP TABLE hocket.api_key; --"},
        {"X-Api-Key": "hk_000000000000_" + "g" * 64},
        {"X-Api-Key": "hk_٣٣٣٣٣٣٣٣٣٣٣٣_" + "0" * 64},
    ],
)
async def test_what_is_no_key_is_refused(rest: Rest, sent: dict[str, str]) -> None:
    async with (
        aiohttp.ClientSession() as bare,
        bare.get(rest.url + "/v1/runs", headers=sent) as reply,
    ):
        told = await reply.json()
        assert (reply.status, reply.content_type) == (401, "application/problem+json")
        assert told["code"] in ("key_refused", "key_missing")
        assert "hocket keys create" in told["cure"]


async def test_a_wrong_secret_of_a_key_that_there_is_says_no_more_than_no_key(rest: Rest) -> None:
    key = await made(rest)
    wrong = await asked(rest, f"hk_{key['key_id']}_{'0' * 64}")
    none = await asked(rest, f"hk_{'f' * 12}_{'0' * 64}")
    assert wrong.body == none.body


async def test_while_a_key_is_rotated_two_secrets_count(rest: Rest) -> None:
    first = await made(rest)
    place = f"/v1/keys/{first['key_id']}/rotate"
    second = (await rest.post(place, {"overlap_s": 3600})).body
    for key in (first, second):
        assert (await asked(rest, key["key"])).body["key_id"] == first["key_id"]
    for body in ({"overlap_s": 60}, None):
        refused = await rest.post(place, body)
        assert (refused.status, refused.body["code"]) == (409, "key_in_rotation")
        told = datetime.fromisoformat(refused.body["detail"].split("until ")[1].split(",")[0])
        late = told - datetime.fromisoformat(second["former_until"])
        assert timedelta() <= late < timedelta(seconds=1), "not before it ends"
        assert f"hocket keys rotate {first['key_id']} --overlap-s 0" in refused.body["detail"]
    assert (await asked(rest, first["key"])).status == 200
    third = (await rest.post(place, {"overlap_s": 0})).body
    assert (await asked(rest, third["key"])).status == 200  # the book knows of the rotation now
    for key in (first, second):
        assert (await asked(rest, key["key"])).status == 401


@pytest.mark.parametrize(
    ("left_s", "status"), [(0, 200), (1, 200), (290, 200), (310, 409)],
    ids=["ended", "daily with an overlap of a day", "ends soon", "lasts"],
)  # fmt: skip
async def test_a_key_is_rotated_again_once_its_former_secret_has_ended_or_ends_soon(
    rest: Rest, left_s: int, status: int
) -> None:
    key = await made(rest)
    place = f"/v1/keys/{key['key_id']}/rotate"
    assert (await rest.post(place, {"overlap_s": 0})).status == 200
    assert (await rest.post(place, {"overlap_s": 60})).status == 200
    await rest.pool.execute(
        "UPDATE hocket.api_key SET former_until = now() + make_interval(secs => $2)"
        " WHERE key_id = $1",
        key["key_id"],
        left_s,
    )
    assert (await rest.post(place, {"overlap_s": 86_400})).status == status
    actions = [one["action"] for one in (await rest.get("/v1/audit")).body["entries"]]
    rotated = 3 if status == 200 else 2
    assert actions.count("keys.rotate") == rotated, "what was refused is not audited"


async def test_an_expired_key_gets_no_other_secret_and_no_former_one_outlasts_its_key(
    rest: Rest,
) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    key = await made(rest, expires_at=ends.isoformat())
    place = f"/v1/keys/{key['key_id']}/rotate"
    for overlap_s, until in ((0, None), (86_400, key["expires_at"])):
        rotated = (await rest.post(place, {"overlap_s": overlap_s})).body
        assert (rotated["former_until"], rotated["expires_at"]) == (until, key["expires_at"])
    await rest.pool.execute(
        "UPDATE hocket.api_key SET former_until = expires_at + interval '1 day' WHERE key_id = $1",
        key["key_id"],
    )
    shown = (await rest.get(f"/v1/keys/{key['key_id']}")).body
    assert shown["former_until"] == key["expires_at"]
    await rest.pool.execute(
        "UPDATE hocket.api_key SET expires_at = now() WHERE key_id = $1", key["key_id"]
    )
    refused = await rest.post(place, {"overlap_s": 60})
    assert (refused.status, refused.body["code"]) == (409, "key_expired")
    assert "hocket keys create" in refused.body["detail"]


async def test_what_a_former_secret_began_ends_with_it(rest: Rest) -> None:
    """Otherwise whoever has a secret that is being replaced could go on for as long as they like."""
    first = await made(rest, "admin")
    place = f"/v1/keys/{first['key_id']}/rotate"
    second = (await rest.post(place, {"overlap_s": 3})).body
    assert (await asked(rest, second["key"])).status == 200  # the book knows of the rotation now
    for path, body in (("/v1/keys", {"name": "x", "role": "viewer"}), (place, None)):
        answer = await asked(rest, first["key"], path, method="POST", json=body)
        assert (answer.status, answer.body["field"]) == (403, "expires_at")
    ticket = await asked(rest, first["key"], "/console/tickets", method="POST")
    paths = (f"/console/sign-in?ticket={ticket.body['ticket']}", "/console/sign-in")
    async with bare_session() as bare:
        async with bare.get(rest.url + paths[0], allow_redirects=False) as reply:
            cookies = [reply.headers["Set-Cookie"].split(";")[0]]
        async with bare.post(rest.url + paths[1], json={"key": first["key"]}) as reply:
            cookies.append(reply.headers["Set-Cookie"].split(";")[0])
        for cookie in cookies:
            assert await status_of(bare, rest, {"Cookie": cookie}) == 200
            wanted = {"name": "x", "role": "viewer"}
            async with bare.post(
                f"{rest.url}/v1/keys", json=wanted, headers={"Cookie": cookie}
            ) as reply:
                assert (reply.status, (await reply.json())["field"]) == (403, "expires_at")
        shown = (bearer(first["key"]), {"Cookie": cookies[0]}, bearer(second["key"]))
        streams = [await bare.get(f"{rest.url}/v1/runs/events", headers=one) for one in shown]
        assert [stream.status for stream in streams] == [200, 200, 200]
        async with asyncio.timeout(BOUND_S):
            for stream in streams[:2]:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await stream.read()
        assert (await asked(rest, first["key"])).status == 401
        assert [await status_of(bare, rest, {"Cookie": one}) for one in cookies] == [401, 401]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(streams[2].read(), 0.5)


def bare_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())


async def status_of(session: aiohttp.ClientSession, rest: Rest, headers: dict[str, str]) -> int:
    async with session.get(f"{rest.url}/v1/keys/own", headers=headers) as reply:
        return reply.status


async def test_a_revoked_key_is_out_of_every_process_in_time_and_its_streams_end(
    rest: Rest,
) -> None:
    assert (await rest.post("/v1/pipelines", SPEC)).status == 201
    await rest.pool.execute(OPEN_RUN)
    key = await made(rest, "developer")
    seals = Capabilities([b"s" * 32])
    stored = DatabaseKeys(rest.pool)
    other = KeyBook(AskedKeys(rest.bus, seals))
    loop = asyncio.get_running_loop()
    async with (
        KeysDoor(rest.bus, stored, seals).open(),
        other.running(),
        aiohttp.ClientSession(headers=bearer(key["key"])) as session,
    ):
        await other.bearer(key["key"])
        ended = asyncio.create_task(waited(other, key["key"]))
        async with session.get(f"{rest.url}/v1/runs/r{'2' * 24}/events") as stream:
            assert stream.status == 200
            began_s = loop.time()
            assert (await rest.ask("DELETE", f"/v1/keys/{key['key_id']}")).body["revoked_at"]
            async with asyncio.timeout(REVOKED_WITHIN_S):
                with pytest.raises(AccessDenied):
                    await ended
                with pytest.raises(aiohttp.ClientPayloadError):
                    await stream.read()
        print(f"revoked everywhere after {loop.time() - began_s:.2f} s")
        assert (await asked(rest, key["key"])).status == 401
    again = await rest.post(f"/v1/keys/{key['key_id']}/rotate")
    assert (again.status, again.body["code"]) == (409, "key_revoked")


OPEN_RUN = """
INSERT INTO hocket.run (run_id, tenant, pipeline, version, priority, status, input, accepted_at,
                        deadline_at, partition)
VALUES ('r' || repeat('2', 24), 'default', 'p', 1, 'standard', 'running', '{}', now(),
        now() + interval '1 hour', 0)
"""


async def waited(book: KeyBook, key: str) -> None:
    """Do something for ever with a key."""
    with book.open(await book.bearer(key)):
        await asyncio.Event().wait()


async def test_an_expired_key_counts_no_more(rest: Rest) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    key = await made(rest, expires_at=soon.isoformat())
    assert (await asked(rest, key["key"])).status == 200
    await rest.pool.execute(
        "UPDATE hocket.api_key SET expires_at = now(), change = nextval('hocket.api_key_change')"
        " WHERE key_id = $1",
        key["key_id"],
    )
    async with asyncio.timeout(REVOKED_WITHIN_S):
        while (await asked(rest, key["key"])).status == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_many_unknown_keys_cost_few_looks_and_hold_nobody_up(rest: Rest) -> None:
    await asked(rest, rest.key)
    before = await looks(rest.pool)
    strangers = [f"hk_{secrets.token_hex(6)}_{secrets.token_hex(32)}" for _ in range(300)]
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    answers = asyncio.gather(*(asked(rest, key) for key in strangers))
    assert (await asked(rest, rest.key)).status == 200
    assert {answer.status for answer in await answers} == {401}
    rounds = (await looks(rest.pool)) - before
    assert rounds <= 5 + (loop.time() - began_s) / 0.1


async def looks(pool: "asyncpg.Pool[asyncpg.Record]") -> int:
    """Return how often the keys were read, as the server counts it."""
    await pool.execute("SELECT pg_stat_force_next_flush()")
    return int(
        await pool.fetchval(
            "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'api_key_change_idx'"
        )
    )


async def test_nobody_gives_what_he_does_not_have(rest: Rest) -> None:
    admin = await made(rest, "admin", tenant="acme")
    foreign = await made(rest, "viewer", tenant="rival")
    wide = await made(rest, "viewer", all_tenants=True)
    some = await made(rest, "admin", tenant="acme", scopes=["keys.manage", "runs.read"])

    more = await asked(
        rest, some["key"], "/v1/keys", method="POST", json={"name": "x", "role": "viewer"}
    )
    assert (more.status, more.body["code"]) == (403, "role_beyond_own")
    rotated = await asked(rest, some["key"], f"/v1/keys/{admin['key_id']}/rotate", method="POST")
    assert (rotated.status, rotated.body["code"]) == (403, "role_beyond_own")
    for path in (f"/v1/keys/{foreign['key_id']}", f"/v1/keys/{wide['key_id']}"):
        for method, place in (("GET", path), ("POST", f"{path}/rotate"), ("DELETE", path)):
            assert (await asked(rest, admin["key"], place, method=method)).status == 404
    everywhere = {"name": "x", "role": "viewer", "all_tenants": True}
    answer = await asked(rest, admin["key"], "/v1/keys", method="POST", json=everywhere)
    assert (answer.status, answer.body["code"]) == (403, "tenant_forbidden")
    listed = (await asked(rest, admin["key"], "/v1/keys")).body["keys"]
    assert {key["tenant"] for key in listed} == {"acme"}
    assert (await asked(rest, admin["key"], "/v1/keys?all_tenants=true")).status == 403


@pytest.mark.parametrize(
    ("bounds", "asked_for", "field"),
    [
        ({"models": ["cheap"]}, {}, "models"),
        ({"models": ["cheap"]}, {"models": ["cheap", "dear"]}, "models"),
        ({"requests_per_s": 50}, {}, "requests_per_s"),
        ({"requests_per_s": 50}, {"requests_per_s": 51}, "requests_per_s"),
        ({"expires_at": "2099-01-01T00:00:00Z"}, {}, "expires_at"),
        ({"expires_at": "2099-01-01T00:00:00Z"}, {"expires_at": "2099-01-02T00:00:00Z"}, "expires_at"),
    ],
)  # fmt: skip
async def test_nobody_gives_more_models_requests_or_time_than_he_has(
    rest: Rest, bounds: dict[str, Any], asked_for: dict[str, Any], field: str
) -> None:
    some = await made(rest, "admin", tenant="acme", **bounds)
    other = await made(rest, "developer", tenant="acme", **asked_for)
    body = {"name": "x", "role": "developer", **asked_for}
    place = f"/v1/keys/{other['key_id']}/rotate"
    for answer in (
        await asked(rest, some["key"], "/v1/keys", method="POST", json=body),
        await asked(rest, some["key"], place, method="POST"),
    ):
        assert (answer.status, answer.body["code"]) == (403, "key_beyond_own")
        assert answer.body["field"] == field
    same = {"name": "x", "role": "developer", **bounds}
    made_so = await asked(rest, some["key"], "/v1/keys", method="POST", json=same)
    assert made_so.status == 201


async def test_no_key_is_made_that_has_already_expired(rest: Rest) -> None:
    body = {"name": "x", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}
    answer = await asked(rest, rest.key, "/v1/keys", method="POST", json=body)
    assert (answer.status, answer.body["field"]) == (422, "expires_at")
    assert "x" not in {
        key["name"] for key in (await asked(rest, rest.key, "/v1/keys?all=true")).body["keys"]
    }


async def test_the_keys_of_one_tenant_leave_others_room(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_store, "MAX_TENANT_KEYS", 2)
    monkeypatch.setattr(key_store, "MAX_TENANT_MODELS", 3)
    admin = await made(rest, "admin", tenant="acme")
    body = {"name": "x", "role": "developer", "models": ["a", "b", "c"]}
    wide = await asked(
        rest, admin["key"], "/v1/keys", method="POST", json={**body, "models": list("abcd")}
    )
    assert (wide.status, wide.body["code"]) == (429, "tenant_keys_full")
    assert (await asked(rest, admin["key"], "/v1/keys", method="POST", json=body)).status == 201
    more = await asked(
        rest, admin["key"], "/v1/keys", method="POST", json={"name": "x", "role": "viewer"}
    )
    assert (more.status, more.body["code"]) == (429, "tenant_keys_full")
    assert (await made(rest, "viewer", tenant="rival"))["tenant"] == "rival"


async def test_scopes_must_be_of_the_role(rest: Rest) -> None:
    body = {"name": "x", "role": "viewer", "scopes": ["pipelines.apply"]}
    answer = await rest.post("/v1/keys", body)
    assert (answer.status, answer.body["field"]) == (422, "scopes")


async def test_a_key_is_held_to_its_rate_beyond_its_rotation(rest: Rest) -> None:
    key = await made(rest, requests_per_s=1)
    statuses = [(await asked(rest, key["key"])).status for _ in range(6)]
    assert statuses[:2] == [200, 200]
    assert statuses[-1] == 429
    other = (await rest.post(f"/v1/keys/{key['key_id']}/rotate")).body
    refused = await asked(rest, other["key"])
    assert (refused.status, refused.body["code"]) == (429, "too_many_requests")
    assert int(refused.headers["Retry-After"]) >= 1
    assert (await asked(rest, rest.key)).status == 200


async def test_an_address_without_a_key_cannot_ask_for_documents_without_end(rest: Rest) -> None:
    async with aiohttp.ClientSession() as bare:

        async def status() -> int:
            async with bare.get(rest.url + "/openapi.json") as reply:
                return reply.status

        statuses = await asyncio.gather(*(status() for _ in range(200)))
        assert 200 in statuses
        assert 429 in statuses
        async with bare.get(rest.url + "/healthz") as reply:
            assert reply.status == 200


async def test_inputs_and_outputs_are_for_those_who_may_see_content(rest: Rest) -> None:
    assert (await rest.post("/v1/pipelines", SPEC)).status == 201
    await rest.pool.execute(RUN)
    path = f"/v1/runs/r{'1' * 24}"
    for role, sees in (("developer", True), ("viewer", False), ("operator", False)):
        key = (await made(rest, role))["key"]
        run = (await asked(rest, key, path)).body
        stream = (await asked(rest, key, f"{path}/events")).body
        values = await asked(rest, key, f"{path}/steps?values=true")
        assert run["withheld"] is not sees
        assert ("question" in json.dumps(run), "answer" in json.dumps(run)) == (sees, sees)
        assert ("answer" in stream) is sees
        assert values.status == (200 if sees else 403)


async def test_who_changed_what_stands_in_the_audit_and_a_change_of_it_shows(rest: Rest) -> None:
    key = await made(rest, "admin", tenant="acme")
    applied = await asked(rest, key["key"], "/v1/pipelines", method="POST", json=SPEC)
    assert applied.status == 201
    same = await asked(rest, key["key"], "/v1/pipelines", method="POST", json=SPEC)
    assert same.status == 200
    assert (await rest.ask("DELETE", f"/v1/keys/{key['key_id']}")).status == 200

    entries = (await rest.get("/v1/audit")).body["entries"]
    told = [(one["action"], one["target"], one["tenant"]) for one in entries]
    by = f"key:{key['key_id']}"
    assert told[-3:] == [
        ("keys.create", by, "acme"),
        ("pipelines.apply", "pipeline:p", "acme"),
        ("keys.revoke", by, "acme"),
    ]
    assert (entries[-2]["actor"], entries[-2]["address"]) == (by, "127.0.0.1")
    assert key["key"].rpartition("_")[2] not in json.dumps(entries)
    whole = (await rest.get("/v1/audit/verdict")).body
    assert (whole["status"], whole["rows"]) == ("whole", len(entries))
    kept = (await rest.get(f"/v1/audit/verdict?head={entries[-1]['hash']}")).body
    assert kept["status"] == "whole"
    gone = (await rest.get(f"/v1/audit/verdict?head={'0' * 64}")).body
    assert gone["status"] == "broken"
    part = (await rest.get("/v1/audit/verdict?limit=2")).body
    assert (part["status"], part["rows"], part["next"]) == ("whole", 2, 2)
    begin = f"from_row={part['next']}&from_hash={part['head']}"
    assert (await rest.get(f"/v1/audit/verdict?{begin}&limit=500")).body == whole
    other = await rest.get(f"/v1/audit/verdict?from_row=2&from_hash={'0' * 64}")
    assert (other.body["status"], other.body["broken_at"]) == ("broken", 2)
    for name in begin.split("&"):
        assert (await rest.get(f"/v1/audit/verdict?{name}")).status == 422
    mine = await asked(rest, key["key"], f"/v1/audit/verdict?{begin}")
    assert mine.status in (401, 403)


TAMPERED = (
    "UPDATE hocket.audit SET actor = 'key:somebody' WHERE seq = 2",
    "DELETE FROM hocket.audit WHERE seq = 2",
    "DELETE FROM hocket.audit WHERE seq = 3",
)


@pytest.mark.parametrize("statement", TAMPERED)
async def test_no_row_of_the_audit_can_be_changed_unseen(rest: Rest, statement: str) -> None:
    for _ in range(2):
        await made(rest)
    for refused in (statement, "TRUNCATE hocket.audit"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
            await rest.pool.execute(refused)
    await rest.pool.execute("ALTER TABLE hocket.audit DISABLE TRIGGER USER")
    await rest.pool.execute(statement)
    verdict = (await rest.get("/v1/audit/verdict")).body
    assert verdict["status"] == "broken"
    assert verdict["broken_at"] in (2, 3)


async def test_no_row_of_the_audit_can_be_added_at_its_end_unseen(rest: Rest) -> None:
    await made(rest)
    (last,) = await audit_log.page(rest.pool, after=1, tenant=None, limit=5)
    row = replace(last, seq=3, action="keys.revoke", previous=last.hash, hash=b"")
    values = [row.seq, row.at, row.tenant, row.actor, row.address, row.action, row.target]
    values += [row.before, row.after, row.previous, row.expected_hash]
    await rest.pool.execute(audit_log.INSERT, *values)
    verdict = (await rest.get("/v1/audit/verdict")).body
    assert (verdict["status"], verdict["broken_at"], verdict["rows"]) == ("broken", 3, 2)
    await rest.pool.execute("DELETE FROM hocket.audit_head")
    verdict = (await rest.get("/v1/audit/verdict")).body
    assert (verdict["status"], verdict["broken_at"]) == ("broken", 4)


async def test_an_action_that_fails_leaves_no_row(rest: Rest) -> None:
    before = (await rest.get("/v1/audit/verdict")).body["rows"]
    body = {"name": "x", "role": "viewer", "scopes": ["audit.read"]}
    assert (await rest.post("/v1/keys", body)).status == 422
    assert (await rest.get("/v1/audit/verdict")).body["rows"] == before


async def test_a_revoked_person_who_tries_to_sign_in_is_in_the_audit(rest: Rest) -> None:
    person = "oidc-" + "1" * 20, "ann", ["builders"], time.time() + 60
    async with rest.pool.acquire() as connection:
        row = await people_store.sign_in(connection, *person, "192.0.2.1")
        await key_store.revoke(connection, row, None, Actor("test", "local"))
        with pytest.raises(people_store.PersonRevoked):
            await people_store.sign_in(connection, *person, "192.0.2.2")
    *_, last = await audit_log.page(rest.pool, after=0, tenant=None, limit=10)
    assert (last.action, last.target) == ("console.sign_in_denied", f"person:{person[0]}")
    assert (last.address, json.loads(last.after or "")["revoked"]) == ("192.0.2.2", True)
    assert (await rest.get("/v1/audit/verdict")).body["status"] == "whole"


async def test_a_person_who_signs_in_and_out_at_once_has_one_row(rest: Rest) -> None:
    subject = "oidc-" + "2" * 20
    person = subject, "ann", ["builders"], time.time() + 60, "192.0.2.1"

    async def sign_in() -> str:
        async with rest.pool.acquire() as connection:
            return await people_store.sign_in(connection, *person)

    async def sign_out() -> None:
        async with rest.pool.acquire() as connection:
            await people_store.sign_out_everywhere(connection, subject, Actor(subject, "local"))

    assert len(set(await asyncio.gather(*(sign_in() for _ in range(20))))) == 1
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*(one() for _ in range(20) for one in (sign_in, sign_out)))


FULL_KEYS = """
INSERT INTO hocket.api_key (key_id, name, tenant, role, pools, subject, groups, created_by,
                            secret_sha256)
SELECT lpad(to_hex(i), 12, '0'), 'full ' || i, NULL, CASE WHEN i % 2 = 0 THEN 'worker' ELSE 'viewer' END,
       CASE WHEN i % 2 = 0 THEN $1::text[] END, CASE WHEN i % 2 = 1 THEN 'oidc-' || i END,
       CASE WHEN i % 2 = 1 THEN $2::text[] END, 'test', decode(repeat('ab', 32), 'hex')
FROM generate_series(1, 400) i
"""
FULL_GRANTS = """
INSERT INTO hocket.tenant_grants (tenant, grants, change)
SELECT 'tenant-' || i, $1, nextval('hocket.tenant_grants_change') FROM generate_series(1, 20) i
"""


async def test_gateways_learn_all_keys_and_grants_however_long_their_lists_are(rest: Rest) -> None:
    pools = [f"{'a' * 90}.n{number:02d}" for number in range(32)]
    groups = ["\N{LATIN SMALL LETTER E WITH ACUTE}" * 90 + str(number) for number in range(60)]
    names = tuple(f"{'m' * 150}{number:03d}" for number in range(500))
    grants = Grants(models=names).model_dump_json(exclude_none=True)
    await rest.pool.execute(FULL_KEYS, pools, groups)
    await rest.pool.execute(FULL_GRANTS, grants)
    key = await rest.make_key("developer", "acme")
    seals = Capabilities([b"x" * 32])
    source = AskedKeys(rest.bus, seals)
    gateway, book = KeyBook(source), GrantBook(source.grants)
    async with KeysDoor(rest.bus, DatabaseKeys(rest.pool), seals).open(), gateway.running():
        async with asyncio.timeout(BOUND_S):
            await book.load()
            while gateway.of(key[3:15]) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert gateway.known(key).name == "developer"
    assert all(book.of(f"tenant-{number}").models == names for number in range(1, 21))


async def test_an_answer_that_is_too_large_for_a_message_is_logged(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_source, "PAGE_BYTES", 100 * key_source.PAGE_BYTES)
    await rest.pool.execute(FULL_KEYS, ["a" * 99 + str(number) for number in range(32)] * 3, ["g"])
    seals = Capabilities([b"x" * 32])
    async with KeysDoor(rest.bus, DatabaseKeys(rest.pool), seals).open():
        with capture_logs() as logs, pytest.raises(KeysUntold):
            await AskedKeys(rest.bus, seals).page(0, whole=True)
    assert "PayloadTooLarge" in next(
        one["reason"] for one in logs if one["event"] == "keys_not_told"
    )


async def test_many_writers_make_one_chain(rest: Rest) -> None:
    await asyncio.gather(*(made(rest) for _ in range(20)))
    verdict = (await rest.get("/v1/audit/verdict")).body
    assert (verdict["status"], verdict["rows"]) == ("whole", 21)


async def test_the_first_key_is_made_once_and_stays_revoked(rest: Rest) -> None:
    key_id, secret = secrets.token_hex(6), secrets.token_hex(32)
    wanted, actor = NewKey("first", "admin", None), Actor("HOCKET_ADMIN_KEY", "local")

    async def start() -> None:
        async with rest.pool.acquire() as connection:
            await key_store.adopt(connection, key_id, secret, wanted, actor)

    await asyncio.gather(*(start() for _ in range(5)))  # as many processes
    assert (await asked(rest, f"hk_{key_id}_{secret}")).body["role"] == "admin"
    assert (await rest.get("/v1/audit/verdict")).body["rows"] == 2
    assert (await rest.ask("DELETE", f"/v1/keys/{key_id}")).status == 200
    await start()
    async with asyncio.timeout(REVOKED_WITHIN_S):
        while (await asked(rest, f"hk_{key_id}_{secret}")).status == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_keys_that_are_made_at_once_are_no_more_than_the_limit(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_store, "MAX_TENANT_KEYS", 1)
    wanted, actor = NewKey("a", "viewer", "crowded"), Actor("test", "local")
    first, second, watch = [await asyncpg.connect(database_url) for _ in range(3)]
    try:
        async with first.transaction():
            await key_store.create(first, wanted, actor)
            making = asyncio.create_task(key_store.create(second, wanted, actor))
            waits = "SELECT cardinality(pg_blocking_pids($1)) > 0"
            async with asyncio.timeout(20):
                while not await watch.fetchval(waits, second.get_server_pid()):
                    assert not making.done()
        with pytest.raises(key_store.TenantKeysFull):
            await making
    finally:
        for connection in (first, second, watch):
            await connection.close()
