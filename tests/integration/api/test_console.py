"""The console's pages over a real NATS and a real Postgres: what they show, to whom, and that nothing
stored becomes markup."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from support.administration.webhook_rig import MESSAGE, add_webhook
from support.rest_rig import Answer, Rest, running_rest
from support.runs.rows import insert_call, insert_run, insert_step
from support.values.hostile_markup import PAYLOADS

RUN = "r" + "0" * 24
CHILD = "r" + "1" * 24
NOW = datetime.now(UTC)
PAGE = {"Accept": "text/html"}
PIPELINE: dict[str, Any] = {
    "pipeline": "greet",
    "description": "Says hello.",
    "slo_ms": 5000,
    "nodes": {"hello": {"type": "python", "handler": "greet:hello"}},
}
DECISION = {
    "model": "smart",
    "reason": "the cheap one is too slow for the deadline",
    "candidates": [
        {"backend": "dear", "score": [0, 1.5]},
        {"backend": "cheap", "score": [1], "refused": "its breaker is open"},
    ],
}
PAGES = (
    "/console/runs",
    f"/console/runs/{RUN}",
    f"/console/runs/{RUN}?view=steps",
    f"/console/runs/{RUN}?view=calls",
    f"/console/runs/{RUN}?view=values",
    f"/console/runs/{RUN}?view=trace",
    f"/console/runs/{RUN}?view=journal",
    f"/console/runs/{RUN}/steps/hello",
    "/console/pipelines",
    "/console/pipelines/greet",
    "/console/money",
    "/console/approvals",
    "/console/bulk",
    "/console/schedules",
    "/console/schedules/nightly",
    "/console/webhooks",
    "/console/webhooks/ops",
    "/console/webhooks/ops?state=dead",
    f"/console/webhooks/ops/{MESSAGE}",
    "/console/editor",
    "/console/editor?name=greet",
    "/console/models",
    "/console/system",
    "/console/system?view=workers",
    "/console/system?view=dead-letters",
)


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
        schedule = {"cron": "0 2 * * *", "task": {"pipeline": PIPELINE["pipeline"]}}
        assert (await rest.ask("PUT", "/v1/schedules/nightly", json=schedule)).status == 201
        await add_webhook(rest, "ops", text="".join(PAYLOADS), run_id=RUN)
        yield rest


async def _insert_run(rest: Rest, run_id: str = RUN, text: str = "hi", **fields: Any) -> None:
    await insert_run(rest.pool, run_id, fields.pop("accepted_at", NOW), text, **fields)


async def _insert_step(rest: Rest, key: str, text: str = "hi", run_id: str = RUN) -> None:
    fields = {"node": "hello", "attempt": 2, "error": True, "worker": text}
    await insert_step(rest.pool, run_id, key, NOW, text, **fields)


async def test_nothing_stored_is_ever_markup(rest: Rest) -> None:
    text = "".join(PAYLOADS)
    await _insert_run(rest, text=text)
    await _insert_step(rest, "hello", text)
    name = text.replace("\x1b", "").replace("\x07", "")[:200]
    losers = [{"backend": name, "refused": text[:100]}]
    decision = {**DECISION, "reason": text, "candidates": losers}
    await insert_call(rest.pool, text, NOW, run_id=RUN, model=text, backend=text, decision=decision)

    for path in PAGES:
        shown = await rest.get(path, headers=PAGE)
        assert shown.status == 200, path
        for tag in (
            "<script>alert",
            "<img",
            "<iframe",
            "<svg onload",
            "javascript:alert(1)'>x</a>",
            "<object",
            "<base",
            "<style",
        ):
            assert tag not in shown.body, path
        assert " 49{" not in shown.body, "templates evaluate nothing stored"


async def test_every_page_forbids_inline_scripts_and_framing(rest: Rest) -> None:
    await _insert_run(rest)
    await _insert_step(rest, "hello")

    for path in PAGES:
        shown = await rest.get(path, headers=PAGE)
        policy = shown.headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert " style=" not in shown.body, path
        assert " onclick=" not in shown.body, path
        assert "http://" not in shown.body.replace("http://www.w3.org/", ""), (
            "nothing from elsewhere"
        )


async def test_filters_are_an_address(rest: Rest) -> None:
    await _insert_run(rest, took_ms=1_000)
    await _insert_run(rest, CHILD, took_ms=9_000, cost=3)

    async def shown(query: str) -> set[str]:
        page = (await rest.get(f"/console/runs?{query}", headers=PAGE)).body
        return {run_id for run_id in (RUN, CHILD) if f"/console/runs/{run_id}" in page}

    assert await shown("") == {RUN, CHILD}
    assert await shown("missed=true") == {CHILD}
    assert await shown("min_cost=2.5") == {CHILD}
    assert await shown("status=failed") == set()
    assert await shown("pipeline=other") == set()
    earlier = (NOW - timedelta(hours=2)).isoformat().replace("+00:00", "Z")
    assert await shown(f"since={earlier}&until={earlier}") == set()


async def test_a_cost_that_is_no_number_is_told_on_a_page(rest: Rest) -> None:
    answer = await rest.get("/console/runs?min_cost=much", headers=PAGE)

    assert answer.status == 422
    assert "min_cost" in answer.body
    assert answer.headers["Content-Type"].startswith("text/html")


async def test_what_is_not_there_says_so_on_a_page(rest: Rest) -> None:
    await _insert_run(rest, tenant="acme")

    for path in (
        f"/console/runs/{RUN}",
        "/console/pipelines/none",
        f"/console/runs/{RUN}/graph.json",
    ):
        assert (await rest.get(path, headers=PAGE)).status == 404, path


async def test_the_timeline_of_a_long_run_comes_in_pages(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.console.views.timeline.PAGE", 3)
    await _insert_run(rest)
    for number in range(5):
        await _insert_step(rest, f"hello[{number}]")

    base = f"/console/runs/{RUN}/timeline.json"
    overview = (await rest.get(base)).body
    first = (await rest.get(f"{base}?node=hello")).body
    second = (await rest.get(f"{base}?node=hello&after={first['next']}")).body
    await rest.pool.execute("DELETE FROM hocket.step WHERE key > 'hello[2]'")
    short = (await rest.get(base)).body

    assert overview["columns"] is None
    assert [node["steps"] for node in overview["nodes"]] == [5]
    assert first["columns"]["key"] == ["hello[0]", "hello[1]", "hello[2]"]
    assert second["columns"]["key"] == ["hello[3]", "hello[4]"]
    assert (second["columns"]["ready"][0], second["columns"]["finished"][0]) == (0.0, 40.0)
    assert second["next"] is None
    assert len(first["attempts"]) == 3
    assert short["columns"]["key"] == first["columns"]["key"]


async def test_scripts_and_styles_are_kept_for_ever_under_their_content(rest: Rest) -> None:
    page = (await rest.get("/console/runs", headers=PAGE)).body
    found = {part.split('"')[0] for part in page.split("/console/assets/")[1:]}
    answers = await asyncio.gather(*(rest.get(f"/console/assets/{name}") for name in found))

    assert {answer.status for answer in answers} == {200}
    assert all("immutable" in answer.headers["Cache-Control"] for answer in answers)
    assert (await rest.get("/console/assets/000000000000/console.js")).status == 404


# ---- sessions -------------------------------------------------------------------------------


async def _cookie(rest: Rest, key: str) -> dict[str, str]:
    answer = await rest.post("/console/sign-in", {"key": key})
    assert answer.status == 200
    said = answer.headers["Set-Cookie"]
    assert "HttpOnly" in said
    assert "SameSite=strict" in said
    return {"Cookie": said.split(";")[0], **PAGE}


async def _bare(rest: Rest, method: str, path: str, **options: Any) -> Answer:
    """Ask without the key that the session sends otherwise."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, rest.url + path, allow_redirects=False, **options) as reply,
    ):
        return Answer(reply.status, await reply.text(), dict(reply.headers))


async def test_a_stranger_is_asked_to_sign_in_and_comes_back_to_the_page(rest: Rest) -> None:
    page = await _bare(rest, "GET", "/console/runs?status=failed", headers=PAGE)
    data = await _bare(rest, "GET", f"/console/runs/{RUN}/timeline.json")
    form = await _bare(rest, "GET", page.headers["Location"], headers=PAGE)

    assert page.status == 303
    assert page.headers["Location"] == "/console/sign-in?back=%2Fconsole%2Fruns%3Fstatus%3Dfailed"
    assert (data.status, form.status) == (401, 200)
    assert 'value="/console/runs?status=failed"' in form.body


@pytest.mark.parametrize(
    "back", ["//evil.example", "https://evil.example", "/\\evil", "/a\nb", "x"]
)
async def test_signing_in_leads_nowhere_else(rest: Rest, back: str) -> None:
    answer = await rest.post("/console/sign-in", {"key": rest.key, "back": back})

    assert (answer.status, answer.body) == (200, {"back": ""})


async def test_a_session_is_its_key_and_ends_with_it(rest: Rest) -> None:
    await _insert_run(rest)
    key = await rest.make_key("viewer")
    mine = await _cookie(rest, key)

    page = await _bare(rest, "GET", f"/console/runs/{RUN}", headers=mine)
    api = await _bare(rest, "GET", f"/v1/runs/{RUN}", headers=mine)
    applied = await _bare(rest, "POST", "/v1/pipelines", json=PIPELINE, headers=mine)
    await rest.ask("DELETE", f"/v1/keys/{key.split('_')[1]}")
    after = await _bare(rest, "GET", f"/v1/runs/{RUN}", headers=mine)
    for _ in range(50):
        if after.status == 401:
            break
        await asyncio.sleep(0.1)
        after = await _bare(rest, "GET", f"/v1/runs/{RUN}", headers=mine)

    assert (page.status, api.status, applied.status, after.status) == (200, 200, 403, 401)


async def test_a_role_is_offered_only_what_it_may_do(rest: Rest) -> None:
    await _insert_run(rest, text="a secret answer", status="failed")
    await _insert_step(rest, "hello", "a secret answer")
    viewer = await _cookie(rest, await rest.make_key("viewer"))
    developer = await _cookie(rest, await rest.make_key("developer"))

    async def all_pages(headers: dict[str, str]) -> str:
        paths = [path for path in PAGES if "editor" not in path]
        found = [await _bare(rest, "GET", path, headers=headers) for path in paths]
        refused = {path for path, answer in zip(paths, found, strict=True) if answer.status == 403}
        assert refused == {path for path in paths if headers is viewer and "/webhooks" in path}
        return "".join(answer.body for answer in found)

    seen_by_viewer, seen_by_developer = await all_pages(viewer), await all_pages(developer)

    assert 'data-act="retry"' in seen_by_developer
    assert "&#34;text&#34;: &#34;a secret answer&#34;" in seen_by_developer
    for offered in ('data-act="retry"', 'data-open="again"', 'data-open="try"', "&#34;text&#34;"):
        assert offered not in seen_by_viewer


async def test_no_cookie_is_made_up(rest: Rest) -> None:
    key_id = rest.key.split("_")[1]
    ours = (await _cookie(rest, rest.key))["Cookie"].removeprefix("hocket_session=").strip('"')
    _, ends, tag = ours.split(".")
    other = await rest.make_key("viewer")
    ticket = (await rest.post("/console/tickets")).body["ticket"]
    forged = [
        f"{key_id}.{int(ends) + 1}.{tag}",
        f"{other.split('_')[1]}.{ends}.{tag}",
        f"{key_id}.{ends}.{'0' * 32}",
        f"{key_id}.{ends}.",
        f"{key_id}.{ends}.\u00e9",
        f"{key_id}.{'9' * 400}.{tag}",
        f"{key_id}.-1.{tag}",
        "..",
        "x",
        ticket,
    ]

    for cookie in forged:
        headers = {"Cookie": f"hocket_session={cookie}"}
        assert (await _bare(rest, "GET", "/v1/runs", headers=headers)).status == 401, cookie


async def test_another_sites_page_cannot_act_with_a_session(rest: Rest) -> None:
    mine = await _cookie(rest, rest.key)

    for strange in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = await _bare(rest, "POST", "/v1/pipelines", json=PIPELINE, headers=mine | strange)
        assert answer.status == 403


async def test_a_ticket_signs_in_once_shown_by_the_command_line(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = (await rest.post("/console/tickets")).body["ticket"]
    entered = await _bare(rest, "GET", f"/console/sign-in?ticket={ticket}", headers=PAGE)
    cookie = entered.headers["Set-Cookie"].split(";")[0]
    inside = await _bare(rest, "GET", "/console/runs", headers={"Cookie": cookie, **PAGE})
    monkeypatch.setattr("hocket.admin.console.sessions.TICKET_S", -1)
    late = (await rest.post("/console/tickets")).body["ticket"]
    refused = await _bare(rest, "GET", f"/console/sign-in?ticket={late}")

    assert (entered.status, entered.headers["Location"]) == (303, "/console/runs")
    assert (inside.status, refused.status) == (200, 401)


async def test_another_page_cannot_sign_a_browser_in_with_a_key_of_its_own(rest: Rest) -> None:
    ticket = (await rest.post("/console/tickets")).body["ticket"]
    address = f"/console/sign-in?ticket={ticket}"
    followed = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}

    for site in ("cross-site", "same-site"):
        headers = {**PAGE, **followed, "Sec-Fetch-Site": site}
        answer = await _bare(rest, "GET", address, headers=headers)
        assert (answer.status, "Set-Cookie" in answer.headers) == (403, False), site
    opened = {**PAGE, **followed, "Sec-Fetch-Site": "none"}
    assert (await _bare(rest, "GET", address, headers=opened)).status == 303


# ---- tenants and filters --------------------------------------------------------------------


async def test_a_key_of_all_tenants_chooses_one_and_every_link_keeps_it(rest: Rest) -> None:
    await _insert_run(rest, tenant="acme")
    await _insert_step(rest, "hello")

    pages = [
        await rest.get(f"{path}?tenant=acme", headers=PAGE)
        for path in (
            "/console/runs",
            f"/console/runs/{RUN}",
            "/console/money",
            "/console/pipelines",
        )
    ]
    names = await rest.get("/console/tenants", headers=PAGE)
    data = await rest.get(f"/console/runs/{RUN}/timeline.json?tenant=acme")
    foreign = await _cookie(rest, await rest.make_key("viewer", "rival"))
    refused = await _bare(rest, "GET", "/console/runs?tenant=acme", headers=foreign)

    assert [page.status for page in pages] == [200] * 4
    for page in pages:
        links = re.findall(r'(?:href|data-src)="(/console/[^"]*)"', page.body)
        ours = [link for link in links if "/assets/" not in link]
        assert ours
        assert all("tenant=acme" in link for link in ours), page.body
    assert f"/console/runs/{RUN}?tenant=acme" in pages[0].body
    assert '?tenant=acme">acme</a>' in names.body
    assert (data.status, refused.status) == (200, 403)
    assert (await rest.get("/console/tenants", headers=foreign)).status == 200


async def test_a_form_keeps_the_tenant_and_what_was_typed(rest: Rest) -> None:
    page = (
        await rest.get("/console/runs?tenant=acme&labels=a%3Db&contains=x%22y", headers=PAGE)
    ).body

    assert page.count('<input type="hidden" name="tenant" value="acme">') == 2
    assert 'name="labels" size="12" placeholder="customer=acme" value="a=b"' in page
    assert 'value="x&#34;y"' in page


async def test_runs_are_found_by_label_error_and_content(rest: Rest) -> None:
    await _insert_run(rest, text='says "100%" of a_b', labels={"customer": "acme"})
    await _insert_run(rest, CHILD, text="other", status="failed", code="budget_spent")

    async def shown(query: str) -> set[str]:
        page = (await rest.get(f"/console/runs?{query}", headers=PAGE)).body
        return {run_id for run_id in (RUN, CHILD) if f"/console/runs/{run_id}" in page}

    assert await shown("labels=customer%3Dacme") == {RUN}
    assert await shown("labels=customer%3Dother") == set()
    assert await shown("error=budget_spent") == {CHILD}
    assert await shown("contains=100%25") == {RUN}
    assert await shown("contains=%22100") == {RUN}
    assert await shown("contains=a_b") == {RUN}
    assert await shown("contains=a%25b") == set()
    assert await shown("contains=OTHER") == {CHILD}


async def test_a_search_reads_so_many_runs_and_goes_on_from_there(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.runs.reads.SEARCHED_RUNS", 2)
    for number in range(4):
        text = "needle" if number == 3 else "hay"
        run_id = f"r{number:024x}"
        await _insert_run(rest, run_id, text, accepted_at=NOW - timedelta(minutes=number))

    first = (await rest.get("/console/runs?contains=needle", headers=PAGE)).body
    older = html.unescape(re.findall(r'href="(\?[^"]*)" rel="next"', first)[0])
    second = (await rest.get(f"/console/runs{older}", headers=PAGE)).body

    assert "None of the runs that were searched" in first
    assert f"/console/runs/r{3:024x}" in second


async def test_costs_and_deadlines_are_compared_in_so_many_runs(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.runs.reads.TRIED_RUNS", 2)
    for number in range(5):
        moment = NOW - timedelta(minutes=number)
        await _insert_run(
            rest, f"r{number:024x}", accepted_at=moment, took_ms=10 if number < 4 else 10**8
        )

    for query in ("deadline_missed=true", "min_cost_usd=900"):
        found, after, pages = [], "", 0
        while pages < 4:
            page = (await rest.get(f"/v1/runs?{query}{after}")).body
            found += [run["run_id"] for run in page["runs"]]
            pages += 1
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        assert (pages, found) == (3, [f"r{4:024x}"] if "missed" in query else []), query


async def test_the_chart_counts_each_run_once_where_it_was_accepted(rest: Rest) -> None:
    begun = NOW.replace(microsecond=0) - timedelta(hours=2)
    kinds = ("succeeded", "degraded", "failed", "cancelled", "expired", "running")
    for number, status in enumerate(kinds):
        moment = begun + timedelta(minutes=number + 0.5)
        await _insert_run(rest, f"r{number:024x}", accepted_at=moment, status=status)
    times = {"since": begun.isoformat(), "until": (begun + timedelta(hours=1)).isoformat()}

    bars = (await rest.get("/console/runs/histogram.json", params=times)).body

    assert (bars["start"], bars["width"], bars["total"]) == (begun.timestamp(), 60, 6)
    places = {
        kind: [place for place, runs in enumerate(bars[kind]) if runs]
        for kind in ("good", "failed", "cancelled", "running")
    }
    assert places == {"good": [0, 1], "failed": [2, 4], "cancelled": [3], "running": [5]}


async def test_who_sees_no_content_searches_none(rest: Rest) -> None:
    viewer = await _cookie(rest, await rest.make_key("viewer"))

    answer = await _bare(rest, "GET", "/console/runs?contains=x", headers=viewer)
    page = await _bare(rest, "GET", "/console/runs", headers=viewer)

    assert answer.status == 403
    assert 'name="contains"' not in page.body


async def test_a_list_of_what_no_run_can_have_is_empty_and_offers_no_bulk_operation(
    rest: Rest,
) -> None:
    for asked in ("error=two+words", f"error={'x' * 150}", "pipeline=two+words", "min_cost=1e-30"):
        page = await rest.get(f"/console/runs?{asked}", headers=PAGE)
        assert page.status == 200, asked


# ---- comparing ------------------------------------------------------------------------------


async def test_two_runs_are_compared_and_the_first_difference_is_marked(rest: Rest) -> None:
    for run_id, text in ((RUN, "hi"), (CHILD, "other")):
        await _insert_run(rest, run_id, text)
        for number, node in enumerate(("plan", "read", "write")):
            at = NOW + timedelta(milliseconds=number)
            said = "hi" if node == "plan" else text
            await insert_step(rest.pool, run_id, node, at, said)
    await insert_step(rest.pool, CHILD, "late", NOW + timedelta(seconds=1))

    page = (await rest.get(f"/console/compare?a={RUN}&b={CHILD}", headers=PAGE)).body
    alike = (await rest.get(f"/console/compare?a={RUN}&b={RUN}", headers=PAGE)).body
    viewer = await _cookie(rest, await rest.make_key("viewer"))
    bare = (await _bare(rest, "GET", f"/console/compare?a={RUN}&b={CHILD}", headers=viewer)).body
    foreign = await _cookie(rest, await rest.make_key("viewer", "rival"))
    unknown = await _bare(rest, "GET", f"/console/compare?a={RUN}&b={CHILD}", headers=foreign)

    marked = re.findall(r'<tr class="first-difference"><td class="mono">(\w+)</td>', page)
    assert marked == ["read"]
    assert "They differ from" in page
    assert page.count("did not come to it") == 1
    assert "&#34;text&#34;: &#34;other&#34;" in page
    assert "Their nodes did the same." in alike
    assert "&#34;text&#34;" not in bare
    at_node = re.search(r'class="mono">(\w+)</td>', bare[bare.index("first-difference") :])
    assert at_node is not None
    assert at_node.group(1) == "late", "whether values differ is content"
    assert unknown.status == 404


async def test_two_versions_of_a_pipeline_are_compared(rest: Rest) -> None:
    changed = {**PIPELINE, "slo_ms": 7000}
    assert (await rest.post("/v1/pipelines", changed)).status == 201

    page = (await rest.get("/console/pipelines/greet/diff?a=1&b=2", headers=PAGE)).body
    newest = (await rest.get("/console/pipelines/greet", headers=PAGE)).body

    assert '<td class="left">  &#34;slo_ms&#34;: 5000' in page
    assert '<td class="right">  &#34;slo_ms&#34;: 7000' in page
    assert "/console/pipelines/greet/diff?a=1&amp;b=2" in newest


# ---- approvals and the platform -------------------------------------------------------------

ASKING: dict[str, Any] = {
    "pipeline": "ask",
    "slo_ms": 5000,
    "nodes": {"sign": {"type": "approval", "prompt": "May <b>it</b> go out?"}},
}


async def test_an_approval_that_waits_is_shown_with_its_question(rest: Rest) -> None:
    assert (await rest.post("/v1/pipelines", ASKING)).status == 201
    waiting = {"pipeline": "ask", "status": "running"}
    await insert_run(rest.pool, RUN, NOW, "the letter", **waiting)
    await insert_step(rest.pool, RUN, "sign", NOW, "the letter", type="approval", state="waiting")
    await insert_run(rest.pool, CHILD, NOW, tenant="acme", **waiting)
    await insert_step(rest.pool, CHILD, "sign", NOW, type="approval", state="waiting")

    page = (await rest.get("/console/approvals", headers=PAGE)).body
    viewer = await _cookie(rest, await rest.make_key("viewer"))
    bare = (await _bare(rest, "GET", "/console/approvals", headers=viewer)).body

    assert "May &lt;b&gt;it&lt;/b&gt; go out?" in page
    assert "the letter" in page
    assert f'data-api="POST /runs/{RUN}/signals"' in page
    assert CHILD not in page
    assert "the letter" not in bare
    assert "data-api" not in bare.partition("<main")[2].partition("</main>")[0]


async def test_the_platforms_sides_are_shown_to_whom_they_concern(rest: Rest) -> None:
    await rest.pool.execute("INSERT INTO hocket.partition (partition, owner) VALUES (0, 'c1')")

    sides = {
        view: (await rest.get(f"/console/system?view={view}", headers=PAGE)).body
        for view in ("health", "workers", "dead-letters", "keys", "audit")
    }
    viewer = await _cookie(rest, await rest.make_key("viewer"))
    refused = [
        (await _bare(rest, "GET", f"/console/system?view={view}", headers=viewer)).status
        for view in ("health", "keys", "audit")
    ]

    assert '<td class="mono">c1</td>' in sides["health"]
    assert '<td class="mono">STEPS</td>' in sides["health"]
    assert '<td class="mono">python</td>' in sides["workers"]
    assert ">test</td>" in sides["keys"]
    assert "hk_" not in sides["keys"]
    assert "pipelines.apply" in sides["audit"]
    assert refused == [200, 403, 403]


async def test_a_call_shows_why_it_went_to_its_backend_and_who_lost(rest: Rest) -> None:
    await _insert_run(rest)
    await insert_call(rest.pool, "c1", NOW, run_id=RUN, decision=DECISION)
    await insert_call(rest.pool, "c2", NOW, tenant="acme", model="theirs", decision=DECISION)

    models = (await rest.get("/console/models", headers=PAGE)).body
    of_run = (await rest.get(f"/console/runs/{RUN}?view=calls", headers=PAGE)).body
    other = (await rest.get("/console/models?model=smart&backend=cheap", headers=PAGE)).body

    for page in (models, of_run):
        assert "the cheap one is too slow for the deadline" in page
        assert '<span class="missed">its breaker is open</span>' in page
        assert '<span class="chosen-word">chosen</span>' in page
    assert "theirs" not in models
    assert "No gateway answers" in models
    assert "the cheap one" not in other


async def test_a_pipelines_attainment_is_the_reports(rest: Rest) -> None:
    ended = [("succeeded", 1_000), ("succeeded", 9_000), ("failed", 1_000), ("cancelled", 1_000)]
    for number, (status, took_ms) in enumerate(ended):
        await _insert_run(rest, f"r{number:024x}", status=status, took_ms=took_ms)

    page = (await rest.get("/console/pipelines", headers=PAGE)).body
    row = await rest.pool.fetchrow("SELECT met, runs FROM report.slo_attainment")

    assert (row["met"], row["runs"]) == (1, 3)
    assert "33\N{NO-BREAK SPACE}% met their deadline" in page


async def test_the_editor_begins_with_a_pipeline_that_can_be_applied(rest: Rest) -> None:
    page = (await rest.get("/console/editor?name=greet", headers=PAGE)).body
    new = (await rest.get("/console/editor", headers=PAGE)).body

    for shown in (page, new):
        text = html.unescape(re.findall(r'rows="32">(.*?)</textarea>', shown, re.S)[0])
        checked = await rest.ask(
            "POST",
            "/v1/pipelines/validate",
            data=text.encode(),
            headers={"Content-Type": "application/yaml"},
        )
        assert checked.status == 200, checked.body


async def test_rows_that_changed_come_alone_and_new_ones_only_where_they_fit(rest: Rest) -> None:
    await _insert_run(rest, status="failed")
    await _insert_run(rest, CHILD)

    async def rows(query: str) -> list[str]:
        answer = await rest.get(f"/console/live/rows?{query}", headers=PAGE)
        return re.findall(r'<tr data-run="(\w+)"', answer.body)

    assert await rows(f"shown={RUN},{CHILD}&status=running") == [CHILD, RUN]
    assert await rows(f"fresh={RUN},{CHILD}&status=failed") == [RUN]
    assert (await rest.get("/console/live/rows?shown=x", headers=PAGE)).status == 422
