"""What a model thought, as the `encrypted_content` of a reasoning item: a caller sends it back unread.

Nothing is encrypted here: the blocks hold their provider's signature, by which it knows them again.
They are packed so that they come back as they were.
"""

import base64
import binascii
import json
from typing import Any

from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import InvalidInput

_PREFIX = "thinking:"
MAX_THINKING_BLOCKS = 1_024
"""Blocks of one reasoning item that are read back."""
MAX_THINKING_VALUES = 200_000
"""Values of all reasoning items of one request: packed, they are not seen where its body is weighed."""


def sealed(blocks: list[dict[str, Any]]) -> str:
    """Return blocks as text."""
    packed = json.dumps(blocks, ensure_ascii=False, separators=(",", ":")).encode()
    return _PREFIX + base64.b64encode(packed).decode()


def unsealed(content: Any) -> list[dict[str, Any]]:
    """Return the blocks in a text; none where it is not one of ours."""
    return blocks_of(unpacked(content))


def unpacked(content: Any) -> bytes:
    """Return the JSON in a text; none where it is not one of ours."""
    if not isinstance(content, str) or not content.startswith(_PREFIX):
        return b""
    try:
        return base64.b64decode(content.removeprefix(_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        return b""


def blocks_of(packed: bytes) -> list[dict[str, Any]]:
    """Return the blocks in a JSON text; none where they could not go on to a backend."""
    try:
        blocks = parse_json(packed)
    except InvalidInput:
        return []
    if not isinstance(blocks, list):
        return []
    return [block for block in blocks[:MAX_THINKING_BLOCKS] if isinstance(block, dict)]
