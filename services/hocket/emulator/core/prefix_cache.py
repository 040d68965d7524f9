"""The blocks of prompts whose keys and values an engine still has: least recently used out first.

A block is named by its hash, and a prompt is a chain of them in which a block's name depends on all
before it, so that only prefixes are found.
"""

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """Up to `capacity` blocks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def longest_prefix(self, chain: Sequence[str]) -> int:
        """Return how many blocks at the start of a chain are here."""
        for count, block in enumerate(chain):
            if block not in self._blocks:
                return count
        return len(chain)

    def keep(self, chain: Sequence[str]) -> None:
        """Remember a chain; its end is forgotten before its beginning."""
        for block in reversed(chain[: self._capacity]):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()
