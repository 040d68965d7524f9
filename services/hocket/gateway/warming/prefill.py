"""Prefills prompts ahead of time: the known prefix of a run's next prompt is sent to a replica,
asking for one token, while the preceding steps still run.

This applies only to models that choose replicas by prefix locality, which then send the real call
to the same replica. Nothing is sent if the prefix is already cached, if calls wait for the model's
slots, or if MAX_AT_ONCE prefills are running, so prefills never get in the way of calls. Their cost
is booked like any call of the node, under an id that ends with `:prefill`, and charged to the run.
Only the leading gateway prefills, and only it knows where the prefix is cached.
"""

from collections.abc import Callable

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from pydantic import ValidationError

from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.capacity.membership import Membership
from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.core.calls.request_content import PREFILL
from hocket.gateway.core.config.table import ModelSpec, RoutingTable
from hocket.gateway.core.errors import CallIdReused, GatewayFull, ModelNotGranted
from hocket.gateway.core.routing.locality import prompt_of
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import (
    Attribution,
    CallReply,
    CallRequest,
    Priority,
    PromptExpected,
)

MIN_TOKENS = 256
"""The least number of uncached tokens that is worth a call."""
MAX_AT_ONCE = 32
SUFFIX = ":prefill"

log = structlog.get_logger()
_reporting = Reporting()


class Prefilling:
    """Sends known prompt prefixes to replicas before calls need them, between `open` and `close`."""

    def __init__(
        self,
        bus: Bus,
        membership: Membership,
        scheduler: CallScheduler,
        registry: CallRegistry,
        table: Callable[[], RoutingTable],
        now_ms: Callable[[], float],
        metrics: GatewayMetrics,
    ) -> None:
        self._bus = bus
        self._membership = membership
        self._scheduler = scheduler
        self._registry = registry
        self._table = table
        self._now_ms = now_ms
        self._metrics = metrics
        self._under_way = 0
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Subscribe to expected prompts."""
        self._subscription = await self._bus.subscribe(subjects.PROMPT_EXPECTED, self._on_prompt)

    async def close(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    async def _on_prompt(self, message: Msg) -> None:
        if not self._membership.leads:
            return
        try:
            expected = PromptExpected.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("prompt_expected_malformed"):
                log.warning("prompt_expected_malformed", reason=str(error)[:500], count=count)
            return
        self._metrics.prefills.labels(self._begin(expected)).inc()

    def _begin(self, expected: PromptExpected) -> str:
        """Prefill a prefix if it is worth it; return what was done."""
        table = self._table()
        if table.aliases.get(expected.model, expected.model) not in table.models:
            return "unknown"
        model = table.model(expected.model)
        if model.choose != "locality":
            return "not_local"
        request = _request(expected)
        prompt = prompt_of(request, model.block_tokens)
        caches, now_ms = self._scheduler.caches, self._now_ms()
        if prompt.tokens - caches.most_cached(model.backends, prompt, now_ms) < MIN_TOKENS:
            return "cached"
        if self._under_way >= MAX_AT_ONCE or self._is_waited_for(model):
            return "busy"
        try:
            reply = self._registry.begin(request)
        except (CallIdReused, GatewayFull):
            return "busy"
        except ModelNotGranted:
            return "not_granted"
        self._under_way += 1
        reply.add_done_callback(lambda made: self._ended(made.result()))
        return "sent"

    def _is_waited_for(self, model: ModelSpec) -> bool:
        """Return whether calls wait for a slot at a model."""
        pools = {spec.pool for spec in model.backends}
        return any(self._scheduler.queue.lines.waiting(pool) for pool in pools)

    def _ended(self, reply: CallReply) -> None:
        self._under_way -= 1
        if reply.error is not None:
            log.info("prefill_failed", call_id=reply.call_id, code=reply.error.code)


def _request(expected: PromptExpected) -> CallRequest:
    return CallRequest(
        call_id=f"{expected.run_id}:{expected.node}{SUFFIX}",
        model=expected.model,
        messages=expected.messages,
        task=PREFILL,
        max_tokens=1,
        deadline_at_ms=expected.deadline_at_ms,
        priority=Priority.BATCH,
        requires=expected.requires,
        budget_usd=expected.budget_usd,
        budget_left_usd=expected.budget_left_usd,
        root_budget=expected.root_budget,
        attribution=Attribution(
            tenant=expected.tenant,
            pipeline=expected.pipeline,
            version=expected.version,
            run_id=expected.run_id,
            node=expected.node,
        ),
    )
