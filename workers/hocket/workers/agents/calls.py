"""Reads and checks a model's tool calls: those that can be made, and what the model is told about the
others. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from hocket.schemas.checks.plain_json import parse_json, shown_text
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.schemas.json_schema.schema import Schema, compile_schema
from hocket.schemas.templates.budget import Refused as TooMuch
from hocket.workers.agents.errors import AgentCallsInvalid
from hocket.workers.agents.state import MadeCall, Refused

MAX_NAMED_CALLS = 128
"""The most calls in one answer, including refused ones."""
MAX_ARGUMENTS_CHARS = 65_536
"""The limit on the arguments of one call."""
MAX_ARGUMENTS_VALUES = 20_000
MAX_ARGUMENTS_DEPTH = 32
"""Less than the bound on all values, because the values that contain the arguments nest as well."""
MAX_CALLS_CHARS = 131_072
"""The limit on all calls of one answer, including anything else that the provider put into them."""
MAX_FAULT_CHARS = 300
MAX_SHOWN_TOOLS = 64
MAX_NAME_CHARS = 64
CUT = "your answer was cut off at the token limit; send shorter arguments"
"""What a model is told of a call whose arguments are not complete."""
_WITH_PARAMETERS = ("properties", "$ref", "allOf", "anyOf", "oneOf")
"""The keywords of a schema in which parameters are named."""
_ODD = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that the name of a function may not have."""


class Calls:
    """The tool calls of one answer: as the model made them, with our ids, and which of them are made or
    refused."""

    def __init__(
        self,
        number: int,
        tools: Mapping[str, Mapping[str, Any]],
        at_most: int,
        *,
        is_cut: bool = False,
    ) -> None:
        self.told: list[dict[str, Any]] = []
        self.made: list[MadeCall] = []
        self.refused: list[Refused] = []
        self._number = number
        self._tools = tools
        self._at_most = at_most
        self._is_cut = is_cut

    def read(self, calls: Sequence[Mapping[str, Any]]) -> "Calls":
        """Read the calls of an answer; raise AgentCallsInvalid if they are malformed or too many."""
        if len(calls) > MAX_NAMED_CALLS:
            reason = f"there are {len(calls)}; the limit is {MAX_NAMED_CALLS}"
            raise AgentCallsInvalid(reason=reason)
        if len(json.dumps(calls)) > MAX_CALLS_CHARS:
            reason = f"they have more than {MAX_CALLS_CHARS} characters"
            raise AgentCallsInvalid(reason=reason)
        for i, call in enumerate(calls, start=1):
            is_last = i == len(calls)
            self._take(f"call_{self._number}_{i}", call, may_be_cut=self._is_cut and is_last)
        return self

    def _take(self, call_id: str, call: Mapping[str, Any], *, may_be_cut: bool) -> None:
        function = call.get("function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise AgentCallsInvalid(reason="one of them names no tool")
        called, text = function["name"], function.get("arguments")
        text = text if isinstance(text, str) else json.dumps(text)
        name = called if called in self._tools else _ODD.sub("_", called)[:MAX_NAME_CHARS] or "_"
        is_cut = may_be_cut and not text and _takes_any(self._tools.get(called))
        arguments, reason = ({}, CUT) if is_cut else self._read(text)
        # what is sent back to the model must be acceptable to its provider: a name, and an object
        told = {**function, "name": name, "arguments": json.dumps(arguments)}
        self.told.append({**call, "id": call_id, "type": "function", "function": told})
        reason = reason or self._fault(called, arguments)
        if reason:
            self.refused.append(Refused(id=call_id, reason=reason))
            return
        step = f"{name}_{len(self.made) + 1}"
        self.made.append(MadeCall(id=call_id, step=step, tool=name, arguments=arguments))

    def _read(self, text: str) -> tuple[dict[str, Any], str]:
        """Return the arguments of a call and an empty text, or no arguments and the fault."""
        if len(text) > MAX_ARGUMENTS_CHARS:
            return {}, f"the arguments have more than {MAX_ARGUMENTS_CHARS} characters"
        try:
            arguments = parse_json(text or "{}", "arguments", max_values=MAX_ARGUMENTS_VALUES)
        except InvalidInput as error:
            if self._is_cut:
                return {}, CUT
            return {}, f"`{error.fields['field']}`: {error.fields['reason']}"
        if not isinstance(arguments, dict):
            return {}, "the arguments are not a JSON object"
        if _depth(arguments) > MAX_ARGUMENTS_DEPTH:
            return {}, f"the arguments nest deeper than {MAX_ARGUMENTS_DEPTH}"
        return arguments, ""

    def _fault(self, called: str, arguments: dict[str, Any]) -> str:
        """Return why a call is refused, or an empty text if it is not. `called` is the name as the model
        gave it: the one that goes back to its provider may be that of another tool."""
        tool = self._tools.get(called)
        if tool is None:
            known = ", ".join(list(self._tools)[:MAX_SHOWN_TOOLS])
            said = shown_text(called, MAX_NAME_CHARS)
            return f"there is no tool `{said}`; available tools: {known}"
        if len(self.made) >= self._at_most:
            return f"one answer may have at most {self._at_most} calls; call it again if needed"
        return _fault(tool.get("parameters"), arguments)


def _takes_any(tool: Mapping[str, Any] | None) -> bool:
    """Tell whether a tool has parameters, as far as its schema says so."""
    parameters = (tool or {}).get("parameters")
    return isinstance(parameters, Mapping) and any(map(parameters.get, _WITH_PARAMETERS))


def _fault(parameters: Mapping[str, Any] | None, arguments: dict[str, Any]) -> str:
    """Return why the arguments do not fit the tool's schema. Empty if they fit, or if the schema cannot
    be read (it is then a server's own, and the server checks the arguments itself)."""
    if not parameters:
        return ""
    try:
        fault = _schema(json.dumps(parameters, sort_keys=True)).fault(arguments)
    except TooMuch as error:
        return error.reason
    except (HocketError, ValueError, RecursionError):
        return ""
    if fault is None:
        return ""
    place = ".".join(map(str, fault.path))
    where = f"`{place}`: " if place else ""
    return f"the arguments do not fit: {where}{shown_text(fault.message, MAX_FAULT_CHARS)}"


def _depth(value: Any) -> int:
    """Return how deep a JSON value nests."""
    deepest, level = 0, [value]
    while level:
        deepest += 1
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level = inner
    return deepest


@lru_cache(maxsize=256)
def _schema(text: str) -> Schema:
    return compile_schema(json.loads(text), "parameters")
