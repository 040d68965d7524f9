"""The places where runs wait to start, as commits write them: created with a run's acceptance,
deleted with its end. Which runs pass is decided in `flow/store.py`."""

from typing import Any, NamedTuple

from hocket.coordinator.core.run.state.columns import FLOW_COLUMNS
from hocket.coordinator.storage.commit_batch import Batch


class FlowQueue(NamedTuple):
    """The runs of one pipeline that share a limit."""

    tenant: str
    pipeline: str
    kind: str
    key: str


async def write_flow(connection: Any, batch: Batch, *, timeout_s: float) -> set[FlowQueue]:
    """Write the places of a batch's runs, and delete those of runs that end with it; return the
    queues that changed."""
    queues: set[FlowQueue] = set()
    names = list(FLOW_COLUMNS)
    if batch.flow:
        columns = list(zip(*batch.flow, strict=True))
        await connection.execute(_ENTER, *columns, timeout=timeout_s)
        for row in batch.flow:
            of = dict(zip(names, row, strict=True))
            if of["gate"] == 0:
                queues.add(FlowQueue(*(of[name] for name in FlowQueue._fields)))
    if batch.left:
        gone = await connection.fetch(_LEAVE, batch.left, timeout=timeout_s)
        queues |= {FlowQueue(*row) for row in gone}
    return queues


_ENTER = """
INSERT INTO hocket.flow_place
    (run_id, gate, tenant, pipeline, kind, key, rule, accepted_at, since, is_last, state)
SELECT run_id, gate, tenant, pipeline, kind, key, rule::jsonb, to_timestamp(at_ms / 1000),
       to_timestamp(at_ms / 1000), is_last, CASE WHEN gate = 0 THEN 'waiting' ELSE 'ahead' END
FROM unnest($1::text[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::double precision[], $9::boolean[])
    AS u(run_id, gate, tenant, pipeline, kind, key, rule, at_ms, is_last)
ON CONFLICT (run_id, gate) DO NOTHING
"""
# Locked in the same order as by a deciding process, so that there is no deadlock between them.
_LEAVE = """
WITH gone AS (
    SELECT run_id, gate FROM hocket.flow_place WHERE run_id = ANY ($1::text[])
    ORDER BY run_id, gate FOR UPDATE
)
DELETE FROM hocket.flow_place p USING gone WHERE p.run_id = gone.run_id AND p.gate = gone.gate
RETURNING p.tenant, p.pipeline, p.kind, p.key
"""
