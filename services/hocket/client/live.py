"""Event streams as data: what is requested, where the stream continues, what an event says."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from time import monotonic
from typing import Any

import httpx2

from hocket.client.requests import MAX_TRIES, ApiRequest, path_of, read_answer
from hocket.schemas.administration.bulk import BulkReceipt
from hocket.schemas.administration.live import LiveEnd, RunNotice
from hocket.schemas.rest import RunReceipt, RunResult, StepDetail

OK = 200
NOT_FOUND = 404
APPEAR_S = 600.0
"""How long a run may be unknown after its task was taken: tasks wait while coordinators are busy."""
APPEAR_PAUSE_S = 0.5
MAX_TAKEN = 10_000
RECONNECT_S = 60.0
"""How long a stream that broke is tried again: REST may be restarted meanwhile."""
MAX_EVENT_BYTES = 256 * 1024 * 1024
"""The limit on one event: the result of a run may have tens of megabytes."""
LIMITS = httpx2.Limits(max_connections=2_048, max_keepalive_connections=20)
"""As many connections as a REST process has places for clients that follow runs: each run that is
waited for takes one."""
LAGGED, RESET = "lagged", "reset"


class Unread:
    """An event whose data nobody needs."""


@dataclass(frozen=True, slots=True)
class RunStream:
    """The stream of one run, or of a list of runs. `kinds`: the types of its events."""

    path: str
    kinds: Mapping[str, Any]
    query: Mapping[str, Any] = field(default_factory=dict)
    appears_until_s: float = 0.0
    """Until when the run may still be unknown (`monotonic`)."""

    @classmethod
    def of_run(cls, run_id: str, appears_until_s: float = 0.0) -> "RunStream":
        """Return the stream of a run: its steps, and its end."""
        kinds = {"step": StepDetail, "run": RunResult}
        return cls(path_of("runs", run_id, "events"), kinds, appears_until_s=appears_until_s)

    def to_end(self) -> "RunStream":
        """Return the stream of the same run without its steps, and without the result in its end."""
        return replace(self, kinds={"run": Unread})

    @classmethod
    def of_list(cls, query: Mapping[str, Any]) -> "RunStream":
        """Return the stream of the runs that match `query`."""
        kinds = {"run": RunNotice, RESET: LiveEnd}
        return cls(path_of("runs", "events"), kinds, query)

    def request(self, last: "LastEvent") -> ApiRequest:
        """Return the request for what comes after the last event."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": last.id}
        return ApiRequest(
            method="GET", path=self.path, query=self.query, headers=headers, may_repeat=True
        )

    def may_appear(self, status: int | None) -> bool:
        """Tell whether the run of a refused request was taken so recently that it may still appear."""
        return status == NOT_FOUND and monotonic() < self.appears_until_s


class TakenRuns:
    """The latest runs whose tasks a client submitted. The API knows a run once a coordinator has stored
    it."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}
        self._lock = Lock()

    def note(self, answer: Any) -> None:
        """Remember the runs of an answer, if it has taken tasks."""
        if not isinstance(answer, RunReceipt | BulkReceipt):
            return
        tasks = answer.runs if isinstance(answer, BulkReceipt) else (answer,)
        with self._lock:
            for task in tasks:
                if task.run_id is not None:
                    self._until_s[task.run_id] = monotonic() + APPEAR_S
                if len(self._until_s) > MAX_TAKEN:
                    del self._until_s[next(iter(self._until_s))]

    def stream(self, run_id: str) -> RunStream:
        """Return the stream of a run."""
        return RunStream.of_run(run_id, self._until_s.get(run_id, 0.0))


@dataclass(slots=True)
class Tries:
    """The attempts at a stream since its latest event. The first connection is tried as often as any
    request."""

    count: int = 0
    _was_heard: bool = False
    _until_s: float = 0.0

    def heard(self) -> None:
        """Note an event."""
        self.count, self._was_heard = 0, True

    def after_break(self) -> int:
        """Return how many attempts count, after one that broke or failed."""
        if self._was_heard:
            self._until_s, self._was_heard = monotonic() + RECONNECT_S, False
        counted = max(self.count, 1)
        return min(counted, MAX_TRIES - 1) if monotonic() < self._until_s else counted


@dataclass(slots=True)
class LastEvent:
    """The position after which a stream continues when it is reconnected; None: from now on."""

    id: str | None = None

    def note(self, event: str, event_id: str) -> None:
        """Remember the position of an event; a reset clears it."""
        if event == RESET:
            self.id = None
        elif event_id:
            self.id = event_id


def read_event(
    stream: RunStream, url: str, event: str, data: str, *, in_thread: bool = False
) -> Any:
    """Return what an event says, or None if it is of no use to a caller. `in_thread`: let other threads
    run meanwhile. Raises AnswerUnreadable."""
    kind = stream.kinds.get(event)
    if kind is None or not data:
        return None
    if kind is Unread:
        return Unread()
    return read_answer(kind, url, OK, data.encode(), in_thread=in_thread)
