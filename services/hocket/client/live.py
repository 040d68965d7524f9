"""Event streams as data: what is requested, where the stream continues, what an event says."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from time import monotonic
from typing import Any, ClassVar

import httpx2
from pydantic import ValidationError

from hocket.client.errors import RequestRefused
from hocket.client.requests import (
    LOST,
    MAX_PAUSE_S,
    MAX_TRIES,
    TOO_MANY,
    ApiRequest,
    path_of,
    pause_s,
    read_answer,
)
from hocket.schemas.administration.bulk import BulkReceipt
from hocket.schemas.administration.live import LiveEnd, RunNotice
from hocket.schemas.errors import HocketError
from hocket.schemas.rest import ErrorReply, RunReceipt, RunResult, StepDetail

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
"""Each run that is waited for takes a connection, as long as a REST process has a place for it."""
LAGGED, RESET = "lagged", "reset"
FULL = ("live_full", "tenant_live_full")
"""The errors of a stream for which a REST process has no place: it has 2,048, half of them for each
tenant."""
API_FULL = "api_full"
"""The error of any request while a REST process handles as many as it can."""
FULL_PAUSE_S = 1.0
"""How long to wait, at first, before a stream without a place is asked for again."""


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
    looks_instead: ClassVar[bool] = False
    """Whether the caller looks at the run itself while there is no place for the stream."""
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

    def pause_s(
        self, request: ApiRequest, status: int | None, retry_after: str | None, body: bytes
    ) -> float | None:
        """Return how long to wait before the next attempt, or None not to make one. `body` is that of
        a refusal."""
        if self.looks_instead and _has_no_place(body):
            return None
        return pause_s(request, self.after_break(), status, retry_after)


@dataclass
class Wait(Tries):
    """The attempts of a wait for the end of a run. While the API has no place for its stream
    (`is_full`), there are rounds: the stream is tried once, then the run itself is looked at."""

    looks_instead: ClassVar[bool] = True
    is_full: bool = False
    _rounds: int = 0
    _good_until_s: float = 0.0

    def heard(self) -> None:
        """Note an event: there is a place."""
        super().heard()
        self.is_full, self._rounds = False, 0

    def pause_s(
        self, request: ApiRequest, status: int | None, retry_after: str | None, body: bytes
    ) -> float | None:
        """Return how long to wait before the next attempt of a round, or None not to make one."""
        if self.is_full:
            return None
        return super().pause_s(request, status, retry_after, body)

    def next_round_s(self) -> float:
        """Begin another round; return how long to wait before it."""
        self.count, self._rounds = 0, self._rounds + 1
        return full_pause_s(self._rounds - 1)

    def answered(self) -> None:
        """Note that the API works."""
        self._good_until_s = monotonic() + RECONNECT_S

    def goes_on_after(self, error: HocketError, stream: RunStream) -> bool:
        """Tell whether to look again later after a failure: if there is no place, and from then on also
        if the API is too busy, does not know the run yet, or is away for at most RECONNECT_S."""
        status = error.status if isinstance(error, RequestRefused) else error.fields.get("status")
        code = error.fields.get("code")
        if code in FULL and not self.is_full:
            self.is_full = True
        if not self.is_full:
            return False
        if status == TOO_MANY or code in (*FULL, API_FULL) or stream.may_appear(status):
            self.answered()
            return True
        return status in (None, *LOST) and monotonic() < self._good_until_s


def _has_no_place(body: bytes) -> bool:
    try:
        return ErrorReply.model_validate_json(body).error.code in FULL
    except ValidationError:
        return False


def full_pause_s(rounds: int) -> float:
    """Return how long to wait before a stream for which there was no place is asked for again."""
    longest_s: float = min(MAX_PAUSE_S, FULL_PAUSE_S * 2 ** min(rounds, 10))
    return random.uniform(0.5, 1.0) * longest_s


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
