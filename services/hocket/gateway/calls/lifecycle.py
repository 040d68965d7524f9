"""The life of one model call: the experiment arm it takes, its stages, and the reply to its caller.

All retries happen here: `stages.py` chooses the models, `model_attempts.py` decides how often each
is tried. Each attempt (`attempts/`) is announced before it is made and recorded afterwards, and a
reply is returned only once its usage records are acknowledged, so every answer a caller sees has
been booked. Every entry point of the gateway calls this module.
"""

from collections.abc import Callable

import structlog

from hocket.gateway.accounting.spending import Spending
from hocket.gateway.backends.protocol import Chunks
from hocket.gateway.calls.call import Call, UsageRecorder
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.dependencies import CallDependencies, ChargeUntold, model_rates
from hocket.gateway.calls.relay import Relay
from hocket.gateway.calls.reply_summary import ReplySummary
from hocket.gateway.calls.stages import Stages
from hocket.gateway.capacity.occupancy import UsageTracker
from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.config.routes import Routes
from hocket.gateway.experiments.experiments import Assigned, Experiments
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallReply, CallRequest

log = structlog.get_logger()


class Calls:
    """Makes calls using the current routing table."""

    def __init__(
        self,
        routes: Routes,
        *,
        now_ms: Callable[[], float],
        books: UsageRecorder,
        gateway: str = "",
        metrics: GatewayMetrics | None = None,
        usage: UsageTracker | None = None,
        experiments: Experiments | None = None,
        spending: Spending | None = None,
        gateways: Callable[[], int] = lambda: 1,
        charge: ChargeUntold | None = None,
    ) -> None:
        self.scheduler = CallScheduler(routes.table, now_ms, metrics, usage)
        self.spending = spending or Spending(routes.budgets, now_ms)
        self.charge = charge
        """Charges runs for costs that no reply tells; None if runs are not charged here."""
        self._experiments = experiments
        self._routes = routes
        self._now_ms = now_ms
        self.rates = model_rates(routes, now_ms, gateways)
        dependencies = CallDependencies(
            lambda: self._routes,
            self.scheduler,
            self.spending,
            books,
            now_ms,
            gateway,
            metrics,
            self.rates,
            charge,
        )
        self._stages = Stages(dependencies)
        self._replies = ReplySummary(dependencies)

    @property
    def routes(self) -> Routes:
        """The routing table in force, with its backends built."""
        return self._routes

    def replace(self, routes: Routes) -> None:
        """Use another routing table from now on; calls already at backends continue."""
        self._routes = routes
        self.scheduler.replace(routes.table)
        self.spending.use(routes.budgets)
        self.rates.use(routes.rates)
        if self._experiments is not None:
            self._experiments.use(routes.experiments, routes.table)

    async def make(
        self, request: CallRequest, cancellation: Cancellation, chunks: Chunks | None = None
    ) -> CallReply:
        """Make a call and return its reply, which holds a typed error if the call failed.

        `chunks` receives the answer as it is produced.
        """
        call = Call.of(request, cancellation, self._now_ms())
        relay = None if chunks is None else Relay(chunks, cancellation)
        assigned = None
        try:
            call.request = await self.spending.of_run(request, cancellation)
            assigned = self._assign(call)
            reply = await self._stages.make(call, relay)
        except HocketError as error:
            reply = self._replies.refused(call, error.info())
        reply = self._replies.summed(call, reply)
        if assigned is not None and call.is_typical:
            self._count(call, assigned, reply)
        return reply

    async def settle_trailing(self, drain_ms: float, flush_ms: float) -> None:
        """Wait up to `drain_ms` for hedged requests that lost but are still being read,
        then end them."""
        await self._stages.settle_trailing(drain_ms, flush_ms)

    def _assign(self, call: Call) -> Assigned | None:
        """Assign a call to an arm of an experiment, if one applies to it."""
        if self._experiments is None:
            return None
        assigned = self._experiments.assign(call.request)
        if assigned is not None:
            call.model, call.stage = assigned.arm.model, assigned.because
            call.experiment, call.arm = assigned.experiment.name, assigned.arm.name
        return assigned

    def _count(self, call: Call, assigned: Assigned, reply: CallReply) -> None:
        """Count a call for its experiment; if that fails, its caller gets the reply all the same."""
        assert self._experiments is not None
        latency_ms = reply.latency_ms - reply.queue_ms
        try:
            self._experiments.called(
                assigned, reply.error, asked=call.attempts > 0, latency_ms=latency_ms
            )
        except Exception:  # the reply has been paid for
            log.exception("experiment_not_counted", call_id=reply.call_id)
