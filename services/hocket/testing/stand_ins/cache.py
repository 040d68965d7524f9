"""The step cache of a play: in memory, with its claims, by the coordinator's own rule."""

from dataclasses import dataclass, field, replace

from hocket.coordinator.core.reuse.cache_entry import Claim, Entry, Verdict, verdict
from hocket.coordinator.core.run.commands import FillCache, LookUpCache, ReleaseCache
from hocket.schemas.messages import CacheAnswered


@dataclass(slots=True)
class _Known:
    """What is known under a key: its entry, the output in it, and the steps that wait for one."""

    entry: Entry = field(default_factory=Entry)
    filled: FillCache | None = None
    waiting: dict[tuple[str, str], LookUpCache] = field(default_factory=dict)


class PlayedCache:
    """Outputs by key, and which steps are computing the missing ones."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def answers(
        self, command: LookUpCache | FillCache | ReleaseCache, now_ms: float
    ) -> list[CacheAnswered]:
        """Carry out a command to the cache, and return its answers to steps."""
        known = self._known.setdefault(command.key, _Known())
        if isinstance(command, LookUpCache):
            return _look_up(known, command, now_ms)
        if isinstance(command, FillCache):
            return _fill(known, command, now_ms)
        return _release(known, command)


def _look_up(known: _Known, ask: LookUpCache, now_ms: float) -> list[CacheAnswered]:
    """Answer a step, unless another one is computing the same output."""
    told = verdict(known.entry, run_id=ask.run_id, step=ask.step, ttl_ms=ask.ttl_ms, now_ms=now_ms)
    if told is Verdict.WAIT:
        known.waiting[ask.run_id, ask.step] = ask
        return []
    if told is Verdict.HIT:
        assert known.filled is not None, ask.key
        return [_hit(ask, known.filled)]
    return [_claimed(known, ask)]


def _fill(known: _Known, fill: FillCache, now_ms: float) -> list[CacheAnswered]:
    """Store an output, and answer the steps that wait for it."""
    known.filled = fill
    known.entry = Entry(now_ms, now_ms + fill.ttl_ms)
    waiting, known.waiting = known.waiting, {}
    return [_hit(ask, fill) for ask in waiting.values()]


def _release(known: _Known, release: ReleaseCache) -> list[CacheAnswered]:
    """Let the first waiting step compute, if the one that did has given up."""
    who = (release.run_id, release.step)
    known.waiting.pop(who, None)
    claim = known.entry.claim
    if claim is None or (claim.run_id, claim.step) != who:
        return []
    if known.waiting:
        return [_claimed(known, next(iter(known.waiting.values())))]
    known.entry = replace(known.entry, claim=None)
    return []


def _claimed(known: _Known, ask: LookUpCache) -> CacheAnswered:
    """Claim an entry for a step, and tell it to compute."""
    known.waiting.pop((ask.run_id, ask.step), None)
    claim = Claim(ask.run_id, ask.step, ask.claim_until_ms)
    known.entry = replace(known.entry, claim=claim)
    return CacheAnswered(run_id=ask.run_id, step=ask.step, key=ask.key, hit=False)


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
