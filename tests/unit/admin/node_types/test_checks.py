"""What is written into the version of a pipeline that is applied."""

from typing import Any

import pytest

from hocket.admin.node_types.checks import checked
from hocket.admin.node_types.registry import SETTLED_MS, NodeTypes
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.messages import TypeDescribed
from hocket.schemas.pipeline.handlers import HandlerQueues
from hocket.schemas.pipeline.plan import compile_pipeline

QUEUES = HandlerQueues({"vision": "gpu", "vision.small": "cpu"}, "queues")


def python(handler: str, **fields: Any) -> dict[str, Any]:
    return {"type": "python", "handler": handler} | fields


def test_nodes_that_name_no_queue_get_that_of_their_handlers_package() -> None:
    tool = {"parameters": {"type": "object"}, "node": python("vision:tool")}
    nodes = {
        "below": python("vision.large.models:run"),
        "inner": python("vision.small:run", fallback=[{"node": python("vision:other")}]),
        "named": python("vision:run", queue="tpu"),
        "beside": python("visions:run"),
        "scope": {"type": "graph", "nodes": {"x": python("vision:run")}},
        "ask": {"type": "agent", "model": "m", "prompt": "p", "tools": {"look": tool}},
    }
    document = {"pipeline": "p", "nodes": nodes}
    plan, _ = checked(compile_pipeline(document), NodeTypes(QUEUES))
    spec: Any = plan.pipeline.nodes
    assert [spec[name].queue for name in ("below", "inner", "named", "beside")] == [
        "gpu", "cpu", "tpu", None,
    ]  # fmt: skip
    assert spec["inner"].fallback[0].node.queue == "gpu"
    assert spec["scope"].nodes["x"].queue == "gpu"
    assert spec["ask"].tools["look"].node.queue == "gpu"
    same, _ = checked(compile_pipeline(document), NodeTypes())
    assert same.pipeline.nodes["below"].queue is None


@pytest.mark.parametrize(
    ("written", "hint"), [("crm.lokup", " Did you mean `crm.lookup`?"), ("a.b", "")]
)
def test_a_type_that_no_worker_announced_is_told_the_nearest_one(written: str, hint: str) -> None:
    types = NodeTypes()
    types.types.described(TypeDescribed(worker="w", type="crm.lookup"), 0.0)
    types._opened_at_ms = monotonic_ms() - 2 * SETTLED_MS
    plan = compile_pipeline({"pipeline": "p", "nodes": {"x": {"type": written}}})
    (warning,) = checked(plan, types)[1]
    assert warning.endswith(f"; runs wait until a worker runs `{written}`.{hint}")


def heard(name: str, **fields: Any) -> NodeTypes:
    """Return a registry that has heard of one worker, which runs `crm.note`."""
    types = NodeTypes()
    types.types.announced("w", {"crm.note": 4}, 0.0)
    types.types.described(TypeDescribed(worker="w", type=name, **fields), 0.0)
    types._opened_at_ms = monotonic_ms() - 2 * SETTLED_MS
    return types


def test_a_type_that_a_worker_runs_and_does_not_describe_is_told() -> None:
    plan = compile_pipeline({"pipeline": "p", "nodes": {"x": {"type": "crm.note"}}})
    types = heard("crm.other")
    (warning,) = checked(plan, types)[1]
    assert "A worker runs `crm.note`, but has not described it" in warning
    types._opened_at_ms = monotonic_ms() + SETTLED_MS  # it may still come
    assert checked(plan, types)[1] == []


def test_what_of_a_description_is_not_used_is_told_and_the_rest_counts() -> None:
    types = heard("crm.note", effects="external", timeout_ms=5.0, input={"pattern": "^.{1,2000}$"})
    nodes = {"x": {"type": "crm.note"}, "y": {"type": "crm.note"}}
    plan, (warning,) = checked(compile_pipeline({"pipeline": "p", "nodes": nodes}), types)
    assert "The schema of `input` is not used" in warning
    node = plan.pipeline.nodes["x"]
    assert (node.effects, node.timeout_ms) == ("external", 5.0)


@pytest.mark.parametrize(
    "prompt", ["Send {{ input.amount }}?", "{% if input.late %}Late!{% endif %}"]
)
def test_a_prompt_of_an_approval_that_is_written_as_a_template_is_told(prompt: str) -> None:
    look = {"type": "approval", "prompt": prompt}
    work = python("m:f", calls={"ask": look}, fallback=[{"node": look}])
    nodes = {"look": look, "work": work, "plain": {"type": "approval", "prompt": "Send {it}?"}}
    nodes |= {"node": look, "tools": {"type": "graph", "nodes": {"node": look}}}
    tool = {"description": "d", "parameters": {"type": "object"}, "node": look}
    nodes["ask"] = {"type": "agent", "model": "m", "prompt": "p", "tools": {"look": tool}}
    _, told = checked(compile_pipeline({"pipeline": "p", "nodes": nodes}), NodeTypes())
    says = "is plain text, and is shown with its braces."
    beside = "Put the values in the node's `with`, which is shown beside it."
    passed = "Pass the values as the input of the call, which is shown beside it."
    assert told == [
        f"`nodes.look.prompt` {says} {beside}",
        f"`nodes.work.calls.ask.prompt` {says} {passed}",
        f"`nodes.work.fallback.0.node.prompt` {says} {beside}",
        f"`nodes.node.prompt` {says} {beside}",
        f"`nodes.tools.nodes.node.prompt` {says} {beside}",
        f"`nodes.ask.tools.look.node.prompt` {says} {passed}",
    ]
