"""Event streams as data: what is requested, where the stream continues, what an event says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hocket.client.requests import ApiRequest, path_of, read_answer
from hocket.schemas.administration.live import LiveEnd, RunNotice
from hocket.schemas.rest import RunResult, StepDetail

OK = 200
MAX_EVENT_BYTES = 256 * 1024 * 1024
"""The limit on one event: the result of a run may have tens of megabytes."""
LAGGED, RESET = "lagged", "reset"


@dataclass(frozen=True, slots=True)
class RunStream:
    """The stream of one run, or of a list of runs. `kinds`: the types of its events."""

    path: str
    kinds: Mapping[str, Any]
    query: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_run(cls, run_id: str) -> "RunStream":
        """Return the stream of a run: its steps, and its end."""
        kinds = {"step": StepDetail, "run": RunResult}
        return cls(path_of("runs", run_id, "events"), kinds)

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


def read_event(stream: RunStream, url: str, event: str, data: str) -> Any:
    """Return what an event says, or None if it is of no use to a caller. Raises AnswerUnreadable."""
    kind = stream.kinds.get(event)
    return None if kind is None or not data else read_answer(kind, url, OK, data.encode())
