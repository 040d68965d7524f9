"""Copies the NATS messages that may not be in Postgres yet, or are nowhere else, and publishes them
again with their ids."""

# ruff: noqa: ASYNC240  # nothing else runs in this loop

import base64
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.cloudevents import (
    IDEMPOTENCY_KEY,
    STORED_AT,
    STREAM_PLACE,
    task_identity,
)
from hocket.kit.nats.connection.commands import MSG_ID
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import headers_of
from hocket.kit.nats.streams import stream_configs
from hocket.schemas import subjects
from hocket.schemas.errors import PayloadTooLarge

STREAMS = (
    subjects.TASKS,
    subjects.TASK_BATCHES,
    subjects.USAGE,
    subjects.DLQ,
    subjects.JOURNALS,
)
"""Tasks not yet taken in by a coordinator, usage not yet booked by a ledger, dead letters, and what
handlers of steps have done so far. All other streams can be rebuilt from these and Postgres."""
OF_THE_STREAM = ("Nats-Batch-", "Nats-Expected-")
"""Prefixes of the headers that hold only in the stream for which a message was written: its batch, and
the sequence that it follows. They are dropped."""
TASK_STREAMS = (subjects.TASKS, subjects.TASK_BATCHES)
TIMEOUT_MS = 10_000.0
_NOT_FOUND = 404
_NS = 1_000_000_000


async def copy_out(bus: Bus, folder: Path) -> dict[str, int]:
    """Copy the streams' messages into files; return how many there were."""
    folder.mkdir(mode=0o700)
    return {
        stream: await _copy_stream(bus, stream, folder / f"{stream}.jsonl") for stream in STREAMS
    }


async def copy_in(bus: Bus, folder: Path) -> dict[str, int]:
    """Publish the messages of the files again; return how many. A copy made by an earlier release lacks
    streams that were added later."""
    done = dict.fromkeys(STREAMS, 0)
    for stream in STREAMS:
        file = folder / f"{stream}.jsonl"
        if not file.exists():
            continue
        with file.open() as lines:
            for line in lines:
                await _put_back(bus, stream, json.loads(line))
                done[stream] += 1
    return done


async def _put_back(bus: Bus, stream: str, kept: dict[str, Any]) -> None:
    subject, payload = kept["subject"], base64.b64decode(kept["data"])
    headers = _with_own_identity(stream, kept["headers"])
    msg_id = headers.get(MSG_ID)
    try:
        await bus.publish(subject, payload, headers=headers, msg_id=msg_id, reserve_bytes=0)
    except PayloadTooLarge:  # with what is added to its headers: it comes back without that
        ours = {STREAM_PLACE, STORED_AT}
        headers = {name: text for name, text in kept["headers"].items() if name not in ours}
        answer = await bus.request(subject, payload, headers=headers, timeout_ms=TIMEOUT_MS)
        if error := json.loads(answer.data).get("error"):
            raise _refusal(stream, error) from None


async def messages_in(bus: Bus) -> int:
    """Return how many messages the platform's streams hold, also those of which no copy is made."""
    total = 0
    for stream in (config["name"] for config in stream_configs()):
        total += (await _state(bus, stream)).get("messages", 0)
    return total


async def _state(bus: Bus, stream: str) -> dict[str, Any]:
    """Return the state of a stream, {} if there is none. Raises BusUnavailable if NATS says neither."""
    found = await bus.api(f"STREAM.INFO.{stream}", {}, timeout_ms=TIMEOUT_MS)
    error = found.get("error", {})
    if error and error.get("code") != _NOT_FOUND:
        raise _refusal(stream, error)
    state: dict[str, Any] = found.get("state", {})
    return state


def _refusal(stream: str, error: dict[str, Any]) -> BusUnavailable:
    return BusUnavailable(reason=f"{stream}: {error.get('description') or error}")


async def _copy_stream(bus: Bus, stream: str, file: Path) -> int:
    state = await _state(bus, stream)
    first = max(state.get("first_seq", 1), await _done_below(bus, stream))
    seq, last, count = first, state.get("last_seq", 0), 0
    file.touch(mode=0o600)
    with file.open("w") as out:
        while seq <= last:
            wanted = {"seq": seq, "next_by_subj": ">"}
            answer = await bus.api(f"STREAM.MSG.GET.{stream}", wanted, timeout_ms=TIMEOUT_MS)
            if "message" not in answer:
                if answer.get("error", {}).get("code") == _NOT_FOUND:
                    break  # acknowledged meanwhile, so it is in the later Postgres snapshot
                raise _refusal(stream, answer.get("error", {}))
            message = answer["message"]
            kept = {
                "subject": message["subject"],
                "headers": _headers(stream, message),
                "data": message.get("data", ""),
            }
            out.write(json.dumps(kept) + "\n")
            count += 1
            seq = message["seq"] + 1
    return count


async def _done_below(bus: Bus, stream: str) -> int:
    """Return the sequence below which all tasks of a stream are done, 0 for other streams."""
    if stream not in TASK_STREAMS:
        return 0
    found = await bus.api(f"CONSUMER.INFO.{stream}.{subjects.INTAKE}", {}, timeout_ms=TIMEOUT_MS)
    error = found.get("error", {})
    if error and error.get("code") != _NOT_FOUND:
        raise _refusal(stream, error)
    floor: int = found.get("ack_floor", {}).get("stream_seq", -1) + 1
    return floor


def _headers(stream: str, message: dict[str, Any]) -> dict[str, str]:
    """Return the headers of a message that are restored. A task without a key gets its place in the
    stream: it may also be in Postgres, as the run that is named after this place. Each task gets when it
    was stored: it may have been refused since."""
    head = base64.b64decode(message.get("hdrs", ""))
    headers = (headers_of(head) if head else None) or {}
    kept = {name: value for name, value in headers.items() if not name.startswith(OF_THE_STREAM)}
    if stream in TASK_STREAMS:
        stored_ns = _epoch_ns(message["time"])
        kept.setdefault(STORED_AT, str(stored_ns))
        if not task_identity(kept, 0, 0).user_given:
            kept.setdefault(STREAM_PLACE, f"{message['seq']} {stored_ns}")
    return kept


def _with_own_identity(stream: str, headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of a task so that the stream drops it for no other with the same message id:
    tenants choose ids that others have, and what is restored comes within the window of a stream."""
    if stream not in TASK_STREAMS or MSG_ID not in headers:
        return headers
    key, user_given = task_identity(headers, 0, 0)
    kept = {name: value for name, value in headers.items() if name != MSG_ID}
    if user_given and not task_identity(kept, 0, 0).user_given:
        kept[IDEMPOTENCY_KEY] = key
    return kept


def _epoch_ns(time: str) -> int:
    """Return a time of NATS (RFC 3339 in UTC, with up to nine decimal places) in nanoseconds."""
    seconds, _, fraction = time.removesuffix("Z").partition(".")
    whole = round(datetime.fromisoformat(f"{seconds}+00:00").timestamp())
    return whole * _NS + int(fraction.ljust(9, "0"))
