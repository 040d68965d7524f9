"""Packs a model's thinking into the `encrypted_content` of a reasoning item, which callers send
back unread.

Nothing is encrypted here: the blocks carry their provider's signature, by which the provider
verifies them. They are packed only so that they come back unchanged.
"""

import base64
import binascii
import json
from typing import Any

from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import InvalidInput

_PREFIX = "thinking:"
MAX_THINKING_BLOCKS = 1_024
"""The most blocks read back from one reasoning item."""
MAX_THINKING_VALUES = 200_000
"""The most values in all reasoning items of one request; when the request body is checked, packed
values are not counted."""


def sealed(blocks: list[dict[str, Any]]) -> str:
    """Return blocks packed as text."""
    packed = json.dumps(blocks, ensure_ascii=False, separators=(",", ":")).encode()
    return _PREFIX + base64.b64encode(packed).decode()


def unsealed(content: Any) -> list[dict[str, Any]]:
    """Return the blocks packed in a text; none if it was not packed by `sealed`."""
    return blocks_of(unpacked(content))


def unpacked(content: Any) -> bytes:
    """Return the JSON packed in a text; empty if it was not packed by `sealed`."""
    if not isinstance(content, str) or not content.startswith(_PREFIX):
        return b""
    try:
        return base64.b64decode(content.removeprefix(_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        return b""


def blocks_of(packed: bytes) -> list[dict[str, Any]]:
    """Return the blocks in a JSON text; none if they could not be forwarded to a backend."""
    try:
        blocks = parse_json(packed)
    except InvalidInput:
        return []
    if not isinstance(blocks, list):
        return []
    return [block for block in blocks[:MAX_THINKING_BLOCKS] if isinstance(block, dict)]
