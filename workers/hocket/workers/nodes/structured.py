"""A model's answer as JSON: read from the reply and checked against its schema. Pure."""

import json
import re
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from hocket.schemas.messages import CallReply
from hocket.workers.errors import ModelReplyInvalid

FENCE = re.compile(r"^\s*```[a-zA-Z]*\s*\n(.*?)\n?\s*```\s*$", re.DOTALL)


def data_of(reply: CallReply, schema: dict[str, Any]) -> Any:
    """Return the JSON value of a reply (its `data`, else its text, fenced or not).

    Raises ModelReplyInvalid naming the first place that does not fit the schema.
    """
    value = reply.data if reply.data is not None else _parsed(reply.text)
    fault = best_match(Draft202012Validator(schema).iter_errors(value))
    if fault is not None:
        place = ".".join(str(part) for part in fault.absolute_path) or "the whole"
        raise ModelReplyInvalid(
            reason=f"{place}: {fault.message[:300]}", component=reply.backend or reply.model
        )
    return value


def _parsed(text: str) -> Any:
    fenced = FENCE.match(text)
    try:
        return json.loads(fenced[1] if fenced else text)
    except ValueError as error:
        raise ModelReplyInvalid(reason=f"it is not JSON ({error})") from None
