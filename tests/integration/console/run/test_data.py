"""What the scripts of a run's page load."""

import pytest

from support.administration.console_rig import CHILD, RUN, add_run, add_step
from support.rest_rig import Rest


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
