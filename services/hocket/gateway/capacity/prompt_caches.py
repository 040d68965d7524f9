"""What the prefix cache of each replica is expected to hold."""

from collections.abc import Iterable, Mapping

from hocket.gateway.core.config.table import BackendSpec, RoutingTable
from hocket.gateway.core.routing.locality import Prompt, ReplicaCache


class PromptCaches:
    """The prefix caches of the replicas that have one."""

    def __init__(self, table: RoutingTable) -> None:
        self._caches: dict[str, ReplicaCache] = {}
        self.replace(table)

    @property
    def by_replica(self) -> Mapping[str, ReplicaCache]:
        """The caches, by replica key."""
        return self._caches

    def replace(self, table: RoutingTable) -> None:
        """Use another routing table; unchanged caches keep their contents."""
        before = self._caches
        self._caches = {
            spec.key: known
            if (known := before.get(spec.key)) is not None and known.cache == spec.prefix_cache
            else ReplicaCache(spec.prefix_cache)
            for spec in table.backends()
            if spec.prefix_cache is not None
        }

    def send(self, key: str, prompt: Prompt, now_ms: float) -> int:
        """Record that a prompt is sent to a replica;
        return how many of its tokens should be cached there."""
        cache = self._caches.get(key)
        return 0 if cache is None else cache.send(prompt, now_ms).cached_tokens

    def metered(self, key: str, expected_tokens: int, cached_tokens: int) -> None:
        """Compare the cached tokens a replica reports for a prompt with those expected."""
        cache = self._caches.get(key)
        if cache is not None:
            cache.metered(expected_tokens, cached_tokens)

    def idle(self, key: str) -> None:
        """Record that a replica has no calls."""
        cache = self._caches.get(key)
        if cache is not None:
            cache.idle()

    def most_cached(self, backends: Iterable[BackendSpec], prompt: Prompt, now_ms: float) -> int:
        """Return the number of a prompt's tokens cached at the replica that has the most of it."""
        caches = (self._caches.get(spec.key) for spec in backends)
        fits = [cache.fit(prompt, now_ms) for cache in caches if cache is not None]
        return max((fit.cached_tokens for fit in fits), default=0)
