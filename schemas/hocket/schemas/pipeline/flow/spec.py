"""Flow control by key, as a pipeline's `flow` says it: when its runs start, and which of them do not.

A run passes the gates of its pipeline one after the other, in the order of FLOW_KINDS, before its first
step starts. Runs of one pipeline whose keys are equal at a gate share its limit; versions do not matter.
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
"""In the order in which a run passes them."""
MAX_KEY_TEMPLATE_CHARS = 2_000
MAX_CONCURRENT_RUNS = 10_000
MAX_STARTS = 1_000
"""Starts that a rate counts in its period."""
MAX_PERIOD_S = 86_400.0


class FlowGateSpec(SpecPart):
    """What all gates of `flow` may say."""

    key: str | None = Field(None, min_length=1, max_length=MAX_KEY_TEMPLATE_CHARS)
    """A template over `input` that gives a text, number or boolean of up to 200 characters, such as
    `"{{ input.customer }}"`: runs with equal keys share the limit. Without it all of the pipeline do."""


class FlowConcurrency(FlowGateSpec):
    """At most `limit` runs of a key at the same time; others wait in the order in which they were
    accepted. A run holds its place from its start to its end, also while it waits for something."""

    limit: int = Field(ge=1, le=MAX_CONCURRENT_RUNS)
    """Runs of one key at the same time."""


class FlowThrottle(FlowGateSpec):
    """At most `limit` runs of a key start within any `per_s` seconds; others wait in the order in which
    they were accepted."""

    limit: int = Field(ge=1, le=MAX_STARTS)
    """Starts within the period."""
    per_s: float = Field(ge=0.1, le=MAX_PERIOD_S)
    """The period, in seconds; it slides."""


class FlowRateLimit(FlowGateSpec):
    """At most `limit` runs of a key within any `per_s` seconds; others end at once, `cancelled` with
    `flow_rate_limited`."""

    limit: int = Field(ge=1, le=MAX_STARTS)
    """Runs within the period."""
    per_s: float = Field(ge=0.1, le=MAX_PERIOD_S)
    """The period, in seconds; it slides."""


class FlowDebounce(FlowGateSpec):
    """A run waits until no other one of its key was accepted for `wait_s` seconds. The newest one
    starts, those before it end `cancelled` with `flow_debounced`."""

    wait_s: float = Field(ge=0.1, le=MAX_PERIOD_S)
    """How long none may come, in seconds."""
    max_wait_s: float | None = Field(None, ge=0.1, le=MAX_PERIOD_S)
    """How long the first of them may be put off in all, in seconds; without it as long as others
    come."""

    @model_validator(mode="after")
    def _waits_long_enough(self) -> "FlowDebounce":
        if self.max_wait_s is not None and self.max_wait_s < self.wait_s:
            raise misuse(
                "`max_wait_s` is shorter than `wait_s`",
                "Make it at least as long, or leave it out.",
            )
        return self


class FlowSingleton(FlowGateSpec):
    """One run of a key at a time, and none that waits for it."""

    mode: Literal["skip", "cancel"]
    """What happens where one is under way: `skip` ends the new one, `cancelled` with
    `flow_singleton_skipped`; `cancel` cancels the one under way, and the new one starts when that has
    ended."""


class Flow(SpecPart):
    """When the pipeline's runs start, by keys."""

    concurrency: FlowConcurrency | None = None
    """How many run at the same time."""
    throttle: FlowThrottle | None = None
    """How many start within a period; others wait."""
    rate_limit: FlowRateLimit | None = None
    """How many start within a period; others end at once."""
    debounce: FlowDebounce | None = None
    """Of several that come shortly one after the other the last one starts."""
    singleton: FlowSingleton | None = None
    """One at a time, without others that wait."""

    @model_validator(mode="after")
    def _says_something(self) -> "Flow":
        if all(getattr(self, kind) is None for kind in FLOW_KINDS):
            raise misuse("it limits nothing", f"Give one of: {', '.join(sorted(FLOW_KINDS))}.")
        return self
