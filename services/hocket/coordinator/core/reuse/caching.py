"""The cache as a step sees it: look the output up before computing it, fill the entry after.

States of a step with `cache`: looking up (asked, or waiting for whoever computes the same) -> done
with the kept output, or computing like any other step with the entry's key in hand. Whatever way it
then ends, the entry is filled or released. A step that waits asks again after a while, for an answer
can be lost, and computes by itself once waiting would cost it its deadline: the cache can be slow,
empty or away, and no run hangs on it.
"""

from decimal import Decimal
from typing import Any

from hocket.coordinator.core.run.commands import FillCache, LookUpCache, ReleaseCache
from hocket.coordinator.core.run.run_size import size_of
from hocket.coordinator.core.run.state import Step, StepState
from hocket.coordinator.core.run.transition import RunTransition
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.core.time.deadlines import DEFAULT_TIMEOUT_MS, deadline_of, slack_of
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.ids import content_hash
from hocket.schemas.pipeline.node_parts import Cache

ASK_AGAIN_MS = 5_000.0
"""How long a step waits before it asks again: an answer is lost only with a process."""
LEAST_WAIT_MS = 100.0
"""How long an answer is waited for even by a step without slack."""


def look_up(u: RunTransition, step: Step) -> None:
    """Ask the cache for the output of a step that is about to begin."""
    expectation, deadline = u.expectation(step), u.run.deadline_at_ms
    step = replace(
        step,
        state=StepState.LOOKING_UP,
        cache_key=key_of(u, step),
        deadline_at_ms=min(deadline, deadline_of(expectation, deadline)),
        slack_ms=slack_of(expectation, deadline, u.now_ms),
    )
    _wait(u, step, max(LEAST_WAIT_MS, _patience_ms(u, step)))


def look_again(u: RunTransition, step: Step) -> bool:
    """Ask once more for a step that has had no answer; tell whether it should wait on."""
    patience_ms = _patience_ms(u, step)
    if patience_ms <= 0:
        return False
    _wait(u, step, patience_ms)
    return True


def ask_of(u: RunTransition, step: Step) -> LookUpCache:
    """Return the question of a step that is looking its output up."""
    assert step.cache_key is not None, step.key
    return LookUpCache(
        key=step.cache_key,
        tenant=u.run.tenant,
        run_id=u.run.run_id,
        step=step.key,
        ttl_ms=_spec(u, step).ttl_ms,
        claim_until_ms=max(u.run.deadline_at_ms, u.now_ms + _timeout_ms(u, step)),
    )


def filled(u: RunTransition, step: Step, output: Any, cost_usd: Decimal) -> Step:
    """Hand what a step computed to the cache, where it computes for it; raise ValueTooDeep for what its
    step cannot keep either."""
    if step.cache_key is None:
        return step
    size_of(output)
    u.commands.append(
        FillCache(
            key=step.cache_key,
            tenant=u.run.tenant,
            run_id=u.run.run_id,
            step=step.key,
            ttl_ms=_spec(u, step).ttl_ms,
            output=output,
            cost_usd=cost_usd,
        )
    )
    return replace(step, cache_key=None)


def released(u: RunTransition, step: Step) -> Step:
    """Let the cache know that a step has no output for it, so that another computes."""
    if step.cache_key is None:
        return step
    u.commands.append(ReleaseCache(step.cache_key, u.run.run_id, step.key))
    return replace(step, cache_key=None)


def key_of(u: RunTransition, step: Step) -> str:
    """Return the key of a step's entry: a hash of tenant, node type, own fields and input, or of the
    value of `cache.key` in the input's place."""
    plan = u.node_plan(step)
    content: dict[str, Any] = {
        "tenant": u.run.tenant,
        "type": step.type,
        "config": dict(plan.config),
    }
    if plan.cache_key is None:
        content["input"] = step.input
    else:
        content["key"] = plan.cache_key(u.names_at(step))
    return content_hash(content)


def _wait(u: RunTransition, step: Step, patience_ms: float) -> None:
    wake_at_ms = nearest(u.now_ms + min(ASK_AGAIN_MS, patience_ms))
    step = u.put(replace(step, wake_at_ms=wake_at_ms))
    u.commands.append(ask_of(u, step))


def _patience_ms(u: RunTransition, step: Step) -> float:
    """Return how long waiting for somebody else's output is still better than computing: while there
    is slack, or for as long as computing would take, and never longer than an attempt may."""
    expectation = u.expectation(step)
    waited_ms = u.now_ms - step.ready_at_ms
    slack_ms = slack_of(expectation, u.run.deadline_at_ms, u.now_ms)
    bound_ms = max(slack_ms, expectation.own.mean_ms - waited_ms)
    return min(_timeout_ms(u, step) - waited_ms, bound_ms)


def _timeout_ms(u: RunTransition, step: Step) -> float:
    return u.node_plan(step).node.timeout_ms or DEFAULT_TIMEOUT_MS


def _spec(u: RunTransition, step: Step) -> Cache:
    spec = u.node_plan(step).node.cache
    assert spec is not None, step.key
    return spec
