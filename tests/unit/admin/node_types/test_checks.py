"""What is written into the version of a pipeline that is applied."""

from typing import Any

from hocket.admin.node_types.checks import checked
from hocket.admin.node_types.registry import NodeTypes
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
        "ask": {"type": "agent", "model": "m", "tools": {"look": tool}},
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
