"""The outcome and metered usage of every request to an engine, to compare with a ledger."""

import time
from collections import deque
from typing import Any

from aiohttp import web

from hocket.emulator.metrics import EngineMetrics
from hocket.emulator.serving import RunningJob


class Journal:
    """The latest requests of an engine; `name` is used in the ids of requests that bring none."""

    def __init__(self, metrics: EngineMetrics, name: str, max_entries: int) -> None:
        self._metrics = metrics
        self._name = name
        self._entries: deque[dict[str, Any]] = deque(maxlen=max_entries)
        self.requests = 0
        """The number of all requests so far."""

    def entries(self) -> list[dict[str, Any]]:
        return list(self._entries)

    def open(self, request: web.Request) -> dict[str, Any]:
        """Open an entry for a request."""
        self.requests += 1
        entry: dict[str, Any] = {
            "request_id": request.headers.get("X-Request-Id")
            or f"emu-{self._name}-{self.requests}",
            "path": request.path,
            "asked_at_s": time.time(),
            "ended_at_s": None,
            "status": "cancelled",
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "cached_tokens": 0,
        }
        self._entries.append(entry)
        return entry

    def note(self, entry: dict[str, Any], job: RunningJob, reason: str) -> None:
        """Record what a job used, however it ended."""
        entry["ended_at_s"] = time.time()
        entry["completion_tokens"] = job.emitted
        if job.prefilled_ms is not None:
            entry["prompt_tokens"] = job.job.prompt_tokens
            entry["cached_tokens"] = job.cached_tokens
        if job.finished_ms is None:
            self._metrics.aborted(job)
        else:
            self._metrics.finished(job, reason)
