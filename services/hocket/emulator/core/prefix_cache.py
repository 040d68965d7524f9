"""The prompt blocks whose keys and values an engine still has; least recently used ones are evicted
first.

A block is identified by a hash over itself and all blocks before it, so only prefixes match.
"""

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """An LRU cache of up to `capacity` blocks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def longest_prefix(self, chain: Sequence[str]) -> int:
        """Return how many leading blocks of a chain are cached."""
        for count, block in enumerate(chain):
            if block not in self._blocks:
                return count
        return len(chain)

    def keep(self, chain: Sequence[str]) -> None:
        """Cache a chain; its end is evicted before its beginning."""
        for block in reversed(chain[: self._capacity]):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()
