"""The evidence: rows of the database, public facts, dead letters, and what users saw."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from chaos.engines import FUNCTIONS, Metered
from chaos.injection import Death, Injection
from chaos.load import LABEL, Heard, Task
from hocket.schemas import subjects

BOOKING_S = 1.0
"""Within this time after the model's answer, a gateway that is able to has stored the call's record."""
TRIES = 20
RUNS = """
SELECT run_id, pipeline, parent ->> 'run_id' AS parent, status, output, error,
       finished_at IS NOT NULL AS ended,
       extract(epoch FROM finished_at - accepted_at) * 1000000 AS took_us, critical_path
FROM hocket.run
"""
STEPS = "SELECT run_id, key, parent, type, role, state, attempt, facts FROM hocket.step"
ATTEMPTS = "SELECT run_id, key, attempt, outcome FROM hocket.attempt"
USAGE = """
SELECT call_id, run_id, model, status, input_tokens, output_tokens, cost_usd, estimated FROM hocket.usage
"""
BY_PIPELINE = """
SELECT pipeline AS name, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
       sum(cost_usd) AS cost_usd
FROM report.cost_by_pipeline_day GROUP BY 1
"""
BY_CUSTOMER = f"""
SELECT value AS name, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
       sum(cost_usd) AS cost_usd
FROM report.cost_by_label WHERE label = '{LABEL}' GROUP BY 1
"""


@dataclass(frozen=True)
class Evidence:
    """All evidence about a play."""

    tasks: list[Task]
    heard: Heard
    journals: Path
    dead: dict[int, float]
    """Killed processes, and the time from which they could not send what they had."""
    runs: dict[str, asyncpg.Record]
    steps: dict[str, list[asyncpg.Record]]
    attempts: set[tuple[str, str, int]]
    booked: list[tuple[str, str]]
    """The call and status of each row of the ledger. A call that was made twice has two rows."""
    told: dict[str, list[str]]
    """By run: the status in each of its ends in EVENTS."""
    letters: list[str]
    left: dict[str, int]
    metered: list[Metered]
    """What engines of priced models metered."""
    deaths: list[Death]
    """Deaths of the processes that call these models."""
    usage: list[asyncpg.Record]
    by_pipeline: dict[str, asyncpg.Record]
    by_customer: dict[str, asyncpg.Record]


async def gather_at_rest(
    metered: Callable[[], list[Metered]],
    gathered: Callable[[list[Metered]], Awaitable[Evidence]],
    pause_s: float = BOOKING_S,
) -> Evidence:
    """Gather evidence of one moment: again, until the engines metered nothing while it was gathered.

    An answer may be read on for its usage after its run has ended, and a call whose cancellation NATS
    lost may begin after that. Of such a call the ledger would have a row, and the meters, which were
    read before, nothing. What keeps calling is judged after TRIES, as it is."""
    for _ in range(TRIES):
        before = metered()
        await asyncio.sleep(pause_s)  # for the records of the answers that have just ended
        evidence = await gathered(before)
        if metered() == before:
            break
    return evidence


async def gather(
    connection: "asyncpg.Connection[asyncpg.Record]",
    client: Client,
    tasks: list[Task],
    heard: Heard,
    journals: Path,
    injection: Injection,
    metered: list[Metered],
) -> Evidence:
    """Collect the evidence, once nothing changes any more."""
    steps: dict[str, list[asyncpg.Record]] = defaultdict(list)
    for row in await connection.fetch(STEPS):
        steps[row["run_id"]].append(row)
    told: dict[str, list[str]] = defaultdict(list)
    for _, data in await _messages(client, subjects.EVENTS, ".run-finished"):
        body = json.loads(data)
        told[body["run_id"]].append(body["status"])
    usage = await connection.fetch(USAGE)
    return Evidence(
        tasks, heard, journals, injection.dead,
        runs={row["run_id"]: row for row in await connection.fetch(RUNS)},
        steps=steps,
        attempts={(r["run_id"], r["key"], r["attempt"]) for r in await connection.fetch(ATTEMPTS)},
        booked=[(row["call_id"], row["status"]) for row in usage if row["model"] in FUNCTIONS],
        told=told,
        letters=[f"{subject} {data[:300]!r}" for subject, data in
                 await _messages(client, subjects.DLQ, "")],
        left={name: (await client.jetstream().stream_info(name)).state.messages
              for name in (subjects.TASKS, subjects.STEPS, subjects.USAGE)},
        metered=metered,
        deaths=injection.deaths,
        usage=usage,
        by_pipeline={row["name"]: row for row in await connection.fetch(BY_PIPELINE)},
        by_customer={row["name"]: row for row in await connection.fetch(BY_CUSTOMER)},
    )  # fmt: skip


async def _messages(client: Client, stream: str, ending: str) -> list[tuple[str, bytes]]:
    jetstream = client.jetstream()
    found = []
    state = (await jetstream.stream_info(stream)).state
    for seq in range(max(1, state.first_seq), state.last_seq + 1):
        try:
            message = await jetstream.get_msg(stream, seq)
        except NotFoundError:
            continue  # a gap
        if (message.subject or "").endswith(ending):
            found.append((message.subject or "", message.data or b""))
    return found
