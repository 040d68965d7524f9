"""The step cache of a play: in memory, with its claims."""

from dataclasses import dataclass, field

from hocket.coordinator.core.run.commands import FillCache, LookUpCache, ReleaseCache
from hocket.schemas.messages import CacheAnswered


@dataclass(slots=True)
class _Claim:
    holder: tuple[str, str]
    until_ms: float
    waiting: list[LookUpCache] = field(default_factory=list)


class PlayedCache:
    """Outputs by key, and which steps are computing the missing ones."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[FillCache, float]] = {}
        self._claims: dict[str, _Claim] = {}

    def answers(
        self, command: LookUpCache | FillCache | ReleaseCache, now_ms: float
    ) -> list[CacheAnswered]:
        """Carry out a command to the cache, and return its answers to steps."""
        if isinstance(command, LookUpCache):
            return self._look_up(command, now_ms)
        if isinstance(command, FillCache):
            return self._fill(command, now_ms)
        return self._release(command)

    def _look_up(self, ask: LookUpCache, now_ms: float) -> list[CacheAnswered]:
        """Answer a step, unless another one is computing the same output."""
        kept = self._kept.get(ask.key)
        if kept is not None and kept[1] > now_ms:
            return [_hit(ask, kept[0])]
        claim = self._claims.get(ask.key)
        if claim is not None and claim.holder != (ask.run_id, ask.step) and claim.until_ms > now_ms:
            claim.waiting.append(ask)
            return []
        self._claims[ask.key] = _Claim((ask.run_id, ask.step), ask.claim_until_ms)
        return [CacheAnswered(run_id=ask.run_id, step=ask.step, key=ask.key, hit=False)]

    def _fill(self, fill: FillCache, now_ms: float) -> list[CacheAnswered]:
        """Store an output, and answer the steps that wait for it."""
        self._kept[fill.key] = (fill, now_ms + fill.ttl_ms)
        claim = self._claims.pop(fill.key, None)
        return [] if claim is None else [_hit(ask, fill) for ask in claim.waiting]

    def _release(self, release: ReleaseCache) -> list[CacheAnswered]:
        """Let the first waiting step compute, because the one that did has given up."""
        claim = self._claims.get(release.key)
        if claim is None:
            return []
        who = (release.run_id, release.step)
        claim.waiting = [ask for ask in claim.waiting if (ask.run_id, ask.step) != who]
        if claim.holder != who:
            return []
        del self._claims[release.key]
        if not claim.waiting:
            return []
        first, *others = claim.waiting
        self._claims[release.key] = _Claim((first.run_id, first.step), first.claim_until_ms, others)
        return [CacheAnswered(run_id=first.run_id, step=first.step, key=first.key, hit=False)]


def _hit(ask: LookUpCache, fill: FillCache) -> CacheAnswered:
    return CacheAnswered(
        run_id=ask.run_id,
        step=ask.step,
        key=ask.key,
        hit=True,
        output=fill.output,
        computed_by_run=fill.run_id,
        computed_by_step=fill.step,
        saved_usd=fill.cost_usd,
    )
