"""Parses the JSON of replies, also that of servers which cut a character in two."""

import re
from typing import Any

from pydantic_core import from_json

from hocket.gateway.core.protocols.json_size import SMALL_BYTES

_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_RUN_OR_HALF = re.compile(
    rb"((?:[^\\]++"  # no escape
    rb"|\\(?!u[dD][89a-fA-F])."  # another escape
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # both halves of a character
    rb")+)|" + _HALF.pattern,
    re.DOTALL,
)
"""A part of a document that may stay, which is the first group, or half a character."""
_REPLACEMENT = rb"\ufffd"


def may_be_cut(content: bytes) -> bool:
    """Return whether half a character may be in a document, which takes long to be replaced in a large
    one; characters written as two halves count too."""
    return _HALF.search(content) is not None


def reply_value(content: bytes) -> Any:
    """Return the value of a JSON document, or raise ValueError.

    Half a character, as a server may send in each of two pieces of a stream, is no text; it becomes
    the sign for one that cannot be shown, except in documents of more than SMALL_BYTES.
    """
    try:
        return from_json(content, allow_inf_nan=False)
    except ValueError:
        if len(content) > SMALL_BYTES or not may_be_cut(content):
            raise
    mended = _RUN_OR_HALF.sub(lambda found: found[1] or _REPLACEMENT, content)
    return from_json(mended, allow_inf_nan=False)
