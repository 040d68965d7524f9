"""How much of a prompt each replica holds in its KV cache, and how long its prefill queue is.

A prompt is a chain of block hashes, each covering everything before it, so equal hashes mean equal
prefixes. For each replica the gateway remembers the chains sent to it (least recently used dropped
first, as many as its cache holds) and when it will have prefilled everything it was sent. From both
follows the cost of choosing a replica: the wait, and the prefill of what it has not cached. The
prefill counts about twice: for the call itself, and for later calls that will wait behind it.
Without the wait, the rule would send every call to whichever replica holds the one block they all
share.

All of this is derived from what the gateway sent, not from what replicas report; `metered` corrects
it if a replica reports otherwise.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hocket.gateway.core.calls import request_content
from hocket.schemas.messages import CallRequest

PREFILL_WEIGHT = 1.9
"""The weight of a token to prefill relative to one waited for; the results of
`bench/gateway/mooncake.py` hold for any value from 1.6 to 2.1."""
CROWDED_FACTOR = 3.0
"""A replica with more calls than this factor times (the average plus one) is chosen only
if all are that busy."""
MAX_BLOCKS = 4_096
"""The most blocks of one prompt that are considered."""
_HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class PrefixCache:
    """The prefix cache of a replica: its capacity and block size in tokens,
    and the replica's prefill speed."""

    tokens: int = 1_000_000
    block_tokens: int = 128
    prefill_tokens_per_s: float = 8_000.0

    @property
    def blocks(self) -> int:
        """The number of blocks that fit."""
        return max(self.tokens // self.block_tokens, 1)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as a chain of full blocks of `block_tokens` each, and its length in tokens."""

    blocks: tuple[int, ...]
    tokens: int
    block_tokens: int


NO_PROMPT = Prompt((), 0, 1)


@dataclass(frozen=True, slots=True)
class Fit:
    """The cost of a call at a replica: the prefills queued before it, and its own uncached prefill."""

    wait_ms: float
    prefill_ms: float
    cached_tokens: int

    @property
    def cost_ms(self) -> float:
        """A single number for comparing replicas."""
        return self.wait_ms + PREFILL_WEIGHT * self.prefill_ms


class ReplicaCache:
    """The presumed cache contents of one replica, judging by what was sent to it."""

    def __init__(self, cache: PrefixCache) -> None:
        self.cache = cache
        self._blocks: OrderedDict[int, float] = OrderedDict()
        self._free_at_ms = 0.0
        self._tells = False

    def fit(self, prompt: Prompt, now_ms: float) -> Fit:
        """Return what a call would cost here."""
        cached = 0
        for block in prompt.blocks:
            if block not in self._blocks:
                break
            cached += 1
        cached_tokens = min(cached * prompt.block_tokens, prompt.tokens)
        prefill_ms = (prompt.tokens - cached_tokens) / self.cache.prefill_tokens_per_s * 1000
        return Fit(max(self._free_at_ms - now_ms, 0.0), prefill_ms, cached_tokens)

    def oldest_ms(self) -> float:
        """Return when the next block to be evicted was last used; 0 while there is room."""
        if len(self._blocks) < self.cache.blocks:
            return 0.0
        return next(iter(self._blocks.values()))

    def send(self, prompt: Prompt, now_ms: float) -> Fit:
        """Record that a call was sent to this replica; return its fit."""
        fit = self.fit(prompt, now_ms)
        self._free_at_ms = now_ms + fit.wait_ms + fit.prefill_ms
        for block in prompt.blocks:
            self._blocks[block] = now_ms
            self._blocks.move_to_end(block)
        while len(self._blocks) > self.cache.blocks:
            self._blocks.popitem(last=False)
        return fit

    def idle(self) -> None:
        """Record that the replica is idle."""
        self._free_at_ms = 0.0

    def metered(self, expected_tokens: int, cached_tokens: int) -> None:
        """Compare with the cached tokens that a replica reports, if it reports them at all.

        If it had nothing cached of what was expected, it has been restarted, and everything is
        forgotten.
        """
        if cached_tokens:
            self._tells = True
        elif self._tells and expected_tokens:
            self._blocks.clear()


def prompt_of(request: CallRequest, block_tokens: int) -> Prompt:
    """Return a call's prompt as a chain of blocks."""
    return chained(request_content.texts(request), block_tokens)


def chained(texts: Iterable[str], block_tokens: int) -> Prompt:
    """Return concatenated texts as a chain of blocks, counting 4 characters per token.

    Texts that begin alike begin with equal blocks; the last, incomplete block is left out because
    it cannot be shared.
    """
    text = "\x1e".join(texts)
    chars = block_tokens * request_content.CHARS_PER_TOKEN
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    blocks: list[int] = []
    for start in range(0, min(len(text) - chars, (MAX_BLOCKS - 1) * chars) + 1, chars):
        digest.update(text[start : start + chars].encode("utf-8", "surrogatepass"))
        blocks.append(int.from_bytes(digest.copy().digest(), "big"))
    return Prompt(tuple(blocks), 1 + len(text) // request_content.CHARS_PER_TOKEN, block_tokens)


def crowd_of(calls: Sequence[int]) -> float:
    """Return the most calls a replica may have before it counts as crowded,
    given the calls at each replica."""
    return CROWDED_FACTOR * (sum(calls) / max(len(calls), 1) + 1)
