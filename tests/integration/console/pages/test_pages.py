"""The pages of comparisons, approvals, models, pipelines and the platform."""

import html
import json
import re
import threading
from datetime import timedelta
from typing import Any

import pytest
import yaml

from hocket.admin.console.run import compare
from hocket.schemas import subjects
from hocket.schemas.messages import ReplicaState, ReplicasTold
from support.administration.console_rig import (
    CHILD,
    DECISION,
    NOW,
    PAGE,
    PIPELINE,
    RUN,
    add_run,
    asked_bare,
    cookie_of,
)
from support.administration.told_replicas import ToldGateways
from support.rest_rig import Rest
from support.runs.rows import insert_call, insert_run, insert_step


async def test_two_runs_are_compared_and_the_first_difference_is_marked(rest: Rest) -> None:
    for run_id, text in ((RUN, "hi"), (CHILD, "other")):
        await add_run(rest, run_id, text)
        for number, node in enumerate(("plan", "read", "write")):
            at = NOW + timedelta(milliseconds=number)
            said = "hi" if node == "plan" else text
            await insert_step(rest.pool, run_id, node, at, said)
    await insert_step(rest.pool, CHILD, "late", NOW + timedelta(seconds=1))

    page = (await rest.get(f"/console/compare?a={RUN}&b={CHILD}", headers=PAGE)).body
    alike = (await rest.get(f"/console/compare?a={RUN}&b={RUN}", headers=PAGE)).body
    viewer = await cookie_of(rest, await rest.make_key("viewer"))
    same = f"/console/compare?a={RUN}&b={RUN}"
    unread = (await asked_bare(rest, "GET", same, headers=viewer)).body
    bare = (
        await asked_bare(rest, "GET", f"/console/compare?a={RUN}&b={CHILD}", headers=viewer)
    ).body
    foreign = await cookie_of(rest, await rest.make_key("viewer", "rival"))
    unknown = await asked_bare(rest, "GET", f"/console/compare?a={RUN}&b={CHILD}", headers=foreign)

    marked = re.findall(r'<tr class="first-difference"><td class="mono">(\w+)</td>', page)
    assert marked == ["read"]
    assert "They differ from" in page
    assert page.count("not reached") == 1
    assert "&#34;text&#34;: &#34;other&#34;" in page
    assert "All nodes gave the same results." in alike
    assert "gave the same results" not in unread
    assert "inputs and outputs were not compared" in unread
    assert "&#34;text&#34;" not in bare
    at_node = re.search(r'class="mono">(\w+)</td>', bare[bare.index("first-difference") :])
    assert at_node is not None
    assert at_node.group(1) == "late", "whether values differ is content"
    assert unknown.status == 404


async def test_a_node_beyond_the_first_of_one_run_only_is_no_difference(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.runs.comparison.MAX_NODES", 2)
    for run_id, nodes in ((RUN, "xyz"), (CHILD, "zxy")):
        await add_run(rest, run_id)
        for number, node in enumerate(nodes):
            await insert_step(rest.pool, run_id, node, NOW + timedelta(milliseconds=number))

    told = (await rest.get(f"/v1/runs/{RUN}/compare?other={CHILD}")).body["nodes"]
    page = (await rest.get(f"/console/compare?a={RUN}&b={CHILD}", headers=PAGE)).body

    assert {one["node"]: one["differs"] for one in told} == {"x": [], "y": [], "z": []}
    assert "The first nodes gave the same results." in page


async def test_what_differs_beyond_the_compared_lines_is_not_called_the_same(rest: Rest) -> None:
    lines = ["x"] * 1_200
    for run_id, last in ((RUN, "a"), (CHILD, "b")):
        await add_run(rest, run_id)
        value = json.dumps([*lines, last])
        await rest.pool.execute(
            "UPDATE hocket.run SET output = $2 WHERE run_id = $1", run_id, value
        )
        await insert_step(rest.pool, run_id, "off", NOW, state="skipped")

    page = (await rest.get(f"/console/compare?a={RUN}&b={CHILD}", headers=PAGE)).body
    alike = (await rest.get(f"/console/compare?a={RUN}&b={RUN}", headers=PAGE)).body

    assert "Output: the same in both" not in page
    assert "Output: the same in the part that is compared here" in page
    assert "Output: the same in both" in alike
    assert page.count('<span class="status skipped">') == 2, "an ended node is not open"


async def test_values_are_compared_beside_the_event_loop(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, on_the_loop = compare.diff_of, list[bool]()

    def diff(*texts: str, **options: Any) -> Any:
        on_the_loop.append(threading.current_thread() is threading.main_thread())
        return begin(*texts, **options)

    monkeypatch.setattr(compare, "diff_of", diff)
    await add_run(rest)
    await add_run(rest, CHILD, "other")

    assert (await rest.get(f"/console/compare?a={RUN}&b={CHILD}", headers=PAGE)).status == 200
    assert on_the_loop == [False, False]


async def test_two_versions_of_a_pipeline_are_compared(rest: Rest) -> None:
    changed = {**PIPELINE, "slo_ms": 7000}
    assert (await rest.post("/v1/pipelines", changed)).status == 201

    page = (await rest.get("/console/pipelines/greet/diff?a=1&b=2", headers=PAGE)).body
    newest = (await rest.get("/console/pipelines/greet", headers=PAGE)).body

    assert '<td class="left">  &#34;slo_ms&#34;: 5000' in page
    assert '<td class="right">  &#34;slo_ms&#34;: 7000' in page
    assert "/console/pipelines/greet/diff?a=1&amp;b=2" in newest


async def test_versions_that_differ_only_in_the_order_of_keys_differ(rest: Rest) -> None:
    node = {"type": "python", "handler": "a:b"}
    written = {"pipeline": "order", "slo_ms": 5_000, "nodes": {"b": node, "a": node}}
    assert (await rest.post("/v1/pipelines", written)).status == 201
    await rest.pool.execute("UPDATE hocket.pipeline SET document = NULL WHERE name = 'order'")
    assert (await rest.post("/v1/pipelines", written)).body["version"] == 2

    page = (await rest.get("/console/pipelines/order/diff?a=1&b=2", headers=PAGE)).body
    told = (await rest.get("/v1/pipelines/order/diff?before=1&after=2")).body["changes"]
    *_, first, second = (await rest.get("/v1/audit")).body["entries"]

    assert page.index('<td class="left">    &#34;a&#34;: {') < page.index("&#34;b&#34;: {")
    assert '<td class="right">    &#34;b&#34;: {' in page
    assert told == [
        {
            "path": "nodes",
            "kind": "changed",
            "before": ["a", "b"],
            "after": ["b", "a"],
            "order": True,
        }
    ]
    assert first["after"]["spec"] == second["after"]["spec"]
    assert first["after"]["document"] == second["after"]["document"]

    assert (await rest.post("/v1/pipelines", written | {"nodes": {"a": node, "b": node}})).body[
        "created"
    ]
    third = (await rest.get("/v1/audit")).body["entries"][-1]
    assert third["after"]["spec"] == second["after"]["spec"]
    assert third["after"]["document"] != second["after"]["document"]


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
    viewer = await cookie_of(rest, await rest.make_key("viewer"))
    bare = (await asked_bare(rest, "GET", "/console/approvals", headers=viewer)).body

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
    viewer = await cookie_of(rest, await rest.make_key("viewer"))
    refused = [
        (await asked_bare(rest, "GET", f"/console/system?view={view}", headers=viewer)).status
        for view in ("health", "keys", "audit")
    ]
    narrow = (await asked_bare(rest, "GET", "/console/system", headers=viewer)).body
    auditor = await cookie_of(rest, await rest.make_key("auditor", None))
    wide = (await asked_bare(rest, "GET", "/console/system", headers=auditor)).body

    assert '<td class="mono">c1</td>' in sides["health"]
    assert '<td class="mono">STEPS</td>' in sides["health"]
    assert '<td class="mono">python</td>' in sides["workers"]
    assert ">test</td>" in sides["keys"]
    assert "hk_" not in sides["keys"]
    assert "pipelines.apply" in sides["audit"]
    assert refused == [200, 403, 403]
    assert '<td class="mono">c1</td>' in wide
    assert "<b>database</b>" in narrow
    assert '<td class="mono">c1</td>' not in narrow, "whom `GET /v1/partitions` refuses"
    assert '<td class="mono">STEPS</td>' not in narrow


async def test_an_audit_shows_what_was_changed_without_what_says_nothing(rest: Rest) -> None:
    key = await rest.make_key("viewer", "acme", name="told")
    assert (await rest.ask("DELETE", f"/v1/keys/{key.split('_')[1]}")).status == 200

    page = (await rest.get("/console/system?view=audit", headers=PAGE)).body
    shown = [
        html.unescape(text) for text in re.findall(r'<pre tabindex="0">(.*?)</pre>', page, re.S)
    ]
    changes = [json.loads(text) for text in shown]
    exported = (await rest.get("/v1/audit")).body["entries"]

    made = next(one for one in changes if one.get("after", {}).get("name") == "told")
    stored = next(one for one in exported if (one["after"] or {}).get("name") == "told")
    assert None in stored["after"].values()
    assert made["after"] == {
        name: value for name, value in stored["after"].items() if value is not None
    }
    for change in changes:
        assert set(change) <= {"before", "after"}
        assert all(isinstance(value, dict) for value in change.values())
    assert not any("null" in text for text in shown)


async def test_a_page_that_shows_the_first_of_many_says_so(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await rest.post("/v1/pipelines", ASKING)).status == 201
    for number, run_id in enumerate((RUN, CHILD)):
        await insert_run(rest.pool, run_id, NOW, pipeline="ask", status="running")
        step = {"type": "approval", "state": "waiting"}
        await insert_step(rest.pool, run_id, f"sign{number}", NOW, **step)
    paths = ("/console/approvals", "/console/system?view=keys")
    whole = [(await rest.get(path, headers=PAGE)).body for path in paths]
    monkeypatch.setattr("hocket.admin.approvals.reads.DEFAULT_WAITING", 1)
    monkeypatch.setattr("hocket.admin.console.pages.system.MAX_KEYS", 1)
    approvals, keys = [(await rest.get(path, headers=PAGE)).body for path in paths]

    assert "2 wait for a decision" in whole[0]
    assert "These are the latest" not in whole[1]
    assert "1 of those that wait for a decision" in approvals
    assert "More approvals" in approvals
    assert "More approvals" not in whole[0]
    assert "These are the latest 1; <code>hocket keys list --all --all-tenants</code>" in keys


async def test_the_last_page_of_pipelines_leads_to_no_empty_one(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.console.pages.pipelines.ROWS", 1)
    only = (await rest.get("/console/pipelines", headers=PAGE)).body
    assert (await rest.post("/v1/pipelines", ASKING)).status == 201
    first = (await rest.get("/console/pipelines", headers=PAGE)).body
    last = (await rest.get("/console/pipelines?after=ask", headers=PAGE)).body

    assert "More pipelines" not in only
    assert 'href="?after=ask" rel="next"' in first
    assert "/console/pipelines/greet" in last
    assert "More pipelines" not in last


async def test_changes_name_the_key_and_not_its_id(rest: Rest) -> None:
    own = rest.key.split("_")[1]

    for path in ("pipelines/greet", "schedules/nightly", "webhooks/ops", "system?view=audit"):
        page = (await rest.get(f"/console/{path}", headers=PAGE)).body
        text = re.sub(r"<[^>]+>", "", page.partition("<main")[2])
        assert re.search(r"by test\b|>test<", page), path
        assert f"by key:{own}" not in text, path
        assert f"by {own}" not in text, path


async def test_what_waits_in_a_stream_is_what_nobody_was_given(rest: Rest) -> None:
    for number in range(3):
        await rest.bus.publish(subjects.task("default", "greet"), b"{}", msg_id=f"m{number}")
    reader = await rest.bus.js.pull_subscribe("", durable="slow", stream=subjects.TASKS)
    await reader.fetch(1)

    page = (await rest.get("/console/system", headers=PAGE)).body
    found = re.search(r">TASKS</td>(.*?)</tr>", page, re.S)

    assert found is not None
    cells = re.findall(r'<td class="num">(.*?)</td>', found[1])
    assert (cells[0], cells[2:]) == ("3", ["1", "2", "1"])


async def test_a_step_that_waits_for_an_approval_offers_it_to_those_who_may_give_it(
    rest: Rest,
) -> None:
    assert (await rest.post("/v1/pipelines", ASKING)).status == 201
    await insert_run(rest.pool, RUN, NOW, "the letter", pipeline="ask", status="running")
    await insert_step(rest.pool, RUN, "sign", NOW, type="approval", state="waiting")
    viewer = await cookie_of(rest, await rest.make_key("viewer"))

    page = (await rest.get(f"/console/runs/{RUN}/steps/sign", headers=PAGE)).body
    bare = (await asked_bare(rest, "GET", f"/console/runs/{RUN}/steps/sign", headers=viewer)).body

    assert f'data-api="POST /runs/{RUN}/signals"' in page
    assert ">Approve</button>" in page
    assert ">Approve</button>" not in bare


async def test_a_call_shows_why_it_went_to_its_backend_and_who_lost(rest: Rest) -> None:
    await add_run(rest)
    await insert_call(rest.pool, "c1", NOW, run_id=RUN, decision=DECISION)
    await insert_call(rest.pool, "c2", NOW, tenant="acme", model="theirs", decision=DECISION)
    await insert_call(rest.pool, "c3", NOW, run_id="my-agent", decision=DECISION)

    models = (await rest.get("/console/models", headers=PAGE)).body
    of_run = (await rest.get(f"/console/runs/{RUN}?view=calls", headers=PAGE)).body
    other = (await rest.get("/console/models?model=smart&backend=cheap", headers=PAGE)).body

    for page in (models, of_run):
        assert "the cheap one is too slow for the deadline" in page
        assert '<span class="missed">its breaker is open</span>' in page
        assert '<span class="chosen-word">chosen</span>' in page
    assert "theirs" not in models
    assert ">my-agent</span>" in models
    assert "/console/runs/my-agent" not in models, "a run of somebody's own has no page"
    assert "No gateway answers" in models
    assert "the cheap one" not in other


async def test_replicas_are_shown_as_all_gateways_see_them_and_are_changed_by_whom_may(
    rest: Rest,
) -> None:
    good = ReplicaState(replica="gpu/1", backend="gpu", models=("writer",), limit=8)
    queue = {"waiting": 3, "waiting_by_class": {"interactive": 1, "batch": 2}}
    bad = good.model_copy(update={"breaker": "open", "openings": 3, "rests_ms": 2_000.0, **queue})
    order = {"drained": True, "by": "key:ops", "reason": "<b>driver</b>", "changed_at_ms": 2e12}
    gone = good.model_copy(update={"replica": "gpu/2", **order})
    live = ("g1", "g2", "g3")
    await ToldGateways(
        rest.bus,
        ReplicasTold(gateway="g1", gateways=live, replicas=(good, gone)),
        ReplicasTold(gateway="g2", gateways=live, replicas=(bad, gone)),
    ).open()

    page = (await rest.get("/console/models", headers=PAGE)).body
    own = await cookie_of(rest, await rest.make_key("admin", "acme"))
    narrow = (await asked_bare(rest, "GET", "/console/models", headers=own)).body

    assert "as all 2 gateways see them" in page
    assert re.search(
        r">3<br><span class=.dim.>1 interactive</span><br><span class=.dim.>2 batch<", page
    )
    assert "g3 is running but does not answer" in page
    assert re.search(
        r"breaker open</span> <span class=.dim.>g2, opened 3 times, rests 2.00 s", page
    )
    assert "by ops: &lt;b&gt;driver&lt;/b&gt;" in page
    assert 'data-path="/backends/gpu/resume"' in page
    assert 'data-api="POST /backends/gpu/drain"' in page
    assert "warm" not in page.partition("<h2>Calls")[0].partition("<h2>Replicas")[2], "not started"
    assert "gpu/1" in narrow
    assert "/backends/" not in narrow, "backends are all tenants'"


async def test_a_pipelines_attainment_is_the_reports(rest: Rest) -> None:
    ended = [("succeeded", 1_000), ("succeeded", 9_000), ("failed", 1_000), ("cancelled", 1_000)]
    for number, (status, took_ms) in enumerate(ended):
        await add_run(rest, f"r{number:024x}", status=status, took_ms=took_ms)

    page = (await rest.get("/console/pipelines", headers=PAGE)).body
    row = await rest.pool.fetchrow("SELECT met, runs FROM report.slo_attainment")

    assert (row["met"], row["runs"]) == (1, 3)
    assert "33\N{NO-BREAK SPACE}% met their deadline" in page


async def test_each_dollar_counts_for_one_pipeline(rest: Rest) -> None:
    """A door's call that names a run counts for its pipeline, a sub-run's for the sub-run's pipeline."""
    below = {**PIPELINE, "pipeline": "below"}
    assert (await rest.post("/v1/pipelines", below)).status == 201
    for call_id, run_id, pipeline, usd in (
        ("http:default:1", RUN, "greet", 2),
        ("http:default:2", CHILD, "below", 1),
        ("of-a-step", RUN, "greet", 0.5),
        ("http:default:3", "elsewhere", "other", 9),
    ):
        call = {"run_id": run_id, "pipeline": pipeline, "cost": usd}
        await insert_call(rest.pool, call_id, NOW, **call)

    page = (await rest.get("/console/pipelines", headers=PAGE)).body

    costs = re.findall(r'<td class="num">(\$[^<]*)</td></tr>', page)
    assert costs == ["$1.00", "$2.50"]


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


async def test_a_pipelines_page_says_where_its_time_and_money_go(rest: Rest) -> None:
    path = [["hello", "hello", 1, "queue", 300_000, 1], ["hello", "hello", 1, "model", 700_000, 1]]
    await add_run(rest, path=path)
    await insert_call(
        rest.pool,
        "c1",
        NOW,
        run_id=RUN,
        pipeline="greet",
        node="hello",
        cost=3,
        labels={"customer": "one"},
    )
    await insert_call(
        rest.pool, "c2", NOW, run_id=RUN, pipeline="greet", node="hello", cost=1, kind="retry"
    )

    page = (await rest.get("/console/pipelines/greet", headers=PAGE)).body
    money = (await rest.get("/console/money", headers=PAGE)).body
    own = await cookie_of(rest, await rest.make_key("viewer"))
    narrow = (await asked_bare(rest, "GET", "/console/money", headers=own)).body

    first = re.search(
        r"bottleneck</span></td><td[^>]*>.*?>model</td>.*?70\N{NO-BREAK SPACE}%", page, re.S
    )
    assert first is not None, page
    assert re.search(r'hello</td><td class="num">\$4.00</td><td class="num">\$1.00</td>', page)
    assert re.search(r"<td>greet</td>.*?\$4.00.*?<td>", money, re.S)
    assert "report.month_forecast" in money
    assert "By tenant" in money
    assert "By tenant" not in narrow
    assert "By label" in money


async def test_what_is_run_from_a_page_is_the_version_that_it_shows(rest: Rest) -> None:
    assert (await rest.post("/v1/pipelines", {**PIPELINE, "slo_ms": 6000})).status == 201
    await add_run(rest)

    for path in ("/console/pipelines/greet?version=1", f"/console/runs/{RUN}"):
        page = (await rest.get(path, headers=PAGE)).body
        form = page.partition('data-api="POST /runs" data-follow')[2].partition("</form>")[0]
        assert '<input type="hidden" name="version" data-json value="1">' in form, path


async def test_runs_are_found_by_their_version(rest: Rest) -> None:
    for number in (1, 2):
        await add_run(rest, f"r{number:024x}", version=number)

    page = (await rest.get("/console/runs?pipeline=greet&version=2", headers=PAGE)).body
    wrong = await rest.get("/console/runs?version=two", headers=PAGE)

    assert re.findall(r'data-run="(\w+)"', page) == [f"r{2:024x}"]
    assert wrong.status == 422


async def test_the_text_of_a_large_pipeline_holds_up_nobody(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a second to write: it is written in a thread, and a tenant has only some of these."""
    begin, seen = yaml.dump_all, list[tuple[bool, int]]()

    def write(*documents: Any, **options: Any) -> Any:
        own = rest.app.state.context.long_reads._tenants.get("default")
        on_the_loop = threading.current_thread() is threading.main_thread()
        seen.append((on_the_loop, 0 if own is None else own.clients))
        return begin(*documents, **options)

    monkeypatch.setattr(yaml, "dump_all", write)
    page = await rest.get("/console/editor?name=greet", headers=PAGE)
    assert page.status == 200
    assert "nodes:" in page.body
    assert seen == [(False, 1)]
