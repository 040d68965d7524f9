"""A model's answer as JSON: read from the reply and checked against its schema."""

import asyncio
import json
from functools import lru_cache
from typing import Any

from hocket.schemas.json_schema.schema import Schema, compile_schema
from hocket.schemas.messages import CallReply
from hocket.schemas.templates.budget import Refused
from hocket.workers.errors import ModelReplyCut, ModelReplyInvalid, OutputNotJson
from hocket.workers.runtime.results.encoding import makes_more_than, plain

FENCE = "```"
MAX_VALUES = 200_000
"""The most JSON values in an answer, as in the gateway."""
READ_IN_THREAD_CHARS = 100_000
READ_IN_THREAD_VALUES = 10_000
CUT_OFF = "length"
"""The finish reason of an answer that was cut off at the token limit."""
NODES_LIMIT = "`max_tokens` (without it, the limit is the model's own)"
"""What to raise if the answer of a node was cut off that may limit its answers ..."""
MODELS_LIMIT = "the limit that the model's backend sets"
"""... and of one that does not."""


async def read_data(reply: CallReply, schema: dict[str, Any], bound: str = NODES_LIMIT) -> Any:
    """Return the same as `data_of`; a large answer is read in a thread."""
    is_large = len(reply.text) > READ_IN_THREAD_CHARS
    if is_large or makes_more_than(READ_IN_THREAD_VALUES, reply.data):
        return await asyncio.to_thread(data_of, reply, schema, bound)
    return data_of(reply, schema, bound)


def data_of(reply: CallReply, schema: dict[str, Any], bound: str = NODES_LIMIT) -> Any:
    """Return the JSON value of a reply: its `data`, or otherwise its text, which may be fenced.

    The schema is checked against the value as outputs keep it, in which NaN is null. Raises
    ModelReplyCut if the answer was cut off before its JSON was complete (`bound` is what to raise),
    and otherwise ModelReplyInvalid, naming the first place that does not fit.
    """
    backend = reply.backend or reply.model
    if reply.finish_reason == CUT_OFF and not _is_complete(reply):
        limit = f"{reply.output_tokens} tokens" if reply.output_tokens else "its limit of tokens"
        raise ModelReplyCut(limit=limit, bound=bound, component=backend)
    value = reply.data if reply.data is not None else _parsed(reply.text)
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


def _is_complete(reply: CallReply) -> bool:
    """Tell whether an answer that was cut off has complete JSON all the same: an object or an array that
    ends, as where only spaces follow. Of a number or a word, the beginning may be left."""
    try:
        value = reply.data if reply.data is not None else _parsed(reply.text)
    except ModelReplyInvalid:
        return False
    return isinstance(value, dict | list)


@lru_cache(maxsize=64)
def _schema_of(text: str) -> Schema:
    return compile_schema(json.loads(text), "response_schema")


def has_many_values(text: str) -> bool:
    """Tell whether a JSON text has more than about MAX_VALUES values; brackets and commas inside strings
    count too."""
    return sum(map(text.count, (",", "[", "{"))) > MAX_VALUES


def _parsed(text: str) -> Any:
    if has_many_values(text):
        raise ModelReplyInvalid(reason=f"it has more than {MAX_VALUES} values")
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
