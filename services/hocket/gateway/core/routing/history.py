"""Recent durations and other samples: quantiles over the last few, per kind of call and per
replica.

A *kind* is who calls what: (model, pipeline, node). A kind with too few samples falls back to its
model as a whole; for an unknown model there is no answer. Memory is bounded by a fixed number of
samples per kind and of kinds; the kind not used for longest is dropped.
"""

import bisect
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

MAX_SAMPLES = 128
MAX_KINDS = 4_096
MAX_JUDGED = 1_024
"""The most kinds of calls at replicas whose silences are known."""
ENOUGH = 8
"""The number of samples from which a quantile is meaningful."""

Key = TypeVar("Key", bound=Hashable)
Kind = tuple[str, str, str]
"""Model, pipeline and node; the last two are empty for the model as a whole."""
Judged = tuple[Kind, str, bool]
"""A kind of call at a replica, and whether it is answered in pieces."""


class Samples:
    """The latest values of something, and their quantiles."""

    __slots__ = ("_recent", "_sorted", "_spread")

    def __init__(self) -> None:
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        self._spread: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        """Add a value, dropping the oldest beyond MAX_SAMPLES."""
        if len(self._recent) == MAX_SAMPLES:
            del self._sorted[bisect.bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(value)
        bisect.insort(self._sorted, value)
        self._spread = None

    def quantile(self, q: float) -> float:
        """Return the smallest value that at least a share `q` of the values does not exceed."""
        assert self._sorted
        rank = int(q * len(self._sorted) + 0.999999)
        return self._sorted[min(max(rank - 1, 0), len(self._sorted) - 1)]

    def values(self) -> list[float]:
        """Return the values, the oldest first."""
        return list(self._recent)

    def spread(self) -> tuple[float, float]:
        """Return the mean and the mean of the squares."""
        if self._spread is None:
            count = len(self._sorted)
            squares = sum(value * value for value in self._sorted)
            self._spread = (sum(self._sorted) / count, squares / count)
        return self._spread


class History(Generic[Key]):
    """Samples by key."""

    def __init__(self, max_keys: int = MAX_KINDS) -> None:
        self._max_keys = max_keys
        self._samples: OrderedDict[Key, Samples] = OrderedDict()

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, key: Key, value: float) -> None:
        """Add a value."""
        samples = self._samples.get(key)
        if samples is None:
            samples = self._samples[key] = Samples()
            if len(self._samples) > self._max_keys:
                self._samples.popitem(last=False)
        else:
            self._samples.move_to_end(key)
        samples.add(value)

    def quantile(self, key: Key, q: float, *, enough: int = 1) -> float | None:
        """Return a quantile of a key's values; None if there are fewer than `enough`."""
        samples = self._samples.get(key)
        return samples.quantile(q) if samples is not None and len(samples) >= enough else None

    def spread(self, key: Key) -> tuple[float, float] | None:
        """Return the mean of a key's values and the mean of their squares; None if there are none."""
        samples = self._samples.get(key)
        return None if samples is None else samples.spread()

    def values(self, key: Key) -> list[float]:
        """Return a key's values, the oldest first."""
        samples = self._samples.get(key)
        return [] if samples is None else samples.values()

    def count(self, key: Key) -> int:
        """Return how many values of a key are known."""
        samples = self._samples.get(key)
        return 0 if samples is None else len(samples)


class CallDurations:
    """How long calls take at their backends, and how long the replicas are silent meanwhile."""

    SLOW_FACTOR = 4.0
    """A silence of this many times the 95th percentile is slow, and so is such a time per piece."""
    LEAST_SLOW_MS = 1_000.0
    LEAST_PACE_MS = 50.0
    """No stream falls behind that needs less than this for a piece: some come in bursts."""
    SLOW_AFTER = 20
    """The number of samples needed before history decides what is slow."""

    def __init__(self) -> None:
        self._by_kind: History[Kind] = History()
        self._by_replica: History[str] = History()
        self._silences: History[Judged] = History(MAX_JUDGED)
        self._silences_of_streams: History[str] = History()
        self._paces: History[tuple[Kind, str]] = History(MAX_JUDGED)

    def add(self, kind: Kind, replica: str, latency_ms: float) -> None:
        """Add the duration of a successful call."""
        self._by_kind.add(kind, latency_ms)
        if kind[1] or kind[2]:
            self._by_kind.add((kind[0], "", ""), latency_ms)
        self._by_replica.add(replica, latency_ms)

    def of_kind(self, kind: Kind, q: float) -> float | None:
        """Return a quantile of the durations of a kind of call; None if unknown."""
        known = self._by_kind.quantile(kind, q, enough=ENOUGH)
        return self._by_kind.quantile((kind[0], "", ""), q) if known is None else known

    def well_known(self, kind: Kind, q: float) -> float | None:
        """Return a quantile of the durations of a kind or, failing that, of its model; None if
        neither has enough samples to tell its tail."""
        known = self._by_kind.quantile(kind, q, enough=self.SLOW_AFTER)
        if known is None:
            known = self._by_kind.quantile((kind[0], "", ""), q, enough=self.SLOW_AFTER)
        return known

    def of_replica(self, replica: str, q: float) -> float | None:
        """Return a quantile of the durations at a replica; None if unknown."""
        return self._by_replica.quantile(replica, q)

    def add_silence(
        self, kind: Kind, replica: str, silent_ms: float, *, in_pieces: bool = False
    ) -> None:
        """Add the longest silence of a replica in a successful call: of one that is not answered
        `in_pieces`, its duration."""
        self._silences.add((kind, replica, in_pieces), silent_ms)
        if in_pieces:
            self._silences_of_streams.add(replica, silent_ms)

    def add_pace(self, kind: Kind, replica: str, pace_ms: float) -> None:
        """Add the time that a replica took for each piece of a successful stream."""
        self._paces.add((kind, replica), pace_ms)

    def slow_ms(self, replica: str, kind: Kind, *, in_pieces: bool = False) -> float | None:
        """Return the silence from which a call of a kind at a replica counts as slow; None if too few
        calls are known.

        It is judged by others of its kind. While too few of them are known, a stream is judged by all
        streams of the replica, and any other call, or a stream where few are known, by the durations
        of all its calls: what a stream is silent says nothing of calls answered in one piece.
        """
        enough = self.SLOW_AFTER
        usual_ms = self._silences.quantile((kind, replica, in_pieces), 0.95, enough=enough)
        if usual_ms is None and in_pieces:
            usual_ms = self._silences_of_streams.quantile(replica, 0.95, enough=enough)
        if usual_ms is None:
            usual_ms = self._by_replica.quantile(replica, 0.95, enough=enough)
        return None if usual_ms is None else max(self.SLOW_FACTOR * usual_ms, self.LEAST_SLOW_MS)

    def slow_pace_ms(self, replica: str, kind: Kind) -> float | None:
        """Return the time per piece from which a stream of a kind at a replica falls behind; None if too
        few are known. Other kinds say nothing: their pieces may be of another size."""
        usual_ms = self._paces.quantile((kind, replica), 0.95, enough=self.SLOW_AFTER)
        return None if usual_ms is None else max(self.SLOW_FACTOR * usual_ms, self.LEAST_PACE_MS)
