"""The prompt that an engine is computing, one at a time, apart from its cached prefix."""

from hocket.emulator.core.job import Job, Prefilled
from hocket.emulator.core.prefix_cache import PrefixCache
from hocket.emulator.core.profile import EngineProfile


class Prefill:
    """The job whose prompt is being computed (None if there is none), and when that will be done."""

    def __init__(self, profile: EngineProfile, cache: PrefixCache) -> None:
        self.job: Job | None = None
        self.ends_ms = 0.0
        self._profile = profile
        self._cache = cache
        self._cached_tokens = 0

    def begin(self, job: Job, now_ms: float) -> None:
        """Begin to compute a job's prompt."""
        self.job = job
        self._cached_tokens = self._cached_tokens_of(job)
        uncached = job.prompt_tokens - self._cached_tokens
        self.ends_ms = now_ms + uncached * 1000 / self._profile.prefill_tokens_per_s

    def drop(self, job_id: str) -> None:
        """Stop if it is this job's prompt."""
        if self.job is not None and self.job.job_id == job_id:
            self.job = None

    def end(self, job: Job, at_ms: float) -> Prefilled:
        """Cache the prompt's prefixes; return the event."""
        self.job = None
        self._cache.keep(job.chain)
        return Prefilled(job.job_id, at_ms, self._cached_tokens)

    def _cached_tokens_of(self, job: Job) -> int:
        """Return the cached tokens of a prompt.

        The last token is always computed, because its logits give the first output.
        """
        found = self._cache.longest_prefix(job.chain) * self._profile.block_tokens
        return max(min(found, job.prompt_tokens - 1), 0)
