"""A pipeline as boxes and arrows."""

from hocket.admin.console.views.graph import MAX_BOXES, graph_of, with_emitted
from hocket.schemas.pipeline.plan import compile_pipeline

STEP = {"type": "python", "handler": "a:b"}


def test_boxes_are_within_each_other_and_arrows_follow_the_needs() -> None:
    plan = compile_pipeline(
        {
            "pipeline": "p",
            "nodes": {
                "find": {"type": "race", "branches": {"quick": STEP, "sure": STEP}},
                "each": {
                    **STEP,
                    "map": {"over": "input.items"},
                    "fallback": [{"node": {**STEP, "with": {"n": 1}}}],
                },
                "last": {**STEP, "needs": ["find", "each"]},
            },
        }
    )

    found = graph_of(plan)

    boxes = {box["id"]: (box["parent"], box["mark"]) for box in found["boxes"]}
    assert boxes == {
        "find": (None, ""),
        "find~quick": ("find", "branch"),
        "find~sure": ("find", "branch"),
        "each": (None, "map"),
        "each!1": ("each", "fallback"),
        "last": (None, ""),
    }
    assert set(found["arrows"]) == {("find", "last"), ("each", "last")}
    assert found["more"] == 0


def test_of_a_huge_pipeline_some_boxes_are_drawn_and_the_rest_counted() -> None:
    plan = compile_pipeline(
        {"pipeline": "p", "nodes": {f"n{i}": STEP for i in range(MAX_BOXES + 7)}}
    )

    found = graph_of(plan)

    assert len(found["boxes"]) == MAX_BOXES
    assert found["more"] == 7


def test_what_a_planner_emitted_is_drawn_within_it() -> None:
    graph = graph_of(compile_pipeline({"pipeline": "p", "nodes": {"plan": STEP, "last": STEP}}))
    ran = [
        {"node": path, "type": "python"} for path in ("plan", "plan/ask/deep", "plan/ask", "gone/x")
    ]

    found = with_emitted(graph, ran)

    boxes = {box["id"]: (box["name"], box["parent"], box["mark"]) for box in found["boxes"]}
    assert boxes["plan/ask"] == ("ask", "plan", "emitted")
    assert boxes["plan/ask/deep"] == ("deep", "plan/ask", "emitted")
    assert boxes["gone/x"] == ("gone/x", None, "emitted")
    assert len(boxes) == 5
    assert with_emitted(graph, [{"node": "plan", "type": "python"}])["boxes"] == graph["boxes"]
    many = [{"node": f"plan/{i}", "type": "python"} for i in range(MAX_BOXES)]
    assert len(with_emitted(graph, many)["boxes"]) == MAX_BOXES
