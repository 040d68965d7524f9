"""The server-sent event streams for following a run or a list of runs.

States: catching up (events since `Last-Event-ID`, from EVENTS) or looking (the run's current state, from
the database), then live, then ended: the run has ended, the client left or does not read, or the process
stops. Comment lines keep proxies from closing a quiet connection.

`id` is the sequence number of a fact in EVENTS plus the position within that fact. A client that
reconnects with the last id gets everything after it, in order.
"""

import asyncio
from collections.abc import AsyncGenerator

import asyncpg

from hocket.admin.context import Context
from hocket.admin.live.event_facts import PastGone, past_portion
from hocket.admin.live.live_events import ListFilter, Watch
from hocket.admin.live.run_news import RunNews, event, event_of_json, news_of
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.identity import Caller
from hocket.admin.runs import reads
from hocket.admin.runs.content import result_json
from hocket.schemas import subjects
from hocket.schemas.administration.live import LiveEnd
from hocket.schemas.rest import MAX_PAGE

QUIET_S = 15.0
"""A comment is sent after so long without news."""
END_S = 2.0
"""How long to wait for the fact of a run's end that the database already has."""
MAX_CATCH_UP = 100_000
"""Facts reread for one client; a client that missed more starts over."""
QUIET = b": nothing new\n\n"
ENDS = {
    "lagged": LiveEnd(
        reason="Events arrived faster than they were read.",
        cure="Reconnect with `Last-Event-ID`, and read faster or follow less.",
    ),
    "reset": LiveEnd(
        reason="The stream of events has lost its latest events.",
        cure="Reconnect without `Last-Event-ID`, and reload what you show.",
    ),
}
APPLIED = """
SELECT coalesce((SELECT applied_seq FROM hocket.partition p WHERE p.partition = r.partition), 0)
FROM hocket.run r WHERE r.run_id = $1
"""
"""How far the log of the run's partition has been applied."""

Place = tuple[int, int | None]
"""A client's position: a fact's sequence number and the position within the fact, or None if the client
received all of it."""


def parse_event_id(text: str) -> Place:
    """Parse a `Last-Event-ID`."""
    seq, dot, place = text.partition(".")
    return int(seq), int(place) if dot else None


async def follow_list(
    context: Context, caller: Caller, wanted: ListFilter, since: Place | None
) -> AsyncGenerator[bytes, None]:
    """Yield an event for each run that matches `wanted` and is accepted or ends."""
    live = context.live
    with live.place_of(caller.tenant), live.watch_list(caller.tenant, wanted, Watch) as watch:
        if since is None:
            yield _place(watch.position)
        else:
            subject = subjects.event(caller.tenant, wanted.pipeline or "*", "*")
            try:
                async for news in _missed(context, caller.tenant, subject, since, watch):
                    if wanted.wants(news):
                        yield news.notice
            except PastGone as gone:
                yield _reset(gone)
            yield _place(watch.position)
        async for batch in _live(watch):
            yield b"".join(news.notice for news in batch) if batch else QUIET
        if end := ENDS.get(watch.ended or ""):
            yield event(watch.ended or "", end)


async def follow_run(
    context: Context, caller: Caller, run: asyncpg.Record, since: Place | None
) -> AsyncGenerator[bytes, None]:
    """Yield an event for each change of a step, and a last one for the end of the run."""
    live, run_id = context.live, run["run_id"]
    with live.place_of(caller.tenant), live.watch_run(caller.tenant, run_id) as watch:
        applied, has_ended = 0, False
        if since is not None:
            subject = subjects.event(caller.tenant, run["pipeline"], "*")
            try:
                async for news in _missed(context, caller.tenant, subject, since, watch):
                    if news.run_id == run_id:
                        has_ended = has_ended or news.is_end
                        yield news.steps
            except PastGone:
                since = None
        if since is None:
            has_ended = run["finished_at"] is not None
            async for step, seen in _steps(context, caller.tenant, run_id):
                applied = max(applied, seen)
                yield step
        yield _place(watch.position)
        if not has_ended:
            async for told in _until_end(context, caller, run_id, watch, applied):
                yield told
        if last := await _last_event(context, caller, run_id, None if has_ended else watch.ended):
            yield last


async def _last_event(
    context: Context, caller: Caller, run_id: str, why: str | None
) -> bytes | None:
    """Return a stream's last event: the end of the run, or `why` following stopped."""
    if why is None:
        ended = await _end_of(context, caller, run_id)
        return None if ended is None else event_of_json("run", ended)
    end = ENDS.get(why)
    return None if end is None else event(why, end)


async def _until_end(
    context: Context, caller: Caller, run_id: str, watch: Watch, applied: int
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a run until it ends. If the database already has the end, the events leading
    to it are still on their way; they are waited for up to END_S, in case the client already received
    them and none come."""
    is_late = await _has_ended(context, caller, run_id)
    async for batch in _live(watch, END_S if is_late else QUIET_S):
        if told := b"".join(_newer(batch, applied)):
            yield told
        if any(news.is_end for news in batch) or (is_late and not batch):
            return
        if not batch:
            yield QUIET


def _newer(batch: list[RunNews], applied: int) -> list[bytes]:
    """Return the events that the rows already sent do not include."""
    return [news.steps for news in batch if news.log_seq is not None and news.log_seq > applied]


async def _live(watch: Watch, quiet_s: float = QUIET_S) -> AsyncGenerator[list[RunNews], None]:
    """Yield news as it arrives, in batches; an empty batch after `quiet_s` without news."""
    while watch.ended is None:
        try:
            async with asyncio.timeout(quiet_s):
                await watch.arrived.wait()
        except TimeoutError:
            yield []
            continue
        watch.arrived.clear()
        batch = list(watch.news)
        watch.news.clear()
        if batch:
            yield batch


async def _missed(
    context: Context, tenant: str, subject: str, since: Place, watch: Watch
) -> AsyncGenerator[RunNews, None]:
    """Yield the news between a client's last position and the beginning of its queue; raise PastGone. A
    slot is held only while a portion is read, not while the client consumes it, because a client that
    does not read would block the slot for all others."""
    seq, place = since
    first: int | None = max(seq + 1 if place is None else seq, 1)  # no fact has the number 0
    while first is not None:
        async with context.live.catching_up.place(tenant):
            facts, first = await past_portion(
                context.bus, subject, first, watch.position, MAX_CATCH_UP
            )
        for fact in facts:
            for number, news in enumerate(news_of(fact)):
                if fact.seq > seq or place is None or number > place:
                    yield news


async def _steps(
    context: Context, tenant: str, run_id: str
) -> AsyncGenerator[tuple[bytes, int], None]:
    """Yield the steps of a run from the database, each with the log position that the first page
    reflects; for runs of several pages, the log may repeat a step."""
    after: str | None = None
    applied: int | None = None
    while True:
        async with (
            context.live.reading.place(tenant),
            context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            if applied is None:
                applied = await connection.fetchval(APPLIED, run_id, timeout=QUERY_TIMEOUT_S)
            page, _ = await reads.page_of_steps(
                connection, run_id, after=after, limit=MAX_PAGE, values=False
            )
        for step in page.steps:
            yield event("step", step), applied or 0
        if (after := page.next) is None:
            return


async def _has_ended(context: Context, caller: Caller, run_id: str) -> bool:
    async with context.live.reading.place(caller.tenant):
        row = await reads.run_row(context.pool, caller.tenant, run_id, values=False)
    return row["finished_at"] is not None


async def _end_of(context: Context, caller: Caller, run_id: str) -> bytes | None:
    """Return the result of a run as JSON, or None if it has not ended."""
    async with context.live.reading.place(caller.tenant):
        row = await reads.run_row(context.pool, caller.tenant, run_id, values=caller.sees_content)
    return None if row["finished_at"] is None else result_json(row, caller)


def _place(position: int) -> bytes:
    """Return a message that updates the client's position without an event."""
    return f"id: {position}\n\n".encode()


def _reset(gone: PastGone) -> bytes:
    cure = "Reload what you show; what happens from now on follows."
    return event("reset", LiveEnd(reason=f"What you missed cannot be sent: {gone}.", cure=cure))
