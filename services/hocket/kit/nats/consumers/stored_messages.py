"""Reads the messages that a stream holds on a subject, in a few answers and without a consumer."""

import asyncio
import json
from dataclasses import dataclass

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage

TIMEOUT_MS = 10_000.0
READ_BATCH = 512
"""Messages of one answer."""
MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Approximate size of the messages in one answer."""
_NOT_FOUND, _END = "404", "204"


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message and its sequence in the stream; anybody may have written it."""

    seq: int
    subject: str
    body: bytes
    headers: dict[str, str]


async def stored_messages(
    bus: Bus, stream: str, subject: str, *, max_messages: int, max_bytes: int
) -> tuple[list[StoredMessage], bool]:
    """Return the messages on a subject (which may have wildcards) in order, and whether these are all.
    Stops soon after `max_messages` or `max_bytes`. Raises BusUnavailable if the server does not
    answer."""
    found: list[StoredMessage] = []
    size_bytes = 0
    while True:
        seq = found[-1].seq + 1 if found else 1
        portion, is_last = await messages_from(bus, stream, subject, seq)
        found += portion
        size_bytes += sum(len(one.body) for one in portion)
        if is_last or not portion:
            return found, True
        if len(found) >= max_messages or size_bytes >= max_bytes:
            return found, False


async def last_message(bus: Bus, stream: str, subject: str) -> StoredMessage | None:
    """Return the last message that a stream holds on a subject without wildcards, None if there is none.
    Raises BusUnavailable if the server does not answer."""
    get = f"$JS.API.DIRECT.GET.{stream}.{subject}"
    answer = await bus.request(get, b"", timeout_ms=TIMEOUT_MS)
    headers = answer.headers or {}
    status = headers.get("Status")
    if status == _NOT_FOUND:
        return None
    if status is not None:
        raise _refusal(stream, headers)
    return _stored(subject, answer.data, headers)


async def messages_from(
    bus: Bus, stream: str, subject: str, seq: int, *, max_bytes: int = MAX_ANSWER_BYTES
) -> tuple[list[StoredMessage], bool]:
    """Return up to READ_BATCH messages from a sequence on, of about `max_bytes` in total, and whether
    they are the last ones. Raises BusUnavailable if the server does not answer."""
    found: list[StoredMessage] = []
    ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def came(message: RawMessage) -> None:
        if ended.done():
            return
        headers = message.headers or {}
        status = headers.get("Status")
        try:
            if status is None:
                found.append(_stored(subject, message.data, headers))
            elif status in (_NOT_FOUND, _END):
                ended.set_result(headers.get("Nats-Num-Pending", "0") == "0")
            else:
                raise _refusal(stream, headers)
        except BusUnavailable as error:
            ended.set_exception(error)

    inbox = bus.nc.new_inbox()
    subscription = await bus.subscribe_raw(inbox, came, confirmed=False)
    try:
        request = {"seq": seq, "next_by_subj": subject, "batch": READ_BATCH, "max_bytes": max_bytes}
        get = f"$JS.API.DIRECT.GET.{stream}"
        bus.publish_nowait(get, json.dumps(request).encode(), reply=inbox)
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            is_last = await ended
    except TimeoutError:
        raise BusUnavailable(reason=f"{stream}: no answer in time") from None
    finally:
        await subscription.unsubscribe()
    return found, is_last


def _stored(subject: str, body: bytes, headers: dict[str, str]) -> StoredMessage:
    number = headers.get("Nats-Sequence", "")
    if not number.isascii() or not number.isdigit():
        raise BusUnavailable(reason="an answer without a sequence")
    return StoredMessage(int(number), headers.get("Nats-Subject", subject), body, headers)


def _refusal(stream: str, headers: dict[str, str]) -> BusUnavailable:
    return BusUnavailable(
        reason=f"{stream}: {headers.get('Status')} {headers.get('Description', '')}"
    )
