"""Which version of a pipeline runs take if they name none, and how two versions differ."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool

from hocket.schemas.rest import NUMBER, Reply, Request, Version

MAX_MIN_RUNS = 10_000
MAX_CHANGES = 1_000
"""The most differences that are listed."""

Verdict = Literal["undecided", "as_good", "worse"]
Kind = Literal["added", "removed", "changed"]


class ActivateBody(Request):
    """The version to use from now on. Without a version, the newest one is always used."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"version": 1}]})

    version: Version | None = None


class CanaryBody(Request):
    """Start a canary: a share of the runs use another version. It ends automatically once `min_runs`
    of its runs have ended and the share of them that failed or expired exceeds the active version's
    by more than `max_failure_rise`, and by more than chance explains (three standard deviations,
    because it is judged again and again). With `only_by_hand` it never ends automatically."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"version": 2, "share": 0.1, "min_runs": 100}]}
    )

    version: Version
    share: float = Field(gt=0, lt=1, strict=True)
    min_runs: Annotated[int, Field(ge=1, le=MAX_MIN_RUNS), NUMBER] = 100
    max_failure_rise: float = Field(0.05, ge=0, le=1, strict=True)
    only_by_hand: StrictBool = False


class Canary(Reply):
    """A version used by a share of the runs, since when, and what ends it."""

    version: int
    share: float
    since: datetime
    min_runs: int
    max_failure_rise: float
    only_by_hand: bool


class PipelineRelease(Reply):
    """The version used by runs that do not name one: `active_version`, or the canary's. If not
    `pinned`, the newest version is active. `former_version` was active before; a rollback returns to
    it."""

    pipeline: str
    newest_version: int
    active_version: int
    pinned: bool
    former_version: int | None = None
    canary: Canary | None = None
    archived_at: datetime | None = None
    changed_at: datetime | None = None
    changed_by: str | None = None


class VersionOutcome(Reply):
    """How the runs of a version ended that were accepted since the canary started; only the latest
    10,000 of each version are counted. `failure_ratio` is the share of them that failed or expired."""

    version: int
    runs: int
    succeeded: int
    degraded: int
    failed: int
    expired: int
    failure_ratio: float | None = None
    p95_ms: float | None = None


class CanaryReport(Reply):
    """A canary compared with the active version. `worse` ends it soon, unless it is `only_by_hand`."""

    pipeline: str
    canary: Canary
    active: VersionOutcome
    candidate: VersionOutcome
    verdict: Verdict


class VersionChange(Reply):
    """A place where two versions differ, such as `nodes.sort.with.letter`. With `order`, an object has
    its keys in another order; `before` and `after` are the keys that both have."""

    path: str
    kind: Kind
    before: Any = None
    after: Any = None
    order: bool = False


class PipelineDiff(Reply):
    """The changes from one version to another, ordered by place; `truncated` if there are more."""

    pipeline: str
    before: int
    after: int
    changes: tuple[VersionChange, ...]
    truncated: bool = False
