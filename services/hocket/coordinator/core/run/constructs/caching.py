"""The step cache (`cache`): look the output up before computing it, fill the entry afterwards.

States of such a step: looking up (asked, or waiting while another step computes the same) -> done
with the stored output, or computing like any other step while it holds the entry's key. However it
then ends, the entry is filled or released. A waiting step asks again after a while, because an
answer can be lost, and computes by itself once waiting would cost it its deadline: the cache can be
slow, empty or down, and no run hangs on it.
"""

from decimal import Decimal
from hashlib import sha256
from typing import Any

from hocket.coordinator.core.run.commands import FillCache, LookUpCache
from hocket.coordinator.core.run.plan.nodes import Node
from hocket.coordinator.core.run.state.names import names_at
from hocket.coordinator.core.run.state.run import LOOKING_UP, Step
from hocket.coordinator.core.run.state.values import Json
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.ids import canonical
from hocket.schemas.templates.budget import CHARS_PER_OPERATION

ASK_AGAIN_MS = 5_000.0
"""How long (ms) a step waits before it asks again: an answer is lost only with a process."""
LEAST_WAIT_MS = 100.0
"""How long (ms) even a step without slack waits for an answer."""
FREE_KEY_CHARS = 8_000
"""The characters of a `cache.key` that the operations of its step pay for; more are charged: a key may
be a value of 1 MB that the run has only once, and thousands of items may ask for it in one event."""


def look_up(t: Transition, step: Step) -> None:
    """Ask the cache for the output of a step that is about to begin."""
    forecast, deadline_at_ms = t.forecast_of(step), t.run.deadline_seen_at_ms(t.now_ms)
    step.cache_key = key_of(t, step)
    step.state = LOOKING_UP
    step.deadline_at_ms = min(deadline_at_ms, forecast.deadline_at_ms(deadline_at_ms))
    step.slack_ms = forecast.slack_ms(deadline_at_ms, t.now_ms)
    _wait(t, step, max(LEAST_WAIT_MS, _patience_ms(t, step)))


def look_again(t: Transition, step: Step) -> bool:
    """Ask once more for a step that has had no answer; tell whether it should keep waiting."""
    patience_ms = _patience_ms(t, step)
    if nearest(t.now_ms + patience_ms) <= t.now_ms:  # less than times are kept with
        return False
    _wait(t, step, patience_ms)
    return True


def ask_of(t: Transition, step: Step) -> LookUpCache:
    """Return the lookup of a step whose output is being looked up."""
    assert step.cache_key is not None, step.key
    assert step.node.cache is not None, step.key
    return LookUpCache(
        key=step.cache_key,
        tenant=t.run.tenant,
        run_id=t.run.run_id,
        step=step.key,
        ttl_ms=step.node.cache.ttl_ms,
        claim_until_ms=max(t.run.deadline_seen_at_ms(t.now_ms), t.now_ms + step.node.timeout_ms),
    )


def fill(t: Transition, step: Step, output: Json, cost_usd: Decimal) -> None:
    """Hand a step's output to the cache, if it holds the entry's key."""
    if step.cache_key is None:
        return
    assert step.node.cache is not None, step.key
    t.commands.append(
        FillCache(
            key=step.cache_key,
            tenant=t.run.tenant,
            run_id=t.run.run_id,
            step=step.key,
            ttl_ms=step.node.cache.ttl_ms,
            output=output.value,
            cost_usd=cost_usd,
        )
    )
    step.cache_key = None


def key_of(t: Transition, step: Step) -> str:
    """Return the key of a step's entry: a hash of tenant, node type, own fields, and its input or,
    if given, the value of `cache.key` (`content_hash` of an object with all of these)."""
    plan = step.node.plan
    if plan.cache_key is None:
        value = f'"input":{canonical(step.input.value)}'
    else:
        text = canonical(plan.cache_key(names_at(t, step)))
        t.account.spend(max(0, len(text) - FREE_KEY_CHARS) // CHARS_PER_OPERATION)
        value = f'"key":{text}'
    found = _own_fields(step.node).copy()
    tenant, kind = canonical(t.run.tenant), canonical(step.node.type)
    found.update(f',{value},"tenant":{tenant},"type":{kind}}}'.encode())
    key: str = found.hexdigest()
    return key


def _own_fields(node: Node) -> Any:
    """Return the SHA-256 of what the keys of all steps of a node begin with: up to 1 MB, and a map
    asks for thousands of keys at once."""
    if node.cached_fields is None:
        text = f'{{"config":{canonical(node.own_fields)}'
        node.cached_fields = sha256(text.encode())
    return node.cached_fields


def _wait(t: Transition, step: Step, patience_ms: float) -> None:
    step.wake_at_ms = nearest(t.now_ms + min(ASK_AGAIN_MS, patience_ms))
    t.keep(step)
    t.commands.append(ask_of(t, step))


def _patience_ms(t: Transition, step: Step) -> float:
    """Return how long (ms) waiting for another step's output still beats computing it: while there
    is slack, or for as long as computing would take, and never longer than an attempt may take."""
    forecast = t.forecast_of(step)
    waited_ms = t.now_ms - step.ready_at_ms
    slack_ms = forecast.slack_ms(t.run.deadline_seen_at_ms(t.now_ms), t.now_ms)
    bound_ms = max(slack_ms, forecast.mean_ms - waited_ms)
    return min(step.node.timeout_ms - waited_ms, bound_ms)
