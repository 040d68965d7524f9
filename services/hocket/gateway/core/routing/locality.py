"""Which replica has how much of a prompt in its KV cache, and how long its queue of prefills is.

A prompt is a chain of block hashes, each over everything before it, so that equal hashes mean equal
prefixes. Per replica the chains that were sent there are remembered, least recently used first out, as
many as its cache holds; and the time at which it will have prefilled what it was sent. From both comes
what choosing a replica costs: the wait, and the prefill of what it does not have. The latter counts
about twice, once for the call itself and once for those that come after it and will wait behind it.
Without the wait in it, the rule would send every call to whoever has the one block that all share.

All of this is what the gateway sent, not what the replica says; `metered` is for when it says otherwise.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hocket.gateway.core.calls import request_content
from hocket.schemas.messages import CallRequest

PREFILL_WEIGHT = 1.9
"""How much an uncached token costs against one that is waited for; `bench/gateway/mooncake.py` holds its
figures from 1.6 to 2.1."""
CROWDED_FACTOR = 3.0
"""A replica with more than this times the calls of the others (and one) is taken only if all are."""
MAX_BLOCKS = 4_096
"""Blocks of one prompt that are looked at."""
_HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class PrefixCache:
    """The prefix cache of a replica: how many tokens it holds, in blocks of how many, and how many
    tokens a second the replica prefills."""

    tokens: int = 1_000_000
    block_tokens: int = 128
    prefill_tokens_per_s: float = 8_000.0

    @property
    def blocks(self) -> int:
        """Return how many blocks fit."""
        return max(self.tokens // self.block_tokens, 1)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as its chain of blocks, of `block_tokens` each but the last, and its length in tokens."""

    blocks: tuple[int, ...]
    tokens: int
    block_tokens: int


NO_PROMPT = Prompt((), 0, 1)


@dataclass(frozen=True, slots=True)
class Fit:
    """What a call costs at a replica: the prefills before it, and its own of what is not cached."""

    wait_ms: float
    prefill_ms: float
    cached_tokens: int

    @property
    def cost_ms(self) -> float:
        """One number to compare replicas by."""
        return self.wait_ms + PREFILL_WEIGHT * self.prefill_ms


class ReplicaCache:
    """What one replica holds, as far as we sent it."""

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
        """Return when the block was used that goes next; 0 while there is room."""
        if len(self._blocks) < self.cache.blocks:
            return 0.0
        return next(iter(self._blocks.values()))

    def send(self, prompt: Prompt, now_ms: float) -> Fit:
        """Note that a call was sent here; return what it found."""
        fit = self.fit(prompt, now_ms)
        self._free_at_ms = now_ms + fit.wait_ms + fit.prefill_ms
        for block in prompt.blocks:
            self._blocks[block] = now_ms
            self._blocks.move_to_end(block)
        while len(self._blocks) > self.cache.blocks:
            self._blocks.popitem(last=False)
        return fit

    def idle(self) -> None:
        """Note that the replica has nothing to do."""
        self._free_at_ms = 0.0

    def metered(self, expected_tokens: int, cached_tokens: int) -> None:
        """Take in what a replica says was cached, where it says so at all: where it had nothing of what
        it was sent it was started again, and all is forgotten."""
        if cached_tokens:
            self._tells = True
        elif self._tells and expected_tokens:
            self._blocks.clear()


def prompt_of(request: CallRequest, block_tokens: int) -> Prompt:
    """Return a call's prompt as a chain of blocks."""
    return chained(request_content.texts(request), block_tokens)


def chained(texts: Iterable[str], block_tokens: int) -> Prompt:
    """Return texts, one after the other, as a chain of blocks; a token is taken as 4 characters.

    Equal beginnings give equal blocks; the last, shorter block is left out, for nobody can share it.
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
    """Return how many calls a replica may have at most, by those that each replica has."""
    return CROWDED_FACTOR * (sum(calls) / max(len(calls), 1) + 1)
