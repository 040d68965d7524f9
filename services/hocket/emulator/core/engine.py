"""An engine's timing: which jobs wait, prefill or decode, and when each gets its tokens.

States of a job: waiting -> prefilling -> decoding -> finished; it may be cancelled in any of them.
A job without output (embeddings) finishes with its prefill. A closed engine (cold) keeps its jobs
waiting.

The time is passed in and never goes back. The only error is a full queue.
"""

from collections import OrderedDict
from collections.abc import Iterator

from hocket.emulator.core.batch import Batch
from hocket.emulator.core.job import Event, Finished, Job
from hocket.emulator.core.prefill import Prefill
from hocket.emulator.core.prefix_cache import PrefixCache
from hocket.emulator.core.profile import EngineProfile
from hocket.schemas.errors import ErrorClass, HocketError


class EngineFull(HocketError):
    """The engine already has {waiting} requests waiting and takes no more."""

    code = "engine_full"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class Engine:
    """One engine. Call `advance` at the time of `next_event_ms`, and before every query."""

    def __init__(self, profile: EngineProfile, *, now_ms: float, is_open: bool = True) -> None:
        self.cache = PrefixCache(profile.cache_blocks)
        self._profile = profile
        self._now_ms = now_ms
        self._open = is_open
        self._waiting: OrderedDict[str, Job] = OrderedDict()
        self._admitted: OrderedDict[str, Job] = OrderedDict()
        self._prefill = Prefill(profile, self.cache)
        self._batch = Batch(profile)

    @property
    def waiting(self) -> int:
        """The number of jobs not in the batch yet."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """The number of jobs in the batch: prefilling, decoding, or admitted to do so."""
        return len(self._admitted) + (self._prefill.job is not None) + len(self._batch)

    @property
    def tokens_held(self) -> int:
        """The number of tokens of the running jobs, including those they will generate."""
        jobs = [*self._admitted.values(), *self._batch.jobs()]
        if self._prefill.job is not None:
            jobs.append(self._prefill.job)
        return sum(job.prompt_tokens + job.output_tokens for job in jobs)

    def submit(self, job: Job, now_ms: float) -> list[Event]:
        """Add a job, or raise EngineFull; return the events up to now."""
        events = self.advance(now_ms)
        must_wait = not self._open or self.running >= self._profile.max_running
        if must_wait and len(self._waiting) >= self._profile.max_waiting:
            raise EngineFull(waiting=len(self._waiting), component="engine")
        self._waiting[job.job_id] = job
        return [*events, *self.advance(now_ms)]

    def cancel(self, job_id: str, now_ms: float) -> tuple[int, list[Event]]:
        """Drop a job; return the tokens it was given, and the events up to now."""
        events = self.advance(now_ms)
        emitted = self.emitted(job_id)
        self._waiting.pop(job_id, None)
        self._admitted.pop(job_id, None)
        self._prefill.drop(job_id)
        self._batch.drop(job_id)
        return emitted, [*events, *self.advance(now_ms)]

    def open(self, now_ms: float) -> list[Event]:
        """Begin or resume serving."""
        events = self.advance(now_ms)
        self._open = True
        return [*events, *self.advance(now_ms)]

    def close(self, now_ms: float) -> list[Event]:
        """Start no more jobs, and clear the prefix cache."""
        events = self.advance(now_ms)
        self._open = False
        self.cache.clear()
        return events

    def advance(self, now_ms: float) -> list[Event]:
        """Advance the time and return the events, in order."""
        events: list[Event] = []
        self._admit(self._now_ms)
        while (at_ms := self.next_event_ms()) is not None and at_ms <= now_ms:
            self._pass(at_ms)
            events += self._happen(at_ms)
            self._admit(at_ms)
        if now_ms > self._now_ms:
            self._pass(now_ms)
        return events

    def next_event_ms(self) -> float | None:
        """Return when the next prompt or job will be done; None if nothing is running."""
        times = [] if self._prefill.job is None else [self._prefill.ends_ms]
        if (left_ms := self._batch.ends_in_ms()) is not None:
            times.append(self._now_ms + left_ms)
        return max(min(times), self._now_ms) if times else None

    def emitted(self, job_id: str) -> int:
        """Return the tokens that a decoding job has been given, as of the last `advance`."""
        return self._batch.emitted(job_id)

    def next_token_ms(self, job_id: str) -> float | None:
        """Return when a decoding job gets its next token at the current rate; None if it has all
        its tokens or is not decoding."""
        in_ms = self._batch.next_token_in_ms(job_id)
        return None if in_ms is None else self._now_ms + in_ms

    def _admit(self, now_ms: float) -> None:
        while self._open and self._waiting and self.running < self._profile.max_running:
            job_id, job = self._waiting.popitem(last=False)
            self._admitted[job_id] = job
        if self._prefill.job is None and self._admitted:
            _, job = self._admitted.popitem(last=False)
            self._prefill.begin(job, now_ms)

    def _happen(self, at_ms: float) -> Iterator[Event]:
        job = self._prefill.job
        if job is None or self._prefill.ends_ms > at_ms:
            yield Finished(self._batch.pop_ended(), at_ms)
            return
        yield self._prefill.end(job, at_ms)
        if job.output_tokens <= 1:
            yield Finished(job.job_id, at_ms)
        else:
            self._batch.add(job)

    def _pass(self, now_ms: float) -> None:
        self._batch.let_pass(now_ms - self._now_ms)
        self._now_ms = now_ms
