"""Tokens here are four characters each, so that counts can be checked by hand.

A prompt's chain identifies each full block by a hash over it and all blocks before it.
"""

import hashlib
from collections.abc import Iterator, Sequence

CHARS_PER_TOKEN = 4
_NAME_BYTES = 16


def count(text: str) -> int:
    """Return the tokens of a text."""
    return -(-len(text) // CHARS_PER_TOKEN)


def pieces(text: str) -> list[str]:
    """Return a text token by token."""
    return [text[at : at + CHARS_PER_TOKEN] for at in range(0, len(text), CHARS_PER_TOKEN)]


def chain_of_text(text: str, block_tokens: int) -> list[str]:
    """Return the block hashes of a text's full blocks."""
    size = block_tokens * CHARS_PER_TOKEN
    ends = range(size, len(text) + 1, size)
    return list(_chained(text[end - size : end].encode() for end in ends))


def chain_of_ids(ids: Sequence[int], block_tokens: int) -> list[str]:
    """Return the block hashes of a prompt given as token ids."""
    ends = range(block_tokens, len(ids) + 1, block_tokens)
    return list(_chained(repr(ids[end - block_tokens : end]).encode() for end in ends))


def _chained(blocks: Iterator[bytes]) -> Iterator[str]:
    before = b""
    for block in blocks:
        before = hashlib.blake2b(before + block, digest_size=_NAME_BYTES).digest()
        yield before.hex()
