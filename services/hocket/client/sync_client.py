"""The client without asyncio, made from `async_client.py` (`make docs`)."""

import os
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from decimal import Decimal
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import httpx2

from hocket.client.errors import (
    AnswerUnreadable,
    ApiUnreachable,
    RequestRefused,
    RunNotSucceeded,
)
from hocket.client.live import (
    APPEAR_PAUSE_S,
    LIMITS,
    MAX_EVENT_BYTES,
    OK,
    LastEvent,
    RunStream,
    TakenRuns,
    Tries,
    Unread,
    Wait,
    read_event,
)
from hocket.client.owners import Owner, owner
from hocket.client.requests import (
    ApiRequest,
    cancelled_before,
    checked_url,
    identity_headers,
    may_have_worked,
    pause_s,
    read_answer,
)
from hocket.client.sync_resources import Resources
from hocket.schemas.administration.live import LiveEnd, RunNotice
from hocket.schemas.rest import RunDetail, RunResult, StepDetail

API_ENV, KEY_ENV, TENANT_ENV = "HOCKET_API_URL", "HOCKET_API_KEY", "HOCKET_TENANT"
DEFAULT_URL = "http://127.0.0.1:8080"
CONNECT_S = 10.0
QUIET_S = 60.0
"""A stream of events sends at least a comment every 15 s."""
SUCCEEDED = ("succeeded", "degraded")
FAILURES = (RequestRefused, ApiUnreachable, AnswerUnreadable)


class Hocket(Resources):
    """The REST API of one platform, used with one key. `url`, `key` and `tenant` default to
    HOCKET_API_URL, HOCKET_API_KEY and HOCKET_TENANT; name a tenant only with a key of all tenants. Use
    it as a context manager, or call `close`. Raises InvalidInput for a URL, a key or a tenant that is
    of no use.

    Every call raises RequestRefused with the API's error, ApiUnreachable if there was no answer, or
    AnswerUnreadable. If an answer is lost, requests that are safe to repeat are retried: reads, tasks,
    which always have an idempotency key, and cancellations.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        tenant: str | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        key = key or os.environ.get(KEY_ENV)
        url = url or os.environ.get(API_ENV) or DEFAULT_URL
        self.url = checked_url(url, has_key=bool(key))
        headers = identity_headers(key, tenant or os.environ.get(TENANT_ENV))
        self._new_http = partial(httpx2.Client, headers=headers, transport=transport, limits=LIMITS)
        self._http = self._new_http()
        self._owner: Owner | None = None
        self._taken = TakenRuns()
        super().__init__(self._send)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connections().close()

    def run(
        self,
        pipeline: str,
        input: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        deadline_ms: float | None = None,
        priority: Literal["interactive", "standard", "batch"] | None = None,
        budget_usd: Decimal | str | float | None = None,
        version: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> RunDetail:
        """Submit a task and wait until its run ends, however long that takes. Raises RunNotSucceeded if
        the run did not succeed."""
        taken = self.runs.submit(
            pipeline,
            input=input,
            idempotency_key=idempotency_key,
            deadline_ms=deadline_ms,
            priority=priority,
            budget_usd=budget_usd,
            version=version,
            labels=labels,
        )
        return self.result(taken.run_id)

    def result(self, run_id: str) -> RunDetail:
        """Wait until a run ends. Raises RunNotSucceeded if it did not succeed."""
        wait = Wait()
        while (run := self._ended(run_id, wait)) is None:
            pause = wait.next_round_s()
            time.sleep(pause)
        if run.status not in SUCCEEDED:
            raise RunNotSucceeded(run)
        return run

    def follow(self, run_id: str) -> Generator[StepDetail | RunResult, None, None]:
        """Yield the steps of a run, first as they are now and then as they change, and finally its
        result. A lost connection is restored; a step may then be repeated."""
        for event in self._events(self._taken.stream(run_id), Tries()):
            if isinstance(event, StepDetail | RunResult):
                yield event
            if isinstance(event, RunResult):
                return

    def follow_all(
        self,
        *,
        pipeline: str | None = None,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Generator[RunNotice | LiveEnd, None, None]:
        """Yield each matching run that is accepted or ends, from now on and without end. A lost
        connection is restored, and what was missed is delivered. If that is impossible, a LiveEnd says
        so: reload what you show."""
        query = {"pipeline": pipeline, "status": status, "labels": labels}
        for event in self._events(RunStream.of_list(query), Tries()):
            if isinstance(event, RunNotice | LiveEnd):
                yield event

    def _ended(self, run_id: str, wait: Wait) -> RunDetail | None:
        """Wait until a run ends; None if it is not known to have ended, and the API has no place for a
        stream."""
        stream = self._taken.stream(run_id).to_end()
        try:
            with closing(self._events(stream, wait)) as events:
                for _ in events:
                    break
        except FAILURES as error:
            if not wait.goes_on_after(error, stream):
                raise
        try:
            run = self.runs.get(run_id)
        except FAILURES as error:
            if wait.goes_on_after(error, stream):
                return None
            raise
        wait.answered()
        return None if wait.is_full and run.finished_at is None else run

    def _connections(self) -> httpx2.Client:
        """Return the HTTP client, a new one if the connections of this one belong to others."""
        current = owner()
        if self._owner not in (None, current):
            self._http = self._new_http()
        self._owner = current
        return self._http

    def _send(self, request: ApiRequest, kind: Any) -> Any:
        """Send a request, retrying if that is safe; return its answer as a `kind`."""
        tries, was_lost = 0, False
        while True:
            tries += 1
            status, retry_after, failure = None, None, None
            try:
                answer = self._connections().request(
                    request.method,
                    self.url + request.url,
                    headers=request.sent_headers(),
                    content=request.content(),
                    timeout=httpx2.Timeout(request.timeout_s, connect=CONNECT_S),
                )
                status, retry_after = answer.status_code, answer.headers.get("retry-after")
            except httpx2.RequestError as error:
                failure = error
            wait_s = pause_s(request, tries, status, retry_after)
            if wait_s is None:
                break
            was_lost = was_lost or may_have_worked(status, failure)
            time.sleep(wait_s)
        if status is None:
            raise ApiUnreachable(url=self.url, reason=str(failure) or type(failure).__name__)
        try:
            value = read_answer(kind, self.url, status, answer.content)
        except RequestRefused as error:
            value = cancelled_before(request, was_lost, error.error)
            if value is None:
                raise
        self._taken.note(value)
        return value

    def _events(
        self, stream: RunStream, tries: Tries
    ) -> Generator[StepDetail | RunResult | RunNotice | LiveEnd | Unread, None, None]:
        """Yield the events of a stream, reconnecting as often as necessary."""
        last = LastEvent()
        while True:
            tries.count += 1
            request = stream.request(last)
            status, retry_after, body, reason = None, None, b"", "the stream ended"
            try:
                with self._connections().stream(
                    "GET",
                    self.url + request.url,
                    headers=request.sent_headers(),
                    timeout=httpx2.Timeout(QUIET_S, connect=CONNECT_S),
                ) as answer:
                    status, retry_after = answer.status_code, answer.headers.get("retry-after")
                    if status == OK:
                        for sent in httpx2.EventSource(answer, MAX_EVENT_BYTES):
                            tries.heard()
                            last.note(sent.event, sent.id)
                            event = read_event(stream, self.url, sent.event, sent.data)
                            if event is not None:
                                yield event
                        status = None
                    else:
                        body = answer.read()
            except httpx2.SSEError as error:  # the next stream would be the same
                raise AnswerUnreadable(url=self.url, status=OK, reason=str(error)) from error
            except httpx2.RequestError as error:
                status, reason = None, str(error) or type(error).__name__
            wait_s = tries.pause_s(request, status, retry_after, body)
            if stream.may_appear(status):
                wait_s, tries.count = APPEAR_PAUSE_S, 0
            if wait_s is None:
                if status is None:
                    raise ApiUnreachable(url=self.url, reason=reason)
                read_answer(None, self.url, status, body)
                return
            time.sleep(wait_s)
