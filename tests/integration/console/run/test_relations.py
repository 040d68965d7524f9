"""What stands beside a run: runs that belong to it, its costs elsewhere, prompts of its calls."""

import html
import json
import re
from datetime import timedelta
from urllib.parse import quote

import pytest

from hocket.admin.console.run.relations import elsewhere
from hocket.ledger.upkeep import day_partitions
from support.administration.console_rig import CHILD, NOW, PAGE, RUN, add_run, asked_bare, cookie_of
from support.rest_rig import Rest
from support.runs.rows import insert_call, insert_run

OTHER = "r" + "7" * 24
CALLS = f"/console/runs/{RUN}/calls"
PRICES = """
INSERT INTO hocket.price (tenant, model, backend, input_usd_per_mtok, output_usd_per_mtok, request_usd,
    effective_from)
VALUES ('default', 'smart', 'dear', 10, 30, 0, now()), ('default', 'small', 'cheap', 1, 2, 0, now()),
       ('default', 'renamed', 'dear', 1, 2, 0, now()), ('default', 'vectors', 'local', 1, 0, 0, now()),
       ('default', 'other-vectors', 'other', 2, 0, 0, now()),
       ('default', 'ranker', 'ranks', 0, 0, 1, now()),
       ('rival', 'theirs', 'theirs', 0, 0, 0, now())
"""
CONTENT = """
INSERT INTO hocket.content (call_id, tenant, run_id, model, kept, prompt, answer, started_at)
VALUES ('c1', 'default', $1, 'smart', 'full', $2, '{"text": "Because."}', now())
"""


async def test_runs_that_belong_together_lead_to_each_other(rest: Rest) -> None:
    await add_run(rest)
    for run_id, changed in (
        (CHILD, {"parent": json.dumps({"run_id": RUN, "step": "hello"})}),
        (OTHER, {"facts": json.dumps({"origin": {"run_id": RUN, "operation": "retry"}})}),
    ):
        await insert_run(rest.pool, run_id, NOW)
        for column, value in changed.items():
            await rest.pool.execute(
                f"UPDATE hocket.run SET {column} = $2 WHERE run_id = $1", run_id, value
            )
    page = (await rest.get(f"/console/runs/{RUN}", headers=PAGE)).body
    child = (await rest.get(f"/console/runs/{CHILD}", headers=PAGE)).body
    retry = (await rest.get(f"/console/runs/{OTHER}", headers=PAGE)).body

    assert re.search(rf"Sub-runs</dt><dd><a [^>]*/runs/{CHILD}", page)
    assert re.search(rf"Repeated by</dt><dd><a [^>]*/runs/{OTHER}", page)
    assert re.search(rf"Parent</dt><dd><a [^>]*/runs/{RUN}", child)
    assert re.search(rf"Retries</dt><dd><a [^>]*/runs/{RUN}", retry)
    assert f"/console/compare?a={RUN}&amp;b={OTHER}" in retry


async def test_a_run_shows_what_its_calls_would_have_cost_elsewhere(rest: Rest) -> None:
    await add_run(rest)
    await rest.pool.execute(PRICES)
    await insert_call(rest.pool, "c1", NOW, run_id=RUN, model="smart", backend="dear")
    page = (await rest.get(f"/console/runs/{RUN}?view=calls", headers=PAGE)).body

    part = page[page.index("would have cost elsewhere") :]
    # 1,200 tokens in at 1 and 300 out at 2 US dollars a million
    assert '<td>small</td><td>cheap</td><td class="num">$0.0018</td>' in part
    others = ("theirs", "renamed", "vectors", "other-vectors", "ranker")
    assert not any(f"<td>{model}</td>" in part for model in others)
    assert "FROM report.prices WHERE tenant = &#39;default&#39;" in part


async def test_what_a_models_own_calls_did_tells_what_it_is_compared_with(rest: Rest) -> None:
    await add_run(rest)
    await rest.pool.execute(PRICES)
    await insert_call(rest.pool, "c1", NOW, run_id=RUN, model="smart", backend="dear")
    await insert_call(rest.pool, "c2", NOW, run_id=RUN, model="vectors", backend="local")
    await insert_call(rest.pool, "c3", NOW, run_id=RUN, model="ranker", backend="ranks")
    await rest.pool.execute("UPDATE hocket.usage SET output_tokens = 0 WHERE model <> 'smart'")
    found = await elsewhere(rest.pool, "default", RUN)
    assert {(one.model, one.other_model) for one in found} == {
        ("smart", "small"),
        ("vectors", "other-vectors"),
        ("vectors", "ranker"),
        ("ranker", "vectors"),
        ("ranker", "other-vectors"),
    }


async def test_a_call_of_a_run_that_is_not_stored_is_shown_by_itself(rest: Rest) -> None:
    await insert_call(
        rest.pool, "http:1", NOW, run_id=OTHER, decision={"model": "smart", "reason": "r"}
    )
    await insert_call(rest.pool, "http:2", NOW)
    models = (await rest.get("/console/models", headers=PAGE)).body
    link = f"/console/runs/{OTHER}/calls/http:1"
    assert f'href="{link}"' in models
    shown = await rest.get(link, headers=PAGE)
    assert shown.status == 200
    assert "This call is not booked" not in shown.body
    assert f"/runs/{OTHER}" not in shown.body
    for call in ("http:2", "http:3"):
        page = await rest.get(f"/console/runs/{OTHER}/calls/{call}", headers=PAGE)
        assert page.status == 404


async def test_later_calls_are_on_the_next_page_and_all_in_the_sql(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.console.run.views.MAX_CALLS", 1)
    await add_run(rest)
    for call in ("c1", "c2"):
        await insert_call(rest.pool, call, NOW, run_id=RUN)

    long_ago = NOW - timedelta(days=31)
    await insert_call(rest.pool, "of-a-deleted-run", long_ago, run_id=RUN)
    await rest.pool.execute("DELETE FROM hocket.stray_call")  # it was booked before this run began

    page = (await rest.get(f"/console/runs/{RUN}?view=calls", headers=PAGE)).body
    later = re.search(r'<a href="([^"]*)" rel="next">Later calls', page)
    assert later is not None
    last = (await rest.get(f"/console/runs/{RUN}{html.unescape(later[1])}", headers=PAGE)).body

    assert [name in page for name in ("/calls/c1", "/calls/c2", "deleted-run")] == [
        True,
        False,
        False,
    ]
    assert [name in last for name in ("/calls/c1", "/calls/c2", "Later calls")] == [
        False,
        True,
        False,
    ]
    sql = re.search(r"SELECT call_id[^<]*ORDER BY started_at", page)
    assert sql is not None
    rows = await rest.pool.fetch(html.unescape(sql[0]))
    assert [row["call_id"] for row in rows] == ["c1", "c2"]


async def test_the_prompt_of_a_call_is_shown_to_those_who_may_see_content(rest: Rest) -> None:
    before = NOW - timedelta(days=5)
    await add_run(rest)
    await insert_call(rest.pool, "c1", NOW, run_id=RUN)
    async with rest.pool.acquire() as connection:
        await day_partitions.make_ahead(connection)
        await day_partitions._make(connection, "content", before.date())
    await rest.pool.execute(CONTENT, RUN, json.dumps({"messages": "<b>Why?</b>"}))
    await rest.pool.execute("UPDATE hocket.content SET kept_at = $1", before)
    former = (await rest.get(f"/console/runs/{RUN}?view=calls", headers=PAGE)).body
    await rest.pool.execute("UPDATE hocket.content SET kept_at = now()")
    calls = (await rest.get(f"/console/runs/{RUN}?view=calls", headers=PAGE)).body
    page = (await rest.get(f"/console/runs/{RUN}/calls/c1", headers=PAGE)).body
    viewer = await cookie_of(rest, await rest.make_key("viewer"))
    bare = (await asked_bare(rest, "GET", f"/console/runs/{RUN}/calls/c1", headers=viewer)).body
    rival = await cookie_of(rest, await rest.make_key("admin", "rival"))
    foreign = await asked_bare(rest, "GET", f"/console/runs/{RUN}/calls/c1", headers=rival)
    unknown = (await rest.get(f"/console/runs/{RUN}/calls/none", headers=PAGE)).body

    await insert_call(rest.pool, "http:1", NOW)
    await rest.pool.execute("UPDATE hocket.content SET call_id = 'http:1', run_id = NULL")
    alone = (await rest.get("/console/calls/http:1", headers=PAGE)).body
    others = (await asked_bare(rest, "GET", "/console/calls/http:1", headers=viewer)).body
    rivals = (await asked_bare(rest, "GET", "/console/calls/http:1", headers=rival)).body

    assert "&lt;b&gt;Why?&lt;/b&gt;" in alone  # a call that names no run has a page of its own
    assert "Because." not in others
    assert "Because." not in rivals
    assert f"/console/runs/{RUN}/calls/c1" in calls
    assert ">prompt</span>" in calls
    assert ">prompt</span>" not in former  # it was kept before this run began
    assert "&lt;b&gt;Why?&lt;/b&gt;" in page
    assert "Because." in page
    assert "Because." not in bare
    assert "may not read prompts and answers" in bare
    assert foreign.status == 404
    assert "This call is not booked" in unknown


async def test_the_prompt_of_a_call_is_shown_with_each_of_its_attempts(rest: Rest) -> None:
    await add_run(rest)
    async with rest.pool.acquire() as connection:
        await day_partitions.make_ahead(connection)
    await rest.pool.execute(CONTENT, RUN, json.dumps({"messages": "Why?"}))
    attempts = ("c1", "c1:r1", "c1:h", "c1:t1:r2", "c1#0123456789abcdef")
    for attempt in attempts:
        await insert_call(rest.pool, attempt, NOW, run_id=RUN)
    await insert_call(rest.pool, "c2:r1", NOW, run_id=RUN)
    calls = (await rest.get(f"/console/runs/{RUN}?view=calls", headers=PAGE)).body
    shown = [
        "Because." in (await rest.get(f"{CALLS}/{quote(attempt)}", headers=PAGE)).body
        for attempt in (*attempts, "c2:r1")
    ]

    assert calls.count(">prompt</span>") == len(attempts)
    assert shown == [True] * len(attempts) + [False]
