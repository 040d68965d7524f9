"""The reply of a call: who is told it, whether its run is charged, and how long a repeat gets it."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import structlog

from hocket.gateway.accounting.run_charges import is_charged_when_booked
from hocket.gateway.backends.large_work import beside
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.calls.call_key import CallKey, digest
from hocket.gateway.core.calls.reply_cache import MAX_AGE_MS, MAX_BYTES, RecentReplies, size_bytes
from hocket.gateway.core.calls.request_content import PREFILL
from hocket.gateway.core.protocols.json_size import MAX_VALUES
from hocket.kit.process import clock
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallReply, CallRequest

MAX_QUESTIONS = 4
"""The most replies remembered to different questions under one key."""
MAX_KEY_BYTES = MAX_BYTES // 4
"""Beyond it, one key has only its latest reply."""
LAST_MOMENT_MS = 50.0
"""An error that comes this shortly before the deadline of its call may find its caller gone."""

Tell = Callable[[CallReply], None]
Told = asyncio.Future[CallReply]

log = structlog.get_logger()


class _Kept(NamedTuple):
    reply: CallReply
    size_bytes: int
    kept_ms: float


class RememberedReplies:
    """The replies of recent calls, for those who ask the same again. A step whose workers asked
    different things under one key has several."""

    def __init__(self) -> None:
        self._recent: RecentReplies[dict[str, _Kept]] = RecentReplies()
        """By call key; the replies of one by question, the latest last."""

    async def keep(
        self, request: CallRequest, reply: CallReply, question: str | None, *, replaces: bool = True
    ) -> None:
        """Remember a reply to a question (`digest`), unless its call cannot be told from others of the
        same id, or it is too large. It `replaces` one to the same question, or is not remembered beside
        it."""
        size = None if question is None else await _size_of(reply)
        key, now_ms = CallKey.of(request), clock.now_ms()
        kept = self._of(key, now_ms)
        if question is None or size is None or (question in kept and not replaces):
            return
        kept.pop(question, None)
        kept[question] = _Kept(reply, size, now_ms)
        while len(kept) > 1 and (len(kept) > MAX_QUESTIONS or _bytes_of(kept) > MAX_KEY_BYTES):
            del kept[next(iter(kept))]
        self._recent.keep(key, kept, _bytes_of(kept), now_ms)

    def of(self, request: CallRequest) -> CallReply | None:
        """Return the reply of a call that asked the same as a request; None if there is none."""
        kept = self._of(CallKey.of(request), clock.now_ms())
        found = kept.get(digest(request) or "") if kept else None
        return None if found is None else found.reply

    def find(self, key: CallKey, question: str | None) -> CallReply | None:
        """Return the latest reply of a call; if a `question` is given, the reply to it."""
        kept = self._of(key, clock.now_ms())
        if not kept:
            return None
        found = next(reversed(kept.values())) if question is None else kept.get(question)
        return None if found is None else found.reply

    def _of(self, key: CallKey, now_ms: float) -> dict[str, _Kept]:
        """Return what is remembered under a key, by question."""
        kept = self._recent.find(key, now_ms) or {}
        return {asked: one for asked, one in kept.items() if now_ms - one.kept_ms <= MAX_AGE_MS}


async def _size_of(reply: CallReply) -> int | None:
    """Return the size of a reply, counted in a thread if it holds many values; None if it is larger than
    all that is remembered may be."""
    size = size_bytes(reply)
    if size is None:
        size = await beside(partial(size_bytes, reply, MAX_VALUES))
    return None if size is None or size > MAX_BYTES else size


def _bytes_of(kept: dict[str, _Kept]) -> int:
    return sum(one.size_bytes for one in kept.values())


def is_charged(
    request: CallRequest, reply: CallReply, cancellation: Cancellation, told: Told
) -> bool:
    """Tell whether the run of a call is charged for it, because its caller may not learn the cost."""
    if not reply.cost_usd or request.attribution.run_id is None:
        return False
    if is_charged_when_booked(request.call_id):
        return False
    left_ms = request.deadline_at_ms - clock.now_ms()
    is_late = left_ms <= (0.0 if reply.error is None else LAST_MOMENT_MS)
    return told.done() or cancellation.asked or is_late or request.task == PREFILL


def future_of(reply: CallReply) -> Told:
    """Return a future that has its reply."""
    known: Told = asyncio.get_running_loop().create_future()
    known.set_result(reply)
    return known


def answer(told: Told, reply: CallReply, tell: Tell | None) -> None:
    """Give the caller a reply if it does not have one yet."""
    if told.done():
        return
    told.set_result(reply)
    if tell is not None:
        try:
            tell(reply)
        except Exception:  # the caller asks again and gets the remembered reply
            log.exception("reply_not_told", call_id=reply.call_id)


def join(known: Told, tell: Tell | None, ended: Callable[[], None] | None) -> None:
    """Tell one more caller of a call's reply; nothing of its own request is needed any more."""
    if ended is not None:
        ended()
    if tell is not None:
        known.add_done_callback(lambda made: tell(made.result()))


def let_go(request: CallRequest, told: Told, tell: Tell | None, error: HocketError) -> None:
    """Answer the caller of a stopped call whose reply is still being read."""
    if not told.done():
        log.info("call_read_on", call_id=request.call_id, reason=str(error))
    reply = CallReply(call_id=request.call_id, model=request.model, error=error.info())
    answer(told, reply, tell)
