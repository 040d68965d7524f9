"""What the scripts of a run's page load."""

import html
import json
import re
from datetime import timedelta

import pytest

from support.administration.console_rig import CHILD, NOW, PAGE, RUN, add_run, add_step
from support.rest_rig import Rest, bearer
from support.runs.rows import insert_call, insert_step

STEPS = re.compile(r'data-step="([^"]*)"')


async def test_the_timeline_of_a_long_run_comes_in_pages(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.console.views.timeline.PAGE", 3)
    await add_run(rest)
    for number in range(5):
        await add_step(rest, f"hello[{number}]")

    base = f"/console/runs/{RUN}/timeline.json"
    overview = (await rest.get(base)).body
    first = (await rest.get(f"{base}?node=hello")).body
    second = (await rest.get(f"{base}?node=hello&after={first['next']}")).body
    await rest.pool.execute(
        "SET hocket.deletes = 'on'; DELETE FROM hocket.step WHERE key > 'hello[2]'"
    )
    short = (await rest.get(base)).body

    assert overview["columns"] is None
    assert [node["steps"] for node in overview["nodes"]] == [5]
    assert first["columns"]["key"] == ["hello[0]", "hello[1]", "hello[2]"]
    assert second["columns"]["key"] == ["hello[3]", "hello[4]"]
    assert (second["columns"]["ready"][0], second["columns"]["finished"][0]) == (0.0, 40.0)
    assert second["next"] is None
    assert len(first["attempts"]) == 3
    assert short["columns"]["key"] == first["columns"]["key"]


async def test_the_timeline_has_the_model_calls_of_its_steps_and_what_they_cost(rest: Rest) -> None:
    await add_run(rest)
    await add_step(rest, "hello")
    await add_step(rest, "quiet")
    for number in range(2):
        at = NOW + timedelta(milliseconds=10 + number)
        await insert_call(rest.pool, f"c{number}", at, run_id=RUN, node="hello", cost=2)
    await insert_call(rest.pool, "theirs", NOW, tenant="acme", run_id=RUN, node="hello", cost=2)
    narrow = await rest.make_key("viewer", scopes=frozenset({"runs.read"}))

    shown = (await rest.get(f"/console/runs/{RUN}/timeline.json")).body
    bare = (await rest.get(f"/console/runs/{RUN}/timeline.json", headers=bearer(narrow))).body
    page = (await rest.get(f"/console/runs/{RUN}?view=steps", headers=PAGE)).body
    panel = (await rest.get(f"/console/runs/{RUN}/steps/hello", headers=PAGE)).body

    columns = shown["columns"]
    cost = dict(
        zip(columns["key"], zip(columns["cost"], columns["tokens"], strict=True), strict=True)
    )
    assert cost == {"hello": (4.0, 3_000), "quiet": (None, None)}
    assert shown["calls"] == [["hello", 10.0, 810.0], ["hello", 11.0, 811.0]]
    assert set(bare["columns"]["cost"]) == {None}
    assert '<td class="num">$4.00</td><td class="num">3,000</td>' in page
    assert "$4.00" in panel


async def test_the_graph_of_a_run_says_how_far_its_nodes_are(rest: Rest) -> None:
    await add_run(rest)
    await add_step(rest, "hello")
    await add_run(rest, CHILD)

    graph = (await rest.get(f"/console/runs/{RUN}/graph.json")).body
    empty = (await rest.get(f"/console/runs/{CHILD}/graph.json")).body

    assert [(node["node"], node["steps"]) for node in graph["nodes"]] == [("hello", 1)]
    assert empty["nodes"] == []
    assert {key: graph[key] for key in graph if key != "nodes"} == {
        key: empty[key] for key in empty if key != "nodes"
    }


async def add_map(rest: Rest, run_id: str, *, failed: int) -> None:
    await insert_step(rest.pool, run_id, "m", NOW, node="m", role="map")
    for number in range(12):
        state = "failed" if number < failed else "succeeded"
        key = f"m[{number}]"
        await insert_step(rest.pool, run_id, key, NOW, str(number), node="m", state=state)


async def test_a_map_whose_items_may_fail_has_not_failed_and_its_items_are_counted(
    rest: Rest,
) -> None:
    await add_run(rest)
    await add_run(rest, CHILD)
    await add_map(rest, RUN, failed=2)
    await add_map(rest, CHILD, failed=0)

    (node,) = (await rest.get(f"/console/runs/{RUN}/graph.json")).body["nodes"]
    pair = (await rest.get(f"/v1/runs/{RUN}/compare?other={CHILD}")).body["nodes"][0]
    page = (await rest.get(f"/console/compare?a={RUN}&b={CHILD}", headers=PAGE)).body

    counts = [node[name] for name in ("failed", "succeeded", "steps", "allSteps")]
    assert counts == [False, 10, 12, 13]
    found = {name: pair["a"][name] for name in ("state", "succeeded", "failed", "steps")}
    assert found == {"state": "succeeded", "succeeded": 10, "failed": 2, "steps": 12}
    assert "state" in pair["differs"]
    assert "10/12" in page
    assert "12/12" in page
    steps = (await rest.get(f"/console/runs/{RUN}?view=steps", headers=PAGE)).body
    assert STEPS.findall(steps) == ["m", *(f"m[{number}]" for number in range(12))]


async def test_steps_on_several_pages_stay_in_the_order_of_the_pages(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.console.run.views.STEP_ROWS", 10)
    await add_run(rest)
    await add_map(rest, RUN, failed=0)
    keys = sorted(["m", *(f"m[{number}]" for number in range(12))])

    place, shown = "?view=steps", list[list[str]]()
    while place:
        page = (await rest.get(f"/console/runs/{RUN}{place}", headers=PAGE)).body
        shown.append(STEPS.findall(page))
        older = re.search(r'href="([^"]*)" rel="next"', page)
        place = html.unescape(older[1]) if older else ""

    assert shown == [keys[:10], keys[10:]]


async def test_a_step_that_starts_a_run_has_spent_what_that_run_and_those_below_it_have(
    rest: Rest,
) -> None:
    below, other = "r" + "2" * 24, "r" + "3" * 24
    await add_run(rest)
    await insert_step(rest.pool, RUN, "kid", NOW, node="kid", type="pipeline", role="subrun")
    await insert_step(rest.pool, RUN, "twin", NOW, node="twin", type="pipeline", role="subrun")
    await add_step(rest, "hello")
    for run_id, parent, step in ((CHILD, RUN, "kid"), (below, CHILD, "x"), (other, RUN, "gone")):
        await add_run(rest, run_id)
        told = json.dumps({"run_id": parent, "step": step, "attempt": 1, "depth": 1})
        await rest.pool.execute("UPDATE hocket.run SET parent = $2 WHERE run_id = $1", run_id, told)
        await insert_call(rest.pool, f"c{run_id}", NOW, run_id=run_id, node="a", cost=2)

    columns = (await rest.get(f"/console/runs/{RUN}/timeline.json")).body["columns"]
    page = (await rest.get(f"/console/runs/{RUN}?view=steps", headers=PAGE)).body
    panel = (await rest.get(f"/console/runs/{RUN}/steps/kid", headers=PAGE)).body

    spent = {
        key: (cost, tokens)
        for key, cost, tokens in zip(
            columns["key"], columns["cost"], columns["tokens"], strict=True
        )
    }
    assert spent == {"kid": (4.0, 3_000), "twin": (None, None), "hello": (None, None)}
    assert '<td class="num">$4.00</td><td class="num">3,000</td>' in page
    assert "$4.00" in panel
    assert "view=calls" not in panel


async def test_the_trace_is_in_the_form_that_perfetto_reads(rest: Rest) -> None:
    await add_run(rest)
    await add_step(rest, "hello")

    answer = await rest.get(f"/console/runs/{RUN}/trace.json")

    named = {event["name"] for event in answer.body["traceEvents"]}
    assert any("hello" in name for name in named)
    assert answer.headers["Cache-Control"] == "no-store"
