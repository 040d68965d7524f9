"""The list of functions that `python` nodes may name: what it takes, allows and refuses."""

from typing import Any

import pytest

from hocket.kit.process.handler_allowlist import allowed_handlers, handler_queues
from hocket.kit.process.settings import Settings
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.handlers import (
    AllowedHandlers,
    HandlerNotAllowed,
    check_handlers,
    entries_of,
)
from hocket.schemas.pipeline.spec import parse_pipeline


@pytest.mark.parametrize("handler", ["acme:f", "acme.tools:f", "acme.tools.deep:f", "shop:sell"])
def test_a_listed_module_and_what_is_below_it_may_run(handler: str) -> None:
    AllowedHandlers.of(["acme", "shop:sell"]).check(handler)


@pytest.mark.parametrize(
    "handler", ["acmeish:f", "acm:f", "shop:buy", "shop.sell:f", "os:system", "acme.__main__:f"]
)
def test_a_function_that_is_not_listed_may_not_run(handler: str) -> None:
    with pytest.raises(HandlerNotAllowed):
        AllowedHandlers.of(["acme", "shop:sell"]).check(handler)


@pytest.mark.parametrize(
    "entry",
    ["os", "subprocess", "os.path", "os:system", "builtins", "posix", "hocket", "hocket.workers",
     "hocket.workers.builtin", "a-b", "a.", ".a", "a:", "a:b.c", "*", "a b", "a\n"],
)  # fmt: skip
def test_an_entry_that_cannot_be_allowed_is_refused_where_it_stands(entry: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        AllowedHandlers.of(["acme", entry], "--handlers")
    assert refused.value.info().field == "--handlers"


def test_setting_and_file_make_one_list() -> None:
    sections = {"node_types": {"python": {"modules": ["shop:sell"]}}}
    both = allowed_handlers(Settings(handlers="acme, other.steps"), sections)
    assert both is not None
    assert str(both) == "acme, other.steps, shop:sell, hocket.workers.builtin"
    assert allowed_handlers(Settings(handlers=None), {}) is None
    nothing = allowed_handlers(Settings(handlers=""), {})
    assert nothing == AllowedHandlers()


def test_the_file_s_fault_names_the_file_s_place() -> None:
    with pytest.raises(InvalidInput) as refused:
        allowed_handlers(Settings(), {"node_types": {"python": {"modules": ["os"]}}})
    assert refused.value.info().field == "node_types.python.modules"


def test_a_list_is_read_with_its_spaces_and_repeats() -> None:
    assert entries_of(" a , b.c,,a ") == ("a", "b.c")


BAD = {"type": "python", "handler": "subprocess:getoutput"}
GOOD = {"type": "python", "handler": "acme:run"}
RACE = {"type": "race", "branches": {"x": GOOD, "y": BAD}}


@pytest.mark.parametrize(
    ("node", "field"),
    [
        (BAD, "nodes.a.handler"),
        ({"type": "graph", "nodes": {"in": BAD}}, "nodes.a.nodes.in.handler"),
        (RACE, "nodes.a.branches.y.handler"),
        (GOOD | {"fallback": [{"node": BAD}]}, "nodes.a.fallback.0.node.handler"),
        (GOOD | {"fast": BAD}, "nodes.a.fast.handler"),
        ({"type": "graph", "nodes": {"in": GOOD | {"fast": RACE}}},
         "nodes.a.nodes.in.fast.branches.y.handler"),
    ],
)  # fmt: skip
def test_a_pipeline_is_searched_to_its_last_corner(node: dict[str, Any], field: str) -> None:
    pipeline = parse_pipeline({"pipeline": "p", "nodes": {"a": node}})
    with pytest.raises(InvalidInput) as refused:
        check_handlers(pipeline, AllowedHandlers.of(["acme"]))
    assert refused.value.info().field == field
    check_handlers(
        parse_pipeline({"pipeline": "p", "nodes": {"a": GOOD}}), AllowedHandlers.of(["acme"])
    )


def test_the_file_names_queues_of_packages() -> None:
    sections = {"node_types": {"python": {"queues": {"vision": "gpu", "vision.small": "cpu"}}}}
    queues = handler_queues(sections)
    handlers = ("vision:f", "vision.large:f", "vision.small.models:f", "visions:f")
    assert [queues.of(handler) for handler in handlers] == ["gpu", "gpu", "cpu", None]
    assert handler_queues({}).of("vision:f") is None


@pytest.mark.parametrize("entry", [{"a-b": "gpu"}, {"a:f": "gpu"}, {"a": "GPU"}, {"a": ""}])
def test_what_is_no_package_or_no_queue_is_refused_where_it_stands(entry: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        handler_queues({"node_types": {"python": {"queues": entry}}})
    assert refused.value.info().field == f"node_types.python.queues.{next(iter(entry))}"
