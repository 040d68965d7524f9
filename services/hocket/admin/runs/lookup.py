"""Finds the run that a request names."""

import asyncio
from typing import Annotated

import asyncpg
from fastapi import Path

from hocket.admin.context import Context
from hocket.admin.runs import reads

APPEAR_TIMEOUT_S = 2.0
"""How long to wait for a run that was submitted here a moment ago before it counts as unknown."""
APPEAR_INTERVAL_S = 0.02

RunId = Annotated[str, Path(pattern=r"^r[0-9a-f]{24}$", description="ID of the run.")]


async def found_run(
    context: Context, tenant: str, run_id: str, *, values: bool = True
) -> asyncpg.Record:
    """Return the row of a run, waiting for it if it was submitted here a moment ago. Without `values`,
    its input and output are not read. Raises RunUnknown."""
    run, recent = (tenant, run_id), context.recent
    row = await reads.find_run(context.pool, tenant, run_id, values=values)
    if recent.awaits(run, row):
        deadline = asyncio.get_running_loop().time() + APPEAR_TIMEOUT_S
        while recent.awaits(run, row) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(APPEAR_INTERVAL_S)
            row = await reads.find_run(context.pool, tenant, run_id, values=values)
    if row is None or recent.awaits(run, row):
        raise await reads.unknown_run(context.pool, run_id)
    return row
