"""Flow control by key, as specified in a pipeline's `flow`: when its runs start, and which do not start.

A run passes the gates of its pipeline one after the other, in the order of FLOW_KINDS, before its first
step starts. Runs of one pipeline with equal keys at a gate share its limit, across all versions.
"""

from typing import Final, Literal

from pydantic import Field, model_validator

from hocket.schemas.pipeline.faults import misuse
from hocket.schemas.pipeline.node_parts import SpecPart

FlowKind = Literal["debounce", "rate_limit", "singleton", "concurrency", "throttle"]
FLOW_KINDS: Final[tuple[FlowKind, ...]] = (
    "debounce",
    "rate_limit",
    "singleton",
    "concurrency",
    "throttle",
)
"""The kinds of gates, in the order in which a run passes them."""
MAX_KEY_TEMPLATE_CHARS = 2_000
MAX_CONCURRENT_RUNS = 10_000
MAX_STARTS = 1_000
"""The most starts that a rate may count in its period."""
MAX_PERIOD_S = 86_400.0


class FlowGateSpec(SpecPart):
    """What all gates of `flow` may say."""

    key: str | None = Field(None, min_length=1, max_length=MAX_KEY_TEMPLATE_CHARS)
    """A template over `input` that returns a text, number or boolean of up to 200 characters, such as
    `"{{ input.customer }}"`: runs with equal keys share the limit. By default, all runs of the pipeline
    share it."""


class FlowConcurrency(FlowGateSpec):
    """At most `limit` runs per key at the same time; others wait in the order in which they were
    accepted. A run holds its slot from start to end, even while it waits for something."""

    limit: int = Field(ge=1, le=MAX_CONCURRENT_RUNS)
    """Maximum number of runs per key at the same time."""


class FlowThrottle(FlowGateSpec):
    """At most `limit` runs per key start within any `per_s` seconds; others wait in the order in
    which they were accepted."""

    limit: int = Field(ge=1, le=MAX_STARTS)
    """Maximum number of starts within the period."""
    per_s: float = Field(ge=0.1, le=MAX_PERIOD_S)
    """The period, in seconds; it is a sliding window."""


class FlowRateLimit(FlowGateSpec):
    """At most `limit` runs per key within any `per_s` seconds; others end immediately, as `cancelled`
    with `flow_rate_limited`."""

    limit: int = Field(ge=1, le=MAX_STARTS)
    """Maximum number of runs within the period."""
    per_s: float = Field(ge=0.1, le=MAX_PERIOD_S)
    """The period, in seconds; it is a sliding window."""


class FlowDebounce(FlowGateSpec):
    """A run starts once no other run with its key has been accepted for `wait_s` seconds. Only the
    newest one starts; those before it end `cancelled` with `flow_debounced`."""

    wait_s: float = Field(ge=0.1, le=MAX_PERIOD_S)
    """How long no other run may be accepted, in seconds."""
    max_wait_s: float | None = Field(None, ge=0.1, le=MAX_PERIOD_S)
    """Maximum total delay of the first run, in seconds; by default, as long as others arrive."""

    @model_validator(mode="after")
    def _waits_long_enough(self) -> "FlowDebounce":
        if self.max_wait_s is not None and self.max_wait_s < self.wait_s:
            raise misuse(
                "`max_wait_s` is shorter than `wait_s`",
                "Make it at least as long, or leave it out.",
            )
        return self


class FlowSingleton(FlowGateSpec):
    """One run per key at a time, with none waiting for it."""

    mode: Literal["skip", "cancel"]
    """What to do if a run is already in progress: `skip` ends the new one as `cancelled` with
    `flow_singleton_skipped`; `cancel` cancels the one in progress, and the new one starts when that has
    ended."""


class Flow(SpecPart):
    """When the pipeline's runs start, by key."""

    concurrency: FlowConcurrency | None = None
    """Limit how many run at the same time."""
    throttle: FlowThrottle | None = None
    """Limit how many start within a period; others wait."""
    rate_limit: FlowRateLimit | None = None
    """Limit how many start within a period; others end immediately."""
    debounce: FlowDebounce | None = None
    """Start only the last of several runs in quick succession."""
    singleton: FlowSingleton | None = None
    """Run one at a time, with none waiting."""

    @model_validator(mode="after")
    def _says_something(self) -> "Flow":
        if all(getattr(self, kind) is None for kind in FLOW_KINDS):
            raise misuse("it limits nothing", f"Add one of: {', '.join(sorted(FLOW_KINDS))}.")
        return self
