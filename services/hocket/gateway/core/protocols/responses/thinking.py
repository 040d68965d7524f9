"""What a model thought, as the `encrypted_content` of a reasoning item: a caller sends it back unread.

Nothing is encrypted here: the blocks hold their provider's signature, by which it knows them again.
They are packed so that they come back as they were.
"""

import base64
import binascii
import json
from typing import Any

_PREFIX = "thinking:"
MAX_THINKING_BLOCKS = 1_024
"""Blocks of one reasoning item that are read back."""


def sealed(blocks: list[dict[str, Any]]) -> str:
    """Return blocks as text."""
    packed = json.dumps(blocks, ensure_ascii=False, separators=(",", ":")).encode()
    return _PREFIX + base64.b64encode(packed).decode()


def unsealed(content: Any) -> list[dict[str, Any]]:
    """Return the blocks in a text; none where it is not one of ours."""
    if not isinstance(content, str) or not content.startswith(_PREFIX):
        return []
    try:
        blocks = json.loads(base64.b64decode(content.removeprefix(_PREFIX), validate=True))
    except (ValueError, binascii.Error, RecursionError):
        return []
    if not isinstance(blocks, list):
        return []
    return [block for block in blocks[:MAX_THINKING_BLOCKS] if isinstance(block, dict)]
