"""The list of runs: its query parameters, its rows, and its histogram."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.admin.requests.parameters import Moment, Switch, VersionNumber
from hocket.admin.runs.parameters import Status
from hocket.admin.runs.reads import RunFilter
from hocket.schemas.administration.bulk import BulkFilter
from hocket.schemas.labels import MAX_LABELS_HEADER_CHARS

NEVER_CHANGED = frozenset({"succeeded", "rejected"})
"""Statuses of runs that can be neither cancelled nor retried."""
UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class Period(StrEnum):
    """A range of time that ends now."""

    M15 = "15m"
    H1 = "1h"
    H6 = "6h"
    H24 = "24h"
    D7 = "7d"
    D30 = "30d"

    @property
    def length(self) -> timedelta:
        """How long it is."""
        return timedelta(**{UNITS[self[-1]]: int(self[:-1])})


DEFAULT_PERIOD = Period.H24
PIPELINES = """
SELECT DISTINCT name FROM hocket.pipeline WHERE tenant = $1 ORDER BY name LIMIT 500
"""
"""The names to choose from."""


class Asked(BaseModel):
    """What the form of the list asks for, in the parameters of its address."""

    pipeline: str = Field("", max_length=64)
    version: Literal[""] | VersionNumber = ""
    status: Literal["", Status] = ""
    period: Period = DEFAULT_PERIOD
    since: Moment | None = None
    until: Moment | None = None
    missed: Switch = False
    min_cost: str = Field("", max_length=20)
    labels: str = Field("", max_length=MAX_LABELS_HEADER_CHARS)
    error: str = Field("", max_length=200)
    contains: str = Field("", max_length=200)

    @property
    def narrowed(self) -> bool:
        """Whether it asks for fewer than all runs of a time range."""
        texts = (self.pipeline, self.status, self.min_cost, self.labels, self.error, self.contains)
        moments = (self.since, self.until)
        return any(texts) or bool(self.version) or self.missed or moments != (None, None)


def span_of(
    period: Period, since: datetime | None, until: datetime | None
) -> tuple[datetime, datetime]:
    """Return the time range shown: the given moments, otherwise the period that ends now."""
    end = until or datetime.now(UTC)
    return since or end - period.length, end


def bulk_filter(wanted: RunFilter) -> BulkFilter | None:
    """Convert a list's filter into that of a bulk operation, or return None if there is no
    equivalent."""
    unknown_to_bulk = wanted.contains is not None or wanted.version is not None
    if unknown_to_bulk or wanted.status in NEVER_CHANGED:
        return None
    told = {
        "pipeline": wanted.pipeline,
        "status": wanted.status,
        "since": wanted.since and wanted.since.isoformat(),
        "until": wanted.until and wanted.until.isoformat(),
        "labels": dict(wanted.labels),
        "error_code": wanted.error_code,
        "deadline_missed": wanted.missed,
        "min_cost_usd": wanted.min_cost_usd,
    }
    try:
        return BulkFilter.model_validate(told)
    except ValidationError:  # a list accepts names and codes that no run can have
        return None


def filter_text(wanted: BulkFilter) -> str:
    """Describe in words which runs a bulk operation covers."""
    told = [f"pipeline {wanted.pipeline}" if wanted.pipeline else "all pipelines"]
    if wanted.status:
        told.append(wanted.status)
    if wanted.since:
        told.append(f"since {wanted.since:%Y-%m-%d %H:%M:%S} UTC")
    if wanted.until:
        told.append(f"before {wanted.until:%Y-%m-%d %H:%M:%S} UTC")
    told += [f"{key}={value}" for key, value in wanted.labels.items()]
    if wanted.error_code:
        told.append(f"error {wanted.error_code}")
    if wanted.deadline_missed:
        told.append("deadline missed")
    if wanted.min_cost_usd is not None:
        told.append(f"${wanted.min_cost_usd} or more")
    return ", ".join(told)


async def pipeline_names(pool: Pool, tenant: str) -> list[str]:
    """Return the names of the tenant's pipelines."""
    rows = await pool.fetch(PIPELINES, tenant, timeout=QUERY_TIMEOUT_S)
    return [row["name"] for row in rows]
