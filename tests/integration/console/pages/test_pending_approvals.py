"""How many approvals wait, in the navigation of each page: one short query, and no page waits for it."""

import asyncio
import html
import re
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from hocket.admin.approvals import reads
from hocket.admin.console import pending_approvals
from hocket.admin.console.pending_approvals import COUNT, MAX_LOOKED, MAX_SHOWN
from hocket.kit.postgres.database import connect_pool
from support.administration.console_rig import (
    NOW,
    PAGE,
    PAGES,
    RUN,
    add_run,
    asked_bare,
    cookie_of,
    plain,
)
from support.rest_rig import Rest
from support.runs.rows import insert_step

LINK = re.compile(r'<a href="/console/approvals[^"]*"[^>]*>(.*?)</a>', re.S)


@pytest.fixture(autouse=True)
def _patient_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count may take longer than pages wait for it while other tests run."""
    monkeypatch.setattr(pending_approvals, "WAIT_S", 10.0)


async def add_approvals(rest: Rest, count: int, tenant: str = "default", first: int = 0) -> None:
    """Add a run whose steps wait for approvals, as many as these."""
    run_id = f"r{first:024x}"
    await add_run(rest, run_id, tenant=tenant, status="running")
    for number in range(count):
        waits = {"type": "approval", "state": "waiting"}
        await insert_step(rest.pool, run_id, f"sign{number}", NOW, **waits)


def link_in(page: str) -> str:
    found = LINK.search(page.partition("<nav")[2].partition("</nav>")[0])
    assert found is not None
    return plain(found[1])


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "Approvals"),
        (1, "Approvals 1 pending approval"),
        (3, "Approvals 3 pending approvals"),
        (99, "Approvals 99 pending approvals"),
        (120, "Approvals 99+ pending approvals"),
    ],
)
async def test_the_link_says_how_many_approvals_wait(rest: Rest, count: int, said: str) -> None:
    await add_approvals(rest, count)
    await add_approvals(rest, 2, "acme", first=1)
    await add_run(rest, f"r{2:024x}", status="failed")
    ended = {"type": "approval", "state": "waiting"}
    await insert_step(rest.pool, f"r{2:024x}", "late", NOW, **ended)
    await insert_step(rest.pool, f"r{0:024x}", "done", NOW, type="approval", state="succeeded")

    for path in ("/console/runs", "/console/approvals", "/console/new/key"):
        assert link_in((await rest.get(path, headers=PAGE)).body) == said, path


async def test_the_page_says_that_more_wait_and_leads_to_them(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "DEFAULT_WAITING", 2)
    await add_approvals(rest, 5)
    path, shown, titles = "/console/approvals", [], []
    while path:
        page = (await rest.get(path, headers=PAGE)).body
        shown.append(re.findall(r"(sign\d)</span></h2>", page))
        titles.append(plain(page.partition("<h1>")[2].partition("</h1>")[0]))
        more = re.search(r'href="([^"]*)" rel="next"', page)
        last, path = path, more and f"/console/approvals{html.unescape(more[1])}"
    assert shown == [["sign0", "sign1"], ["sign2", "sign3"], ["sign4"]]
    assert titles == [
        "Approvals 2 of those that wait for a decision",
        "Approvals 2 of those that wait for a decision",
        "Approvals 1 of those that wait for a decision",
    ]
    assert link_in((await rest.get("/console/approvals", headers=PAGE)).body).endswith(
        "pending approvals"
    )
    await rest.pool.execute("UPDATE hocket.step SET state = 'succeeded' WHERE key = 'sign4'")
    page = plain((await rest.get(last, headers=PAGE)).body)
    assert "No approvals wait after these" in page
    monkeypatch.setattr(reads, "DEFAULT_WAITING", 4)
    page = plain((await rest.get("/console/approvals", headers=PAGE)).body)
    assert "4 wait for a decision" in page


async def test_the_count_is_of_the_tenant_that_the_page_shows(rest: Rest) -> None:
    await add_approvals(rest, 2)
    await add_approvals(rest, 3, "acme", first=1)
    own = await cookie_of(rest, await rest.make_key("viewer", "acme"))
    narrow = await rest.make_key("viewer", scopes=frozenset({"schedules.read"}))
    unread = await cookie_of(rest, narrow)

    both = [
        link_in((await rest.get(f"/console/flow{query}", headers=PAGE)).body)
        for query in ("", "?tenant=acme")
    ]
    mine = await asked_bare(rest, "GET", "/console/flow", headers=own)
    bare = await asked_bare(rest, "GET", "/console/schedules", headers=unread)

    assert both == ["Approvals 2 pending approvals", "Approvals 3 pending approvals"]
    assert link_in(mine.body) == "Approvals 3 pending approvals"
    assert bare.status == 200
    assert "pending approval" not in bare.body


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tenants whose approvals were counted, each time."""
    begin, seen = pending_approvals.count, list[str]()

    async def noted(pool: Any, tenant: str) -> Any:
        seen.append(tenant)
        return await begin(pool, tenant)

    monkeypatch.setattr(pending_approvals, "count", noted)
    return seen


async def test_a_page_costs_one_query_and_what_is_no_page_none(
    rest: Rest, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_approvals, "KEPT_S", 0.0)
    monkeypatch.setattr(pending_approvals, "KEPT_TIMES", 0)
    await add_run(rest)
    paths = [path for path in PAGES if "/steps/" not in path and "/calls/" not in path]
    for path in paths:
        assert (await rest.get(path, headers=PAGE)).status == 200, path
    pages = len(counted)
    part = {**PAGE, "X-Hocket-Part": "true"}
    for path, headers in (
        ("/console/bulk", part),
        (f"/console/runs/{RUN}/graph.json", {}),
        (f"/console/runs/{RUN}/timeline.json", {}),
        ("/console/live/rows", part),
        ("/console/sign-in", PAGE),
        ("/v1/approvals", {}),
    ):
        assert (await rest.get(path, headers=headers)).status in (200, 303), path

    assert pages == len(paths) - 1, "the list of approvals has read them itself"
    assert len(counted) == pages


@pytest.mark.parametrize(
    "failure",
    [
        lambda: TimeoutError(),
        lambda: asyncpg.exceptions.ConnectionDoesNotExistError("gone"),
        lambda: OSError("refused"),
    ],
)
async def test_a_page_is_shown_without_a_count_that_fails_and_the_next_ones_do_not_try(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, failure: Callable[[], Exception]
) -> None:
    await add_approvals(rest, 1)
    tried: list[str] = []

    async def fails(_pool: Any, tenant: str) -> Any:
        tried.append(tenant)
        raise failure()

    monkeypatch.setattr(pending_approvals, "count", fails)
    pages = [await rest.get("/console/schedules", headers=PAGE) for _ in range(3)]

    assert [page.status for page in pages] == [200] * 3
    assert link_in(pages[0].body) == "Approvals"
    assert tried == ["default"]


async def test_no_page_waits_for_a_count_that_takes_long(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows the number that was counted before."""
    await add_approvals(rest, 2)
    begin, may_go = pending_approvals.count, asyncio.Event()
    monkeypatch.setattr(pending_approvals, "KEPT_S", 0.0)
    monkeypatch.setattr(pending_approvals, "KEPT_TIMES", 0)
    first = await rest.get("/console/schedules", headers=PAGE)
    monkeypatch.setattr(pending_approvals, "WAIT_S", 0.05)

    async def slow(pool: Any, tenant: str) -> Any:
        await may_go.wait()
        return await begin(pool, tenant)

    monkeypatch.setattr(pending_approvals, "count", slow)
    unknown = await rest.get("/console/schedules?tenant=acme", headers=PAGE)
    second = await rest.get("/console/schedules", headers=PAGE)
    may_go.set()

    for page in (first, second):
        assert link_in(page.body) == "Approvals 2 pending approvals"
    assert (unknown.status, link_in(unknown.body)) == (200, "Approvals")


async def test_a_count_that_does_not_end_is_left(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_approvals, "COUNT_S", 0.01)
    query = "SELECT pg_sleep(30) FROM (SELECT $1::text, $2::bigint, $3::bigint) given"
    monkeypatch.setattr(pending_approvals, "COUNT", query)

    with capture_logs() as lines:
        page = await rest.get("/console/schedules", headers=PAGE)

    assert link_in(page.body) == "Approvals"
    assert "approvals_not_counted" in [line["event"] for line in lines]
    running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"
    running += " AND state = 'active'"
    assert await rest.pool.fetchval(running) == 0


async def test_many_pages_at_once_cost_one_count(rest: Rest, counted: list[str]) -> None:
    await add_approvals(rest, 1)
    pages = await asyncio.gather(*(rest.get("/console/schedules", headers=PAGE) for _ in range(8)))

    assert {link_in(page.body) for page in pages} == {"Approvals 1 pending approval"}
    assert counted == ["default"]


async def test_the_list_of_approvals_and_its_number_are_the_same(rest: Rest) -> None:
    await add_approvals(rest, 2)
    before = (await rest.get("/console/flow", headers=PAGE)).body
    await add_approvals(rest, 1, first=1)
    page = (await rest.get("/console/approvals", headers=PAGE)).body
    after = (await rest.get("/console/flow", headers=PAGE)).body

    assert link_in(before) == "Approvals 2 pending approvals"
    assert "3 wait for a decision" in page
    assert link_in(page) == link_in(after) == "Approvals 3 pending approvals"


async def test_only_the_oldest_runs_are_looked_at_and_the_number_says_so(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_approvals, "MAX_LOOKED", 1)
    await add_approvals(rest, 2)
    await add_approvals(rest, 2, first=1)

    page = (await rest.get("/console/flow", headers=PAGE)).body

    assert link_in(page) == "Approvals 2+ pending approvals"


RUNS = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
    accepted_at, deadline_at, finished_at, spent_usd)
SELECT 'r' || left(md5(n::text), 24), 0, 't' || n % 3, 'p', 1, status, 'standard', '{}', at, at,
    CASE WHEN status <> 'running' THEN at END, 0
FROM (SELECT n, now() - interval '1 min' * n AS at,
        CASE WHEN n % 50 = 0 THEN 'running' ELSE 'succeeded' END AS status
      FROM generate_series(1, 30000) n) runs
"""
STEPS = """
INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at, tenant)
SELECT run_id, 's' || n, 's', 'python', 'leaf', 'dispatched', 1, accepted_at, tenant
FROM hocket.run, generate_series(1, 4) n
"""


@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
async def test_the_count_reads_runs_and_steps_by_their_indexes(
    database_url: str, plan: str
) -> None:
    async with (
        await connect_pool(database_url, size=1, name="plans") as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(RUNS)
        await connection.execute(STEPS)
        await connection.execute("ANALYZE hocket.run, hocket.step")
        await connection.execute(f"SET LOCAL plan_cache_mode = {plan}")
        await connection.execute(f"PREPARE asked AS {COUNT}")
        told = await connection.fetch(
            f"EXPLAIN (ANALYZE) EXECUTE asked('t0', {MAX_LOOKED}, {MAX_SHOWN + 1})"
        )
    lines = "\n".join(row[0] for row in told)
    assert "run_running" in lines, lines
    assert "step_pkey" in lines, lines
    assert "Seq Scan on run" not in lines, lines
    assert "Seq Scan on step" not in lines, lines
