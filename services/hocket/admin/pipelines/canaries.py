"""Judges canaries by how their runs end, and ends those that do worse than the active version.

Each REST process checks every LOOK_S. It does not matter which of them ends a canary, because the
release must still have the revision that was judged. Failed and expired runs count against a version;
cancelled ones are ignored.
"""

import asyncio
import math
from collections import Counter
from typing import Any

import asyncpg
import structlog

from hocket.admin.context import Context
from hocket.admin.pipelines import release_store as store
from hocket.admin.pipelines import releases
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.access.audit_log import Actor
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.schemas.administration.releases import (
    Canary,
    CanaryReport,
    Verdict,
    VersionOutcome,
)
from hocket.schemas.errors import HocketError

LOOK_S = 10.0
JUDGED_AT_ONCE = 1_000
"""Canaries judged in one look."""
MOST_RUNS = 10_000
"""How many of the latest runs of each version are counted, however small the canary's share is."""
BY_CHANCE_Z = 3.0
"""The z-score above which a difference is significant. It is this high because a canary is judged every
LOOK_S: with the usual 1.645 (one-sided, 5 %), a third of those that are no worse would be ended."""
ACTOR = Actor("hocket:canaries", "")
COUNTED = ("succeeded", "degraded", "failed", "expired")
BAD = ("failed", "expired")

LATEST = """
FROM unnest($4::integer[]) AS wanted(version)
CROSS JOIN LATERAL (
    SELECT r.status,
           extract(epoch FROM r.finished_at - r.accepted_at)::double precision * 1000 AS took_ms
    FROM (SELECT run_id, accepted_at FROM hocket.run
          WHERE tenant = $1 AND pipeline = $2 AND accepted_at >= $3 AND version = wanted.version
          ORDER BY accepted_at DESC OFFSET 0) AS found
    JOIN hocket.run r ON r.run_id = found.run_id
    WHERE r.status = ANY ($5::text[])
    ORDER BY found.accepted_at DESC LIMIT $6
) AS latest
GROUP BY wanted.version
"""
"""The latest runs of each version that have ended and count. Each version has a limit of its own,
because those of a small share are few among the latest of both."""
OUTCOMES = f"""
SELECT wanted.version, latest.status, count(*) AS runs {LATEST}, latest.status
"""
DURATIONS = f"""
SELECT wanted.version, percentile_cont(0.95) WITHIN GROUP (ORDER BY latest.took_ms) AS p95_ms {LATEST}
"""

AWAY: tuple[type[BaseException], ...] = (TimeoutError, OSError, *STATEMENT_ERRORS)

log = structlog.get_logger(__name__)


async def run(context: Context) -> None:
    """Judge canaries until cancelled."""
    while True:
        try:
            await judge_all(context)
        except AWAY as error:
            log.warning("canaries_not_judged", reason=str(error) or repr(error))
        except Exception:
            log.exception("canaries_not_judged")
        await asyncio.sleep(LOOK_S)


async def judge_all(context: Context) -> None:
    """End the canaries that do worse than their active versions."""
    rows = await context.pool.fetch(store.CANARIES, JUDGED_AT_ONCE, timeout=QUERY_TIMEOUT_S)
    for found in rows:
        tenant, name = found["tenant"], found["name"]
        try:
            await _judge(context, tenant, name)
        except HocketError as error:  # it has been deleted meanwhile
            log.info("canary_gone", tenant=tenant, pipeline=name, reason=str(error))
        except AWAY as error:  # its runs take too long to count: others must not wait
            reason = str(error) or repr(error)
            log.warning("canary_not_judged", tenant=tenant, pipeline=name, reason=reason)


async def _judge(context: Context, tenant: str, name: str) -> None:
    row = await store.find(context.pool, tenant, name)
    if row["canary_version"] is None:
        return
    told = await report(context.pool, tenant, row)
    if told.verdict == "worse":
        sides = {side: getattr(told, side).model_dump() for side in ("active", "candidate")}
        if await releases.end_worse(context, tenant, row, sides, ACTOR):
            log.warning("canary_worse", tenant=tenant, pipeline=name, **_short(told))


async def report(pool: Pool, tenant: str, row: asyncpg.Record) -> CanaryReport:
    """Return how a canary compares with the active version; raise NoCanary."""
    canary = store.canary_of(row)
    if canary is None:
        raise releases.NoCanary(pipeline=row["name"])
    versions = (row["active"], canary.version)
    values = (tenant, row["name"], canary.since, list(versions), list(COUNTED), MOST_RUNS)
    counts: dict[int, Counter[str]] = {version: Counter() for version in versions}
    for one in await pool.fetch(OUTCOMES, *values, timeout=QUERY_TIMEOUT_S):
        counts[one["version"]][one["status"]] += one["runs"]
    rows = await pool.fetch(DURATIONS, *values, timeout=QUERY_TIMEOUT_S)
    took = {one["version"]: round(one["p95_ms"], 3) for one in rows}
    active, candidate = [_outcome(version, counts[version], took) for version in versions]
    return CanaryReport(
        pipeline=row["name"],
        canary=canary,
        active=active,
        candidate=candidate,
        verdict=verdict(canary, active, candidate),
    )


def verdict(canary: Canary, active: VersionOutcome, candidate: VersionOutcome) -> Verdict:
    """Return whether a canary is worse than the active version or as good, or whether it is too early to
    say."""
    if candidate.runs < canary.min_runs:
        return "undecided"
    bad, usual = (one.failed + one.expired for one in (candidate, active))
    rate, usual_rate = bad / candidate.runs, usual / active.runs if active.runs else 0.0
    if rate - usual_rate <= canary.max_failure_rise:
        return "as_good"
    if not active.runs:
        return "worse"
    pooled = (bad + usual) / (candidate.runs + active.runs)
    spread = math.sqrt(pooled * (1 - pooled) * (1 / candidate.runs + 1 / active.runs))
    return "worse" if not spread or (rate - usual_rate) / spread > BY_CHANCE_Z else "undecided"


def _outcome(version: int, counts: Counter[str], took: dict[int, float]) -> VersionOutcome:
    runs = sum(counts[status] for status in COUNTED)
    bad = sum(counts[status] for status in BAD)
    return VersionOutcome(
        version=version,
        runs=runs,
        **{status: counts[status] for status in COUNTED},
        failure_ratio=round(bad / runs, 6) if runs else None,
        p95_ms=took.get(version),
    )


def _short(told: CanaryReport) -> dict[str, Any]:
    return {
        "version": told.candidate.version,
        "failure_ratio": told.candidate.failure_ratio,
        "active_failure_ratio": told.active.failure_ratio,
    }
