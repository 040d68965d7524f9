"""Answers a change of the version that runs take only when no process takes the former one any more.

Coordinators and REST processes keep what they read of a pipeline's release for RELEASE_FOR_S, by clocks
of their own, counted from before they read it. So what any of them uses this long after a commit was
read after it. The change is committed by then and no connection is held: nothing is lost if the caller
goes away.
"""

import asyncio

RELEASE_FOR_S = 1.0
"""How long the release of a pipeline is kept: here, for checking tasks, and as long by coordinators
(`coordinator/storage/pipelines/pipeline_catalog.py`)."""
MARGIN_S = 0.05
"""What may lie between a commit and the moment at which the database counts it."""


def left_s(since_s: float | None) -> float:
    """Return how long a change that was made this long ago (None: never) may go unseen by others."""
    return 0.0 if since_s is None else max(0.0, RELEASE_FOR_S + MARGIN_S - since_s)


async def settle(seconds: float) -> None:
    """Wait, if there is anything to wait for."""
    if seconds > 0.0:
        await asyncio.sleep(seconds)
