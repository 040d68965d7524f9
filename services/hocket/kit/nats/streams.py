"""The streams and their bounds. `ensure_streams` creates what is missing and updates what differs.

`TASKS`, `USAGE` and `JOURNALS` are fsynced by the server (`persist_mode: default`): what a user
published, what was spent and what a handler has done exist nowhere else yet. `LOG`, `STEPS` and
`EVENTS` can be rebuilt from Postgres and TASKS, so they are written asynchronously. So is `CALLS` (calls
about to be made), because a model call must not wait for a disk, and the ledger has it in Postgres a
moment later. Work queues refuse new messages when full (the publisher waits), and so do `JOURNALS`,
`LOG` and the streams of tasks, from which coordinators drop what is done
(`coordinator/partition/events/log_trimmer.py`, `coordinator/intake/task_trimmer.py`); `CALLS`,
`EVENTS` and `DLQ` drop their oldest messages.

The server reserves the maximum size of each stream, and refuses a stream that does not fit. On a small
disk, all streams are therefore made smaller in the same proportion. The maximum size of an existing
stream is never changed, because an operator may have set it.
"""

import asyncio
from typing import Any

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.repeated_requests import api_repeated
from hocket.schemas import subjects
from hocket.schemas.errors import HocketError
from hocket.schemas.journals import MAX_MESSAGES

DEDUP_WINDOW_S = 120
TASKS_DEDUP_WINDOW_S = 0.1
"""The shortest window that a server accepts. A stream deduplicates the message ids of all publishers
together, so in TASKS one tenant's id could drop another tenant's task. Intake identifies a task by its
tenant and key, for ever."""
EVENTS_DEDUP_WINDOW_S = 300
"""While owners and servers change every few seconds, the end of a run may be published again for over
two minutes."""
LOG_MAX_AGE_S = 24 * 3_600
"""How far back a log can be replayed; applied events are in Postgres long before that."""
CALLS_MAX_AGE_S = 24 * 3_600
"""How long the ledger may be away and still learn of calls whose gateway was killed."""
EVENTS_MAX_AGE_S = 7 * 24 * 3_600
DLQ_MAX_AGE_S = 30 * 24 * 3_600
PROBATION_MAX_AGE_S = 24 * 3_600
ASYNC = "async"
"""The `persist_mode` in which a stream acknowledges messages before they are on disk. It is fixed when
the stream is made, and a replicated stream cannot have it."""
MIB = 1024**2
GIB = 1024**3
JOURNALS_MAX_AGE_S = 30 * 24 * 3_600
"""Journals of ended runs are deleted long before that (`ledger/step_journals.py`)."""
PROBATION_BYTES = 8 * MIB
"""Room for what is known of steps that kill their workers; an entry has about 100 bytes."""
KEY_RESULTS = 256
"""Result messages from one key that may wait for a coordinator."""
KEY_LETTERS = 32
"""Dead letters from one key that may wait for a coordinator."""
GUEST_POSTS_BYTES = 256 * MIB
POOL_ANNOUNCEMENTS = 1_024
"""Announcements for one pool within GUEST_SAID_S, enough for 680 workers that announce every 2 s."""
TYPE_DESCRIPTIONS = 16
GUEST_SAID_S = 3
GUEST_SAID_BYTES = 64 * MIB
ANNOUNCEMENT_BYTES = 2_048
API_TIMEOUT_MS = 10_000.0
FORMS_S = 30.0
"""How long servers that are started together may take to find each other and elect a leader."""
FORMING_RETRY_S = 0.5
MIN_SHARE = 1 / 256
"""The smallest share of the bounds below with which Hocket still starts: 83 MiB over all streams."""
STORE_TRIES = 30
STORE_RETRY_S = 0.1
_NO_STORE = "error creating store for stream"
"""A server's error while it removes the files of a stream of the same name, and when it cannot create
files on its disk."""
_NO_PEERS = 10_005
_NO_SPACE = "insufficient storage"
"""The description that comes with that code if all servers are present and none has room."""
_NO_META_LEADER = 10_008
WORK_QUEUES_ONCE = frozenset({subjects.TASKS, subjects.TASK_BATCHES})
"""Streams that earlier releases created as work queues. Their retention cannot be changed; they work as
well, with a second flush for each task."""
_SECOND_NS = 1_000_000_000
_NOT_FOUND = 404
_EXISTS = 10_058
_NO_ROOM = frozenset({10_002, 10_005, 10_023, 10_047, 10_122})
"""JetStream's codes: over the account's limit, no peer with room, insufficient resources, insufficient
storage, over the account's limit for one stream."""

log = structlog.get_logger(__name__)


class StreamRefused(HocketError):
    """NATS refused to create the stream {stream}: {reason}. Check that JetStream is on and has room
    (`max_file_store`, the account's limits, the disk)."""

    code = "stream_refused"


class StreamOfOneServer(HocketError):
    """The stream {stream} was created for one server, and NATS cannot raise it to {replicas}. Back up
    the platform and restore it on empty servers:
    docs/how-to/three-servers.md#from-one-server-to-three."""

    code = "stream_of_one_server"


class _NoRoom(StreamRefused):
    """The server has no room for a stream {stream} of this size: {reason}. Make it smaller."""


def stream_configs(*, replicas: int = 1) -> list[dict[str, Any]]:
    """Return the configuration of every stream, in JetStream's own terms."""
    return [
        _stream(
            subjects.TASKS,
            subjects.TASK_FILTER,
            replicas,
            refuses=True,
            max_bytes=4 * GIB,
            window_s=TASKS_DEDUP_WINDOW_S,
        ),
        {
            **_stream(
                subjects.TASK_BATCHES,
                subjects.BATCHED_TASK_FILTER,
                replicas,
                refuses=True,
                max_bytes=GIB,
                window_s=TASKS_DEDUP_WINDOW_S,
            ),
            "allow_atomic": True,
        },
        _stream(
            subjects.LOG,
            subjects.LOG_FILTER,
            replicas,
            fast=True,
            refuses=True,
            max_bytes=4 * GIB,
            max_age_s=LOG_MAX_AGE_S,
        ),
        _stream(
            subjects.STEPS, subjects.STEP_FILTER, replicas, work=True, fast=True, max_bytes=4 * GIB
        ),
        _stream(
            subjects.CALLS,
            subjects.CALL_FILTER,
            replicas,
            fast=True,
            max_bytes=256 * MIB,
            max_age_s=CALLS_MAX_AGE_S,
        ),
        _stream(subjects.USAGE, subjects.USAGE_SUBJECT, replicas, work=True, max_bytes=4 * GIB),
        _stream(
            subjects.EVENTS,
            subjects.EVENT_FILTER,
            replicas,
            fast=True,
            max_bytes=GIB,
            max_age_s=EVENTS_MAX_AGE_S,
            window_s=EVENTS_DEDUP_WINDOW_S,
        ),
        _stream(
            subjects.DLQ, subjects.DLQ_FILTER, replicas, max_bytes=GIB, max_age_s=DLQ_MAX_AGE_S
        ),
        {
            **_stream(
                subjects.PROBATION,
                subjects.PROBATION_FILTER,
                replicas,
                max_bytes=PROBATION_BYTES,
                max_age_s=PROBATION_MAX_AGE_S,
            ),
            "max_msgs_per_subject": 1,
        },
        {
            **_stream(
                subjects.JOURNALS,
                subjects.JOURNAL_FILTER,
                replicas,
                refuses=True,
                max_bytes=2 * GIB,
                max_age_s=JOURNALS_MAX_AGE_S,
            ),
            "max_msgs_per_subject": MAX_MESSAGES,
            "discard_new_per_subject": True,
        },
        *_guests_streams(replicas),
    ]


def _guests_streams(replicas: int) -> list[dict[str, Any]]:
    """Return the streams for what workers with a key publish. Each key, pool or type has a quota, and
    the server refuses messages beyond it. Announcements and descriptions are republished to all
    listeners and kept only briefly."""
    posts = [
        (subjects.GUEST_RESULTS, subjects.GUEST_RESULT_FILTER, KEY_RESULTS),
        (subjects.GUEST_LETTERS, subjects.GUEST_LETTER_FILTER, KEY_LETTERS),
    ]
    said = [
        (
            subjects.GUEST_WORKERS,
            subjects.GUEST_ANNOUNCED,
            subjects.WORKER_ANNOUNCED,
            POOL_ANNOUNCEMENTS,
            ANNOUNCEMENT_BYTES,
        ),
        (
            subjects.GUEST_TYPES,
            subjects.GUEST_DESCRIBED,
            subjects.WORKER_DESCRIBED,
            TYPE_DESCRIPTIONS,
            subjects.MAX_DESCRIPTION_BYTES,
        ),
    ]
    return [
        {
            **_stream(
                name,
                subject,
                replicas,
                work=True,
                max_bytes=GUEST_POSTS_BYTES,
                window_s=TASKS_DEDUP_WINDOW_S,
            ),
            "max_msgs_per_subject": most,
            "discard_new_per_subject": True,
        }
        for name, subject, most in posts
    ] + [
        {
            **_stream(
                name,
                f"{subject}.*",
                replicas,
                refuses=True,
                max_bytes=GUEST_SAID_BYTES,
                max_age_s=GUEST_SAID_S,
                window_s=TASKS_DEDUP_WINDOW_S,
            ),
            "storage": "memory",
            "max_msgs_per_subject": most,
            "discard_new_per_subject": True,
            "max_msg_size": size_bytes,
            "republish": {"src": f"{subject}.>", "dest": f"{again}.>"},
        }
        for name, subject, again, most, size_bytes in said
    ]


async def ensure_streams(bus: Bus, *, replicas: int = 1) -> None:
    """Create or update every stream. Raises StreamRefused if NATS refuses, and StreamOfOneServer before
    anything is changed. If the servers of a cluster are still starting, waits up to FORMS_S for them."""
    until_s = asyncio.get_running_loop().time() + FORMS_S
    made: list[dict[str, Any]] = []
    share = 1.0
    all_wanted = stream_configs(replicas=replicas)
    all_found = [
        await _formed(bus, f"STREAM.INFO.{one['name']}", {}, until_s) for one in all_wanted
    ]
    for found in all_found:
        config = found.get("config", {})
        if config.get("persist_mode") == ASYNC and replicas > 1:
            raise StreamOfOneServer(stream=config["name"], replicas=replicas)
    for wanted, found in zip(all_wanted, all_found, strict=True):
        name = wanted["name"]
        if found.get("error", {}).get("code") == _NOT_FOUND:
            share = await _make(bus, wanted, share, made, until_s)
            made.append(wanted)
        elif "error" in found:
            raise StreamRefused(stream=name, reason=found["error"].get("description", ""))
        elif any(found["config"].get(key) != value for key, value in _updatable(wanted).items()):
            await _ask(bus, "UPDATE", {**found["config"], **_updatable(wanted)}, until_s)
    if share < 1:
        log.warning("streams_made_smaller", share=share, streams=[one["name"] for one in made])


async def _make(
    bus: Bus, wanted: dict[str, Any], share: float, made: list[dict[str, Any]], until_s: float
) -> float:
    """Make a stream with a share of its maximum size, and return the share. It is halved, also for the
    streams made before, until there is room."""
    while True:
        try:
            await _ask(bus, "CREATE", _smaller(wanted, share), until_s)
        except _NoRoom as error:
            share /= 2
            if share < MIN_SHARE:
                reason = error.fields["reason"]
                raise StreamRefused(stream=wanted["name"], reason=reason) from None
            for earlier in made:
                await _ask(bus, "UPDATE", _smaller(earlier, share), until_s)
        else:
            return share


def _smaller(config: dict[str, Any], share: float) -> dict[str, Any]:
    return {**config, "max_bytes": int(config["max_bytes"] * share)}


async def _ask(bus: Bus, verb: str, config: dict[str, Any], until_s: float) -> None:
    name = config["name"]
    error = await _error_of(bus, verb, config, until_s)
    for _ in range(STORE_TRIES):
        if not (verb == "CREATE" and _NO_STORE in error.get("description", "")):
            break
        await asyncio.sleep(STORE_RETRY_S)  # a stream of this name was deleted a moment ago
        error = await _error_of(bus, verb, config, until_s)
    code = error.get("err_code", 0)
    if code in _NO_ROOM:
        raise _NoRoom(stream=name, reason=error.get("description", ""))
    if error and not (verb == "CREATE" and code == _EXISTS):  # another process was quicker
        raise StreamRefused(stream=name, reason=error.get("description", ""))


async def _error_of(bus: Bus, verb: str, config: dict[str, Any], until_s: float) -> dict[str, Any]:
    answer = await _formed(bus, f"STREAM.{verb}.{config['name']}", config, until_s)
    error: dict[str, Any] = answer.get("error", {})
    return error


async def _formed(bus: Bus, subject: str, request: dict[str, Any], until_s: float) -> Any:
    """Call JetStream's API, repeating until `until_s` as long as it answers that servers are missing."""
    loop = asyncio.get_running_loop()
    said = False
    while True:
        left_ms = 1000 * (until_s - loop.time())
        answer = await api_repeated(bus, subject, request, timeout_ms=max(left_ms, API_TIMEOUT_MS))
        error = answer.get("error", {})
        if not _is_forming(error) or loop.time() >= until_s:
            return answer
        if not said:
            log.warning("cluster_awaited", request=subject, reason=error.get("description", ""))
            said = True
        await asyncio.sleep(FORMING_RETRY_S)


def _is_forming(error: dict[str, Any]) -> bool:
    """Return whether an error means that servers of a cluster are missing but may still join."""
    if error.get("err_code") == _NO_PEERS:
        return _NO_SPACE not in error.get("description", "")
    return error.get("err_code") == _NO_META_LEADER


def _updatable(config: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is fixed when a stream is made, and `discard`: a LOG that an older release made
    must not refuse messages until its coordinators drop what they have applied, and they set it then."""
    fixed = ("persist_mode", "retention", "storage", "name", "max_bytes", "discard")
    return {key: value for key, value in config.items() if key not in fixed}


def _stream(
    name: str,
    subject: str,
    replicas: int,
    *,
    work: bool = False,
    fast: bool = False,
    refuses: bool = False,
    max_bytes: int,
    max_age_s: int = 0,
    window_s: float = DEDUP_WINDOW_S,
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "name": name,
        "subjects": [subject],
        "retention": "workqueue" if work else "limits",
        "discard": "new" if work or refuses else "old",
        "storage": "file",
        "num_replicas": replicas,
        "max_bytes": max_bytes,
        "max_age": max_age_s * _SECOND_NS,
        "duplicate_window": round(window_s * _SECOND_NS),
        "allow_direct": True,
    }
    if fast and replicas == 1:  # NATS supports the asynchronous mode only for unreplicated streams
        config["persist_mode"] = ASYNC
    return config
