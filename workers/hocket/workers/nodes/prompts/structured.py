"""A model's answer as JSON: read from the reply and checked against its schema. Pure."""

import json
from functools import lru_cache
from typing import Any

from hocket.schemas.json_schema.schema import Schema, compile_schema
from hocket.schemas.messages import CallReply
from hocket.schemas.templates.budget import Refused
from hocket.workers.errors import ModelReplyInvalid, OutputNotJson
from hocket.workers.runtime.results.encoding import plain

FENCE = "```"
CUT_OFF = "length"
"""The finish reason of an answer that was cut off at the token limit."""


def data_of(reply: CallReply, schema: dict[str, Any]) -> Any:
    """Return the JSON value of a reply: its `data`, or otherwise its text, which may be fenced.

    The schema is checked against the value as outputs keep it, in which NaN is null. Raises
    ModelReplyInvalid, naming the first place that does not fit.
    """
    value = reply.data if reply.data is not None else _parsed(reply.text)
    backend = reply.backend or reply.model
    if value is None and reply.finish_reason == CUT_OFF:
        raise ModelReplyInvalid(reason="it was cut off at the token limit", component=backend)
    try:
        kept = plain(value, "data")
    except OutputNotJson as error:
        raise ModelReplyInvalid(reason=error.fields["reason"], component=backend) from None
    try:
        fault = _schema_of(json.dumps(schema, sort_keys=True)).fault(kept)
    except Refused as error:
        raise ModelReplyInvalid(reason=error.reason, component=backend) from None
    if fault is not None:
        place = ".".join(str(part) for part in fault.path) or "the whole"
        raise ModelReplyInvalid(reason=f"{place}: {fault.message[:300]}", component=backend)
    return value


@lru_cache(maxsize=64)
def _schema_of(text: str) -> Schema:
    return compile_schema(json.loads(text), "response_schema")


def _parsed(text: str) -> Any:
    try:
        return json.loads(_unfenced(text))
    except (ValueError, RecursionError) as error:
        raise ModelReplyInvalid(reason=f"it is not JSON ({error})") from None


def _unfenced(text: str) -> str:
    """Return the contents of a code fence if it is the whole text, and otherwise the text."""
    bare = text.strip()
    first, line_end, rest = bare.partition("\n")
    language = first[len(FENCE) :].strip()
    plain = not language or (language.isascii() and language.isalpha())
    if bare.startswith(FENCE) and plain and line_end and rest.endswith(FENCE):
        return rest[: -len(FENCE)]
    return text
