"""The trace that a message names. Pure."""

import re

from hocket.kit.nats.protocol import header_of

_NAME = b"traceparent"
_W3C = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,128})?")
"""A trace's context, as https://www.w3.org/TR/trace-context/ has it."""


def traceparent_in(head: bytes) -> str | None:
    """Return the trace in a message's headers, where it is one: publishers may write anything."""
    text = header_of(head, _NAME)
    return text if _W3C.fullmatch(text) else None
