"""Which version runs take: chosen over REST, obeyed by the coordinators of a whole platform."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hocket.admin.pipelines import canaries, release_store, releases, settling, versions
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.cli.terminal.errors import ApiRefused
from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from support.rest_rig import Rest, bearer, running_rest

BOUND_S = 60.0
ECHO = "hocket.workers.builtin:echo"
FAIL = "hocket.workers.builtin:fail"


def spec(version: int, name: str = "p", handler: str = ECHO) -> dict[str, Any]:
    """Return a pipeline whose output says which version it is."""
    node = {"type": "python", "handler": handler, "with": {"value": version}}
    return {"pipeline": name, "nodes": {"a": node}, "output": "{{ nodes.a.output.value }}"}


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    services = ("coordinator", "worker", "admin")
    async with Platform(folder / "d", services=services, worker_types=("python",)) as running:
        yield running
    shutil.rmtree(folder)


class Played:
    """Changes a platform, and looks what its runs take."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def post(self, path: str, body: Any = None) -> dict[str, Any]:
        return dict(await asyncio.to_thread(self.api.post, path, body))

    async def version(self, pipeline: str, **task: Any) -> int:
        """Return the version that a run took."""
        asked = {"pipeline": pipeline, "input": {}, "wait_ms": 20_000, **task}
        return int((await self.post("/v1/runs", asked))["version"])

    async def take(self, pipeline: str, version: int) -> None:
        """Check that runs take a version from now on: many at once, so that each coordinator does."""
        taken = await asyncio.gather(*(self.version(pipeline) for _ in range(5)))
        assert taken == [version] * 5


async def test_runs_take_the_version_that_is_activated(platform: Platform) -> None:
    play = Played(platform.api())
    for number in (1, 2):
        await play.post("/v1/pipelines", spec(number))
        await play.take("p", number)
    released = await play.post("/v1/pipelines/p/activate", {"version": 1})
    assert (released["active_version"], released["former_version"]) == (1, 2)
    await play.take("p", 1)
    third = await play.post("/v1/pipelines", spec(3))
    assert any("activate p 3" in one for one in third["warnings"])
    assert [await play.version("p") for _ in range(5)] == [1] * 5, "what is newer waits"
    assert await play.version("p", version=3) == 3, "but for tasks that name it"
    await play.post("/v1/pipelines/p/rollback")
    await play.take("p", 2)
    await play.post("/v1/pipelines/p/activate", {})
    await play.take("p", 3)


async def test_every_run_after_an_applied_version_takes_it(platform: Platform) -> None:
    play = Played(platform.api())
    for number in range(1, 7):
        applied = await play.post("/v1/pipelines", spec(number, "often"))
        assert applied["version"] == number
        await play.take("often", number)


async def test_a_version_that_two_apply_at_once_is_taken_when_either_is_told(
    platform: Platform,
) -> None:
    play = Played(platform.api())
    for number in (1, 2, 3):
        first, second = (
            asyncio.create_task(play.post("/v1/pipelines", spec(number, "twice"))) for _ in range(2)
        )
        await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        await play.take("twice", number)
        assert {(await first)["version"], (await second)["version"]} == {number}


async def test_a_sub_pipeline_takes_the_active_version(platform: Platform) -> None:
    play = Played(platform.api())
    for number in (1, 2):
        await play.post("/v1/pipelines", spec(number, "inner"))
    outer = {"pipeline": "outer", "nodes": {"a": {"type": "pipeline", "pipeline": "inner"}}}
    await play.post("/v1/pipelines", outer | {"output": "{{ nodes.a.output }}"})
    await play.post("/v1/pipelines/inner/activate", {"version": 1})
    end = await play.post("/v1/runs", {"pipeline": "outer", "input": {}, "wait_ms": 20_000})
    assert (end["status"], end["output"]) == ("succeeded", 1)


async def test_a_share_of_the_runs_takes_the_canary_which_is_ended_when_it_fails(
    platform: Platform,
) -> None:
    play = Played(platform.api())
    for number, handler in ((1, ECHO), (2, FAIL)):
        await play.post("/v1/pipelines", spec(number, "tried", handler))
        if number == 1:
            await play.post("/v1/pipelines/tried/activate", {"version": 1})
    body = {"version": 2, "share": 0.5, "min_runs": 5}
    await asyncio.to_thread(play.api.put, "/v1/pipelines/tried/canary", body)
    taken: Counter[int] = Counter()
    async with asyncio.timeout(BOUND_S):
        while taken[2] < 15 or not taken[1]:
            taken[await play.version("tried")] += 1
            if (await _release(play, "tried"))["canary"] is None:
                break  # it was ended meanwhile
        while (await _release(play, "tried"))["canary"] is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    async with asyncio.timeout(BOUND_S):  # the judge tells nobody, so nobody waits for it
        while await play.version("tried") != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    entries = (await asyncio.to_thread(play.api.get, "/v1/audit", limit=500))["entries"]
    ended = next(one for one in entries if one["action"] == "pipelines.canary_worse")
    assert ended["actor"] == canaries.ACTOR.name
    assert ended["before"]["candidate"]["failed"] >= 5
    assert ended["before"]["active"]["failed"] == 0


async def _release(play: Played, name: str) -> dict[str, Any]:
    return dict(await asyncio.to_thread(play.api.get, f"/v1/pipelines/{name}/release"))


async def test_an_archived_pipeline_takes_no_runs_through_any_door(platform: Platform) -> None:
    play = Played(platform.api())
    await play.post("/v1/pipelines", spec(1, "old"))
    assert await play.version("old") == 1
    await play.post("/v1/pipelines/old/archive")
    with pytest.raises(ApiRefused) as refused:
        await play.version("old")
    assert refused.value.info().code == "pipeline_archived"
    task = {"pipeline": "old", "input": {}}
    body = {"cron": "0 0 * * *", "time_zone": "UTC", "task": task}
    with pytest.raises(ApiRefused) as refused:
        await asyncio.to_thread(play.api.put, "/v1/schedules/old", body)
    assert refused.value.info().code == "pipeline_archived"
    bus = await Bus.connect(platform.nats_url, name="test")
    await bus.publish(subjects.task("default", "old"), b"{}")
    async with asyncio.timeout(BOUND_S):
        while not (letters := await dead_letters.list_(bus)):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert [letter.error.code for letter in letters] == ["pipeline_archived"]
    await bus.close()
    for version in ({}, {"version": 1}):
        nodes = {"only": {"type": "pipeline", "pipeline": "old", **version}}
        await play.post("/v1/pipelines", {"pipeline": "calls-old", "nodes": nodes})
        run = await play.post("/v1/runs", {"pipeline": "calls-old", "wait_ms": 20_000})
        assert run["error"]["code"] == "pipeline_archived"
    names = await asyncio.to_thread(play.api.get, "/v1/pipelines")
    assert "old" not in {one["pipeline"] for one in names["pipelines"]}
    await play.post("/v1/pipelines/old/unarchive")
    await play.take("old", 1)


@pytest.fixture
async def rest(
    nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Rest]:
    """The REST service alone: no coordinator takes a former version, so none is waited for."""
    for name in ("RELEASE_FOR_S", "MARGIN_S"):
        monkeypatch.setattr(settling, name, 0.0)
    async with running_rest(nats_url, database_url) as rest:
        yield rest


@pytest.fixture
def waits(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each change would have waited, which it does without a connection."""
    found: list[float] = []

    async def settle(seconds: float) -> None:
        pool = rest.app.state.context.pool
        assert pool.get_idle_size() == pool.get_size()
        found.append(seconds)

    monkeypatch.setattr(settling, "RELEASE_FOR_S", 60.0)
    for module in (versions, releases):
        monkeypatch.setattr(module, "settle", settle)
    return found


async def settled(rest: Rest) -> None:
    """Let everything that was changed have been changed long ago."""
    for table, column in (("pipeline", "created_at"), ("pipeline_release", "changed_at")):
        await rest.pool.execute(
            f"UPDATE hocket.{table} SET {column} = {column} - interval '1 hour'"
        )


async def test_only_a_change_of_what_runs_take_is_waited_for(
    rest: Rest, waits: list[float]
) -> None:
    place = "/v1/pipelines/p"
    canary = {"version": 3, "share": 0.5}
    for method, path, body, waited in (
        ("POST", "/v1/pipelines", spec(1), False),  # no process knows it
        ("POST", "/v1/pipelines", spec(1), False),
        ("POST", "/v1/pipelines", spec(2), True),
        ("POST", "/v1/pipelines", spec(2), False),  # identical
        ("POST", f"{place}/activate", {"version": 2}, False),  # runs take it already
        ("POST", "/v1/pipelines", spec(3), False),  # another is activated
        ("PUT", f"{place}/canary", canary, True),
        ("PUT", f"{place}/canary", canary, False),
        ("PUT", f"{place}/canary", canary | {"share": 0.6}, True),
        ("DELETE", f"{place}/canary", None, True),
        ("POST", f"{place}/activate", {"version": 1}, True),
        ("POST", f"{place}/activate", {"version": 1}, False),
        ("POST", f"{place}/rollback", None, True),
        ("POST", f"{place}/activate", {}, True),
        ("POST", f"{place}/archive", None, True),
        ("POST", f"{place}/archive", None, False),
        ("POST", "/v1/pipelines", spec(4), False),  # no runs take it
        ("POST", f"{place}/unarchive", None, True),
        ("POST", f"{place}/archive", None, True),
        ("DELETE", place, None, False),
        ("POST", "/v1/pipelines", spec(5), False),
    ):
        answer = await rest.ask(method, path, json=body)
        assert answer.status < 300, answer.body
        assert waits == [60.0 if waited else 0.0], (method, path, body)
        waits.clear()
        await settled(rest)


async def test_a_change_that_another_has_just_made_is_waited_for_as_long_as_the_others(
    rest: Rest, waits: list[float]
) -> None:
    place = "/v1/pipelines/p"
    for number in (1, 2):
        await rest.post("/v1/pipelines", spec(number))
    await settled(rest)
    for path, body in (
        ("/v1/pipelines", spec(3)),
        (f"{place}/activate", {"version": 1}),
        (f"{place}/archive", None),
    ):
        waits.clear()
        for _ in range(2):
            await rest.post(path, body)
        first, second = waits
        assert first - 30 < second < first, path
    assert (await rest.ask("DELETE", place)).status == 204
    await settled(rest)
    await rest.pool.execute("UPDATE hocket.pipeline_release SET changed_at = now()")
    waits.clear()
    await rest.post("/v1/pipelines", spec(1))
    assert waits[0] > 30, "processes that know it as archived forget that"


async def test_a_change_that_somebody_else_made_meanwhile_is_not_undone_unseen(rest: Rest) -> None:
    for number in (1, 2):
        await rest.post("/v1/pipelines", spec(number))
    shown = await rest.get("/v1/pipelines/p/release")
    assert shown.headers["Etag"] == '"0"'
    seen = {"If-Match": shown.headers["Etag"]}
    first = await rest.post("/v1/pipelines/p/activate", {"version": 1}, headers=seen)
    second = await rest.post("/v1/pipelines/p/activate", {"version": 2}, headers=seen)
    assert (first.status, second.status) == (200, 412)
    assert (await rest.get("/v1/pipelines/p/release")).body["active_version"] == 1


@pytest.mark.parametrize("change", [None, "activate", "archive"])
async def test_rolling_back_returns_to_the_version_before_the_one_applied_last(
    rest: Rest, change: str | None
) -> None:
    place = "/v1/pipelines/p"
    for number in (1, 2, 3):
        await rest.post("/v1/pipelines", spec(number))
    for body in ({"version": 2}, {}):
        released = (await rest.post(f"{place}/activate", body)).body
    assert (released["active_version"], released["former_version"]) == (3, 2)
    await rest.post("/v1/pipelines", spec(4))
    if change == "activate":  # the one that is active already
        await rest.post(f"{place}/activate", {"version": 4})
    if change == "archive":
        await rest.post(f"{place}/archive")
        await rest.post(f"{place}/unarchive")
    released = (await rest.get(f"{place}/release")).body
    assert (released["active_version"], released["former_version"]) == (4, 3)
    for expected in ((3, 4), (4, 3)):
        released = (await rest.post(f"{place}/rollback")).body
        assert (released["active_version"], released["former_version"]) == expected


async def test_what_cannot_be_chosen_is_refused_with_a_cure(rest: Rest) -> None:
    await rest.post("/v1/pipelines", spec(1))
    place = "/v1/pipelines/p"
    for method, path, body, expected in (
        ("POST", f"{place}/activate", {"version": 9}, (422, "invalid_input")),
        ("POST", f"{place}/rollback", None, (409, "nothing_to_roll_back")),
        ("PUT", f"{place}/canary", {"version": 1, "share": 0.5}, (422, "invalid_input")),
        ("PUT", f"{place}/canary", {"version": 9, "share": 0.5}, (422, "invalid_input")),
        ("PUT", f"{place}/canary", {"version": 1, "share": 1}, (422, "invalid_input")),
        ("GET", f"{place}/canary", None, (404, "no_canary")),
        ("DELETE", f"{place}/canary", None, (404, "no_canary")),
        ("GET", f"{place}/diff?before=9", None, (422, "invalid_input")),
        ("DELETE", place, None, (409, "pipeline_in_use")),
        ("POST", "/v1/pipelines/none/activate", {}, (404, "pipeline_unknown")),
    ):
        answer = await rest.ask(method, path, json=body)
        assert (answer.status, answer.body["code"]) == expected, (method, path, body)
    await rest.post(f"{place}/archive")
    closed = await rest.post(f"{place}/activate", {"version": 1})
    assert (closed.status, closed.body["code"]) == (409, "pipeline_archived")


async def test_a_deleted_pipeline_comes_again_with_the_next_number(rest: Rest) -> None:
    for number in (1, 2):
        await rest.post("/v1/pipelines", spec(number))
    await rest.post("/v1/pipelines/p/archive")
    assert (await rest.ask("DELETE", "/v1/pipelines/p")).status == 204
    assert (await rest.get("/v1/pipelines/p/release")).status == 404
    again = await rest.post("/v1/pipelines", spec(1))
    assert (again.status, again.body["version"]) == (201, 3)
    found = (await rest.get("/v1/pipelines/p/release")).body
    assert (found["active_version"], found["archived_at"]) == (3, None)


async def test_a_version_applied_while_a_pipeline_is_deleted_gives_its_number_to_no_other(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = (
        "WITH made AS (INSERT INTO hocket.pipeline (tenant, name, version, spec, spec_hash)"
        " SELECT tenant, name, 2, spec, 'other' FROM hocket.pipeline WHERE tenant = $1 AND name = $2"
        " RETURNING 1) SELECT count(*) > 1 FROM made"
    )
    await rest.post("/v1/pipelines", spec(1))
    await rest.post("/v1/pipelines/p/archive")
    monkeypatch.setattr(release_store, "IN_USE", applied)
    assert (await rest.ask("DELETE", "/v1/pipelines/p")).status == 204
    again = await rest.post("/v1/pipelines", spec(3))
    assert (again.status, again.body["version"]) == (201, 3)


async def test_a_pipeline_of_which_a_run_is_stored_is_not_deleted(rest: Rest) -> None:
    await rest.post("/v1/pipelines", spec(1))
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at, finished_at)"
        " VALUES ('r1', 0, 'default', 'p', 1, 'succeeded', 'standard', '{}', now(), now(), now())"
    )
    await rest.post("/v1/pipelines/p/archive")
    refused = await rest.ask("DELETE", "/v1/pipelines/p")
    assert (refused.status, refused.body["code"]) == (409, "pipeline_in_use")
    assert (await rest.get("/v1/pipelines/p")).status == 200


async def test_a_canary_of_few_runs_is_judged_beside_many_of_the_active_version(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canaries, "MOST_RUNS", 20)
    for number in (1, 2):
        await rest.post("/v1/pipelines", spec(number))
    await rest.post("/v1/pipelines/p/activate", {"version": 1})
    body = {"version": 2, "share": 0.01, "min_runs": 20}
    await rest.ask("PUT", "/v1/pipelines/p/canary", json=body)
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at, finished_at)"
        " SELECT 'r' || n, 0, 'default', 'p', 1 + (n % 50 = 0)::int,"
        " CASE WHEN n % 50 = 0 THEN CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'cancelled' END"
        " ELSE 'succeeded' END, 'standard', '{}', now() + n * interval '1 second', now(),"
        " now() + (n + 2) * interval '1 second' FROM generate_series(1, 2100) n"
    )
    found = (await rest.get("/v1/pipelines/p/canary")).body
    assert (found["candidate"]["runs"], found["candidate"]["failed"]) == (20, 20)
    assert (found["active"]["runs"], found["active"]["p95_ms"]) == (20, 2_000)
    assert found["verdict"] == "worse"


async def test_many_canaries_of_a_tenant_keep_no_other_tenants_canary_unjudged(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canaries, "JUDGED_AT_ONCE", 2)
    other = bearer(await rest.make_key("admin", tenant="rival"))
    for headers, names in ((None, "ab"), (other, "c")):
        for name in names:
            for number in (1, 2):
                made = await rest.ask(
                    "POST", "/v1/pipelines", json=spec(number, name), headers=headers
                )
                assert made.status == 201
            await rest.ask(
                "POST", f"/v1/pipelines/{name}/activate", json={"version": 1}, headers=headers
            )
            body = {"version": 2, "share": 0.5, "min_runs": 1}
            begun = await rest.ask(
                "PUT", f"/v1/pipelines/{name}/canary", json=body, headers=headers
            )
            assert begun.status == 200
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at, finished_at)"
        " VALUES ('r1', 0, 'rival', 'c', 2, 'failed', 'standard', '{}', now(), now(), now())"
    )
    await canaries.judge_all(rest.app.state.context)
    release = await rest.ask("GET", "/v1/pipelines/c/release", headers=other)
    assert release.body["canary"] is None
