"""Hears how runs end, for callers that wait for one that somebody else may have started.

The ends of a pipeline are subscribed to once, however many callers wait. An end is handed over by the
run's id in its headers, so that an end for which nobody waits is not parsed. There are no more callers
than requests that the process handles at once (`MAX_REQUESTS` in `requests/request_limit.py`).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nats.aio.subscription import Subscription

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.cloudevents import SUBJECT
from hocket.kit.nats.protocol import RawMessage, header_of
from hocket.schemas import subjects
from hocket.schemas.messages import RunFinished

_SUBJECT = SUBJECT.encode()


class PublicEnds:
    """The callers of one event loop that wait for ends, by pipeline."""

    def __init__(self) -> None:
        self._pipelines: dict[str, _Pipeline] = {}

    @asynccontextmanager
    async def hearing(
        self, bus: Bus, tenant: str, pipeline: str, run_id: str, end: asyncio.Future[RunFinished]
    ) -> AsyncIterator[None]:
        """Resolve `end` when the run ends while the block lasts. The subscription reaches the server
        before the block begins. Raises the errors of NATS' client."""
        subject = subjects.event(tenant, pipeline, RunFinished.kind)
        heard = self._pipelines.get(subject)
        if heard is None:
            heard = self._pipelines[subject] = _Pipeline(bus, subject)
        heard.add(run_id, end)
        try:
            await asyncio.shield(heard.opened)
            yield
        finally:
            heard.remove(run_id, end)
            if not heard.waiting:
                del self._pipelines[subject]
                await asyncio.shield(asyncio.ensure_future(heard.close()))


class _Pipeline:
    """The subscription to a pipeline's ends, and the callers that wait, by run."""

    def __init__(self, bus: Bus, subject: str) -> None:
        self.waiting: dict[str, list[asyncio.Future[RunFinished]]] = {}
        self.opened: asyncio.Task[Subscription] = asyncio.create_task(
            bus.subscribe_raw(subject, self._heard), name="public-ends"
        )

    def add(self, run_id: str, end: asyncio.Future[RunFinished]) -> None:
        """Let a caller wait for a run."""
        self.waiting.setdefault(run_id, []).append(end)

    def remove(self, run_id: str, end: asyncio.Future[RunFinished]) -> None:
        """Let it wait no longer."""
        ends = self.waiting[run_id]
        ends.remove(end)
        if not ends:
            del self.waiting[run_id]

    async def close(self) -> None:
        """End the subscription, once it has begun; one that failed has been reported to the callers."""
        await asyncio.wait({self.opened})
        if self.opened.exception() is None:
            await self.opened.result().unsubscribe()

    def _heard(self, message: RawMessage) -> None:
        if header_of(message.head, _SUBJECT) not in self.waiting:
            return
        finished = RunFinished.model_validate_json(message.data)
        for end in self.waiting.get(finished.run_id, ()):
            if not end.done():
                end.set_result(finished)
