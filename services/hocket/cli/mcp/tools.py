"""The tools of `hocket mcp`: one per pipeline, and those for runs in progress."""

from collections.abc import Collection
from typing import Any

from mcp_types import Tool

from hocket.cli.mcp.kept_api import KeptApi
from hocket.cli.remote.api import path
from hocket.cli.terminal.errors import ApiRefused
from hocket.schemas.errors import PipelineUnknown

PAGE = 100
"""Pipelines requested at once, and tools in one answer."""
MAX_KNOWN = 2_000
"""Versions of pipelines whose input schemas are cached."""
GET_RUN = "hocket_get_run"
CANCEL_RUN = "hocket_cancel_run"
ANSWER = "hocket_answer_approval"

_RUN_ID = {"type": "string", "description": "ID of the run, as returned by the pipeline's tool."}
RUN_TOOLS = (
    Tool(
        name=GET_RUN,
        description="Wait for a run in progress and return its result, or what it is waiting for.",
        input_schema={
            "type": "object",
            "properties": {"run_id": _RUN_ID},
            "required": ["run_id"],
        },
    ),
    Tool(
        name=CANCEL_RUN,
        description="Cancel a run in progress.",
        input_schema={
            "type": "object",
            "properties": {"run_id": _RUN_ID, "reason": {"type": "string"}},
            "required": ["run_id"],
        },
    ),
    Tool(
        name=ANSWER,
        description="Approve or refuse a step that a run is waiting on. Only a person may decide this: "
        "ask them first.",
        input_schema={
            "type": "object",
            "properties": {
                "run_id": _RUN_ID,
                "step": {"type": "string", "description": "The step that is waiting."},
                "approved": {"type": "boolean"},
                "note": {"type": "string", "description": "Why."},
            },
            "required": ["run_id", "step", "approved"],
        },
    ),
)


class Pipelines:
    """The pipelines offered as tools: those named in `exported`, or all of the tenant if none is
    named."""

    def __init__(self, exported: Collection[str]) -> None:
        self._exported = frozenset(exported)
        self._known: dict[tuple[str, str, int], Tool] = {}

    def is_exported(self, name: str) -> bool:
        """Tell whether a pipeline may be called."""
        names = {tool.name for tool in RUN_TOOLS}
        return name not in names and (not self._exported or name in self._exported)

    async def page(self, api: KeptApi, after: str) -> tuple[list[Tool], str | None]:
        """Return the tools after a pipeline's name, and the name of the page's last pipeline, or None on
        the last page."""
        found = await api.get("/v1/pipelines", after=after or None, limit=PAGE)
        pipelines = found["pipelines"]
        exported = [one for one in pipelines if self.is_exported(one["pipeline"])]
        tools = [
            await self._tool(api, one["pipeline"], int(one["active_version"])) for one in exported
        ]
        last = pipelines[-1]["pipeline"] if len(pipelines) == PAGE else None
        return [tool for tool in tools if tool is not None], last

    async def _tool(self, api: KeptApi, name: str, version: int) -> Tool | None:
        """Return the tool of a pipeline's version, the active one, which calls run; or None if the
        pipeline has been deleted meanwhile."""
        key = (api.identity, name, version)
        tool = self._known.get(key)
        if tool is None:
            try:
                detail = await api.get(path("pipelines", name), version=version)
            except ApiRefused as error:
                if error.info().code == PipelineUnknown.code:
                    return None
                raise
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            tool = self._known[key] = _described(name, detail["spec"])
        return tool


def _described(name: str, spec: dict[str, Any]) -> Tool:
    schema = spec.get("input") or {}
    return Tool(
        name=name,
        description=spec.get("description") or f"Run the pipeline `{name}`.",
        input_schema={"type": "object", **schema},
    )
