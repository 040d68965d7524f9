"""What `hocket dev` says of two runs."""

from typing import Any

from hocket.cli.drawing.run_difference import difference

AT = "2026-11-23T20:00:0{}Z"


def step(node: str, **fields: Any) -> dict[str, Any]:
    return {
        "step": node,
        "node": node,
        "role": "leaf",
        "state": "succeeded",
        "ready_at": AT.format(0),
        "started_at": AT.format(1),
        "finished_at": AT.format(2),
        "input": {"a": 1},
        "output": {"b": 1},
        **fields,
    }


def run(
    *steps: dict[str, Any], usd: str = "0", status: str = "succeeded", ms: float = 1_000
) -> Any:
    nodes = [{"node": steps[0]["node"], "cost_usd": usd}]
    return {
        "run": {"run_id": "r1", "status": status, "duration_ms": ms, "accepted_at": AT.format(0)},
        "steps": list(steps),
        "cost": {"cost_usd": usd, "nodes": nodes},
    }


def told(before: Any, after: Any) -> list[str]:
    return [line.plain for line in difference(before, after)]


def test_a_run_like_the_one_before_says_so() -> None:
    assert told(run(step("a")), run(step("a"), ms=1_010)) == [
        "since r1: succeeded as before, 1.01 s, $0.00",
        "  every node ended as before, in about the same time",
    ]


def test_the_first_node_that_did_otherwise_is_marked_and_time_and_cost_are_told() -> None:
    before = run(step("a"), step("b"), step("c"), usd="0.02")
    after = run(
        step("a", finished_at=AT.format(3)),
        step("b", output={"b": 2}),
        step("c", state="failed", output=None),
        usd="0.01",
        status="failed",
        ms=2_000,
    )
    assert told(before, after) == [
        "since r1: succeeded -> failed, 1.00 s -> 2.00 s (+100 %), $0.02 -> $0.01",
        "  a  1.00 s -> 2.00 s (+100 %), $0.02 -> $0.01",
        "  b  other output  <- first difference",
        "  c  succeeded -> failed, other output",
    ]


def test_a_map_is_what_its_own_step_is_and_its_items_are_counted() -> None:
    def of(failed: int, items: int) -> list[dict[str, Any]]:
        states = ["failed"] * failed + ["succeeded"] * (items - failed)
        inside = [step("m", step=f"m[{i}]", state=state) for i, state in enumerate(states)]
        return [step("m", role="map", started_at=None), *inside]

    assert told(run(*of(1, 3)), run(*of(1, 2)))[1:] == [
        "  m  3 -> 2 steps, other input, other output  <- first difference"
    ]


def test_nodes_come_and_go_and_items_are_counted() -> None:
    items = [step("a", step=f"a[{number}]") for number in range(2)]
    assert told(run(step("old"), *items), run(step("new"), items[0])) == [
        "since r1: succeeded as before, 1.00 s, $0.00",
        "  a    2 -> 1 steps, other input, other output  <- first difference",
        "  new  is new",
        "  old  is gone",
    ]
