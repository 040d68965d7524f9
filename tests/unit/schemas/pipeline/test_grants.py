"""What the pipelines of a tenant may use: every place of a pipeline that names a resource."""

import pytest

from hocket.schemas.access.grants import (
    EVERYTHING,
    KINDS,
    GrantMissing,
    Grants,
    check_grants,
    missing_at_step,
)
from hocket.schemas.pipeline.plan import compile_pipeline
from hocket.schemas.pipeline.spec import Pipeline

LLM = {"type": "llm", "model": "large", "prompt": "?"}
ECHO = {"type": "python", "handler": "shop:echo", "queue": "gpu"}
PLANNING = {"type": "planning", "model": "m", "prompt": "?"}


def pipeline(**nodes: object) -> Pipeline:
    return compile_pipeline({"pipeline": "p", "nodes": nodes}).pipeline


def fields_missing(spec: Pipeline, **lists: tuple[str, ...]) -> list[str]:
    try:
        check_grants(spec, Grants(**lists), "acme")
    except GrantMissing as error:
        return [error.fields["field"], *(one["field"] for one in error.fields.get("others", ()))]
    return []


def test_a_tenant_without_grants_may_use_everything() -> None:
    spec = pipeline(a=LLM, b=ECHO)
    check_grants(spec, EVERYTHING, "acme")
    check_grants(spec, Grants(models=("large",)), "acme")
    assert set(Grants.model_fields) == set(KINDS)


def test_every_missing_grant_is_named_with_its_node() -> None:
    spec = pipeline(
        first=LLM,
        ask={"type": "sql", "database": "sales", "query": "SELECT 1"},
        send={"type": "http", "service": "crm"},
        find={"type": "mcp", "server": "search", "tool": "find"},
        work=ECHO,
    )
    nothing: dict[str, tuple[str, ...]] = dict.fromkeys(KINDS, ())
    missing = fields_missing(spec, **nothing)
    for field in (
        "nodes.first.model",
        "nodes.ask.database",
        "nodes.send.service",
        "nodes.find.tool",
        "nodes.work.queue",
        "nodes.work.type",
    ):
        assert field in missing
    with pytest.raises(GrantMissing) as caught:
        check_grants(spec, Grants(models=("small",)), "acme")
    text = str(caught.value)
    for part in ("node `first`", "model `large`", "tenant `acme`", "the grant `models`"):
        assert part in text
    assert caught.value.info().code == "grant_missing"


@pytest.mark.parametrize(
    ("nodes", "field"),
    [
        ({"g": {"type": "graph", "nodes": {"x": LLM}}}, "nodes.g.nodes.x.model"),
        ({"a": {**ECHO, "fallback": [{"node": LLM}]}}, "nodes.a.fallback.0.node.model"),
        (
            {"r": {"type": "race", "branches": {"x": LLM, "y": {**LLM, "model": "small"}}}},
            "nodes.r.branches.x.model",
        ),
        (
            {
                "plan": PLANNING
                | {"model": "small", "emit": {"types": ["llm"], "models": ["small", "large"]}}
            },
            "nodes.plan.emit.models.1",
        ),
    ],
)
def test_nodes_inside_others_are_checked(nodes: dict[str, object], field: str) -> None:
    assert fields_missing(pipeline(**nodes), models=("small",)) == [field]


@pytest.mark.parametrize(
    ("granted", "is_allowed"),
    [
        ("search", True),
        ("search/find", True),
        ("search/delete", False),
        ("search/find/all", False),
        ("sea", False),
        ("other", False),
    ],
)
def test_tools_are_granted_by_server_or_one_by_one(granted: str, is_allowed: bool) -> None:
    spec = pipeline(find={"type": "mcp", "server": "search", "tool": "find"})
    missing = missing_at_step(spec.nodes["find"], "find", Grants(mcp_servers=(granted,)), "acme")
    assert (missing is None) is is_allowed


@pytest.mark.parametrize(
    ("granted", "is_allowed"),
    [("search", True), ("search/find", True), ("search-admin/find", False), ("sea", False)],
)
def test_a_planner_may_emit_calls_of_a_server_of_which_any_tool_is_granted(
    granted: str, is_allowed: bool
) -> None:
    plan = PLANNING | {"emit": {"types": ["mcp"], "mcp_servers": ["search"]}}
    missing = fields_missing(pipeline(plan=plan), mcp_servers=(granted,))
    assert missing == ([] if is_allowed else ["nodes.plan.emit.mcp_servers.0"])


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("node_types", "types"),
        ("databases", "databases"),
        ("http_services", "services"),
        ("mcp_servers", "mcp_servers"),
        ("nats_services", "nats_services"),
    ],
)
def test_what_a_planner_may_emit_needs_a_grant_of_each_kind(kind: str, field: str) -> None:
    emit = {
        "types": ["sql", "http", "mcp", "nats"],
        "databases": ["shop"],
        "services": ["crm"],
        "mcp_servers": ["search"],
        "nats_services": ["geo"],
    }
    plan = PLANNING | {"emit": emit}
    granted = ("planning", "http", "mcp", "nats") if kind == "node_types" else ()
    assert fields_missing(pipeline(plan=plan), **{kind: granted}) == [f"nodes.plan.emit.{field}.0"]


def test_what_workers_do_not_run_needs_no_grant() -> None:
    spec = pipeline(w={"type": "signal", "signal": "go"}, g={"type": "graph", "nodes": {"x": LLM}})
    assert fields_missing(spec, node_types=("llm",)) == []
