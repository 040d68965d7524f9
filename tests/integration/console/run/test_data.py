"""What the scripts of a run's page load."""

from datetime import timedelta

import pytest

from support.administration.console_rig import CHILD, NOW, PAGE, RUN, add_run, add_step
from support.rest_rig import Rest, bearer
from support.runs.rows import insert_call


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


async def test_the_trace_is_in_the_form_that_perfetto_reads(rest: Rest) -> None:
    await add_run(rest)
    await add_step(rest, "hello")

    answer = await rest.get(f"/console/runs/{RUN}/trace.json")

    named = {event["name"] for event in answer.body["traceEvents"]}
    assert any("hello" in name for name in named)
    assert answer.headers["Cache-Control"] == "no-store"
