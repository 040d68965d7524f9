"""Rules for an agent as a whole, beyond the form of its single fields."""

from typing import Any

from hocket.schemas.checks.faults import Faults
from hocket.schemas.errors import InvalidInput
from hocket.schemas.json_schema.patterns import Patterns
from hocket.schemas.json_schema.schema import compile_schema
from hocket.schemas.pipeline.agents.called import check_called
from hocket.schemas.pipeline.agents.turns import PREVIOUS
from hocket.schemas.pipeline.spec import AgentNode, AgentTool, McpNode


def check_agent(node: AgentNode, field: str, faults: Faults) -> None:
    """Collect what makes no sense in an agent. The nodes of its tools are checked separately."""
    with faults.part():
        _check_itself(node, field)
    for name, tool in node.tools.items():
        with faults.part():
            _check_tool(tool, f"{field}.tools.{name}")


def _check_itself(node: AgentNode, field: str) -> None:
    if node.loop is not None:
        raise InvalidInput(
            field=f"{field}.loop",
            reason="an agent has rounds of its own",
            cure="Set `max_rounds`, or put the agent in a `graph` that has the `loop`.",
        )
    if node.cache is not None:
        raise InvalidInput(
            field=f"{field}.cache",
            reason="an agent's rounds depend on its tools' results, which are not cached with them",
            cure="Put `cache` on the nodes of its tools, or run it in a pipeline that a `pipeline` node"
            " with `cache` calls.",
        )
    if node.with_ is not None and PREVIOUS in node.with_:
        raise InvalidInput(
            field=f"{field}.with.{PREVIOUS}",
            reason="this name is reserved for the previous round",
            cure="Choose another name.",
        )


def check_schemas_of(node: AgentNode, field: str, patterns: Patterns) -> None:
    """Raise InvalidInput if one of an agent's schemas is not valid."""
    if node.response_schema is not None:
        compile_schema(node.response_schema, f"{field}.response_schema", patterns)
    for name, tool in node.tools.items():
        if tool.parameters is not None:
            compile_schema(tool.parameters, f"{field}.tools.{name}.parameters", patterns)


def _check_tool(tool: AgentTool, field: str) -> None:
    check_called(tool.node, f"{field}.node", "the arguments of the call")
    if tool.parameters is None:
        if not isinstance(tool.node, McpNode):
            raise InvalidInput(
                field=f"{field}.parameters",
                reason="they are missing, and only tools of MCP servers provide their own",
                cure="Write the JSON Schema of the arguments: `{type: object, properties: {...}}`.",
            )
    elif not _is_of_objects(tool.parameters):
        raise InvalidInput(
            field=f"{field}.parameters.type",
            reason="the arguments of a call are an object",
            cure="Write `type: object`.",
        )


def _is_of_objects(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object"
