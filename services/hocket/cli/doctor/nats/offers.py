"""The checks of gateways and workers by `hocket doctor`: do they answer, and is every node type that
pipelines need run by a worker?"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping
from time import monotonic
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from hocket.cli.doctor.findings import Finding, Verdict, listed
from hocket.cli.doctor.nats.connection import TIMEOUT_S
from hocket.kit.postgres.database import said
from hocket.schemas import subjects
from hocket.schemas.messages import WorkerAnnounced
from hocket.schemas.pipeline.contradictions import all_nodes
from hocket.schemas.pipeline.spec import Pipeline, pool_of, runs_in_worker
from hocket.schemas.worker_slots import WorkerSlots, is_worker, of_subject, pool_of_subject

LISTENS_S = 1.5
"""Workers announce themselves at once when asked; on a busy machine a little later."""
QUIET_S = 0.5
"""How long to listen after the last one that was new. Each worker repeats its own every 2 s, so among a
dozen there is always one to hear."""
MAX_LISTENS_S = 3.0
"""Longer than from one announcement of a worker to the next: in this time, each is heard."""
START = "Start: python -m hocket.workers"
MAX_PIPELINES = 5_000

NEEDED = f"""
SELECT latest.tenant, latest.name, latest.spec,
       EXISTS (SELECT FROM hocket.run run
               WHERE run.tenant = latest.tenant AND run.pipeline = latest.name
                 AND run.status = 'running') AS runs
FROM (SELECT DISTINCT ON (tenant, name) tenant, name, spec FROM hocket.pipeline
      ORDER BY tenant, name, version DESC LIMIT {MAX_PIPELINES}) AS latest
"""
"""The latest version of each pipeline, and whether it has runs that have not ended."""


async def gateway(connection: Client) -> Finding:
    """Ask a gateway for its models."""
    try:
        reply = await connection.request(subjects.GATEWAY_MODELS, b"{}", timeout=TIMEOUT_S)
    except (NatsError, TimeoutError):
        return Finding(
            "gateway", Verdict.FAILED, "none responds", "Start: python -m hocket.gateway"
        )
    return Finding("gateway", Verdict.OK, f"answers: {_models(reply.data)}")


def _models(data: bytes) -> str:
    document = json.loads(data)
    models = document.get("models", ()) if isinstance(document, dict) else document
    names = [model["name"] if isinstance(model, dict) else str(model) for model in models]
    return ", ".join(names) or "no models are configured"


async def offered(connection: Client) -> WorkerSlots:
    """Ask all workers to announce themselves, and return their announcements."""
    slots, came = WorkerSlots(), asyncio.Event()

    async def hear(message: Msg) -> None:
        try:
            announced = WorkerAnnounced.model_validate_json(message.data)
        except ValidationError:
            return
        if is_worker(announced):
            pool = pool_of_subject(message.subject)
            announced = of_subject(announced, message.subject)
            if slots.announced(announced.worker, announced.slots, 0.0, pool):
                came.set()

    for subject in (subjects.WORKER_ANNOUNCED, f"{subjects.WORKER_ANNOUNCED}.*"):
        await connection.subscribe(subject, cb=hear)
    await connection.publish(subjects.WORKER_ASKED, b"")
    ends_s, wait_s = monotonic() + MAX_LISTENS_S, LISTENS_S
    while (left_s := ends_s - monotonic()) > 0:
        try:
            async with asyncio.timeout(min(wait_s, left_s)):
                await came.wait()
        except TimeoutError:
            break
        came.clear()
        wait_s = QUIET_S
    return slots


def workers(slots: WorkerSlots) -> Finding:
    """Report how many workers there are, and for which node types."""
    counts: dict[str, int] = defaultdict(int)
    workers = 0
    for _, offers in slots.workers():
        workers += 1
        for pool, count in offers.items():
            counts[pool] += count
    if not workers:
        return Finding("workers", Verdict.FAILED, "none has announced itself", START)
    told = listed((f"{pool} {count}" for pool, count in sorted(counts.items())), most=20)
    return Finding("workers", Verdict.OK, f"{workers}, with slots for {told}")


async def unserved(database: Any, slots: WorkerSlots) -> list[Finding]:
    """Report which steps of pipelines no worker would run; `database` is an asyncpg connection."""
    needed: dict[str, list[str]] = defaultdict(list)
    waited_for: set[str] = set()
    for row in await database.fetch(NEEDED, timeout=TIMEOUT_S):
        for pool in _pools(row["spec"]):
            if slots.slots(pool) == 0:
                needed[pool].append(f"{row['tenant']}/{row['name']}")
                if row["runs"]:
                    waited_for.add(pool)
    return [
        Finding(
            "node types",
            Verdict.FAILED if pool in waited_for else Verdict.NOTE,
            f"no worker runs {pool}, which {listed(names, most=4)} "
            f"{'wait for' if pool in waited_for else 'would wait for'}",
            f"Start one: hocket serve worker -- --types {pool}",
        )
        for pool, names in sorted(needed.items())
    ]


def _pools(spec: str | Mapping[str, Any]) -> set[str]:
    """Return the pools whose workers a pipeline needs; empty if this release cannot parse the
    pipeline."""
    try:
        document = json.loads(spec) if isinstance(spec, str) else spec
        pipeline = Pipeline.model_validate(document)
    except (ValueError, ValidationError):
        return set()
    nodes = all_nodes(pipeline.nodes, "nodes")
    return {pool_of(node) for _, node, _ in nodes if runs_in_worker(node.type)}


def not_heard(error: BaseException) -> Finding:
    """Return the finding that workers could not be heard."""
    return Finding("workers", Verdict.FAILED, said(error), START)
