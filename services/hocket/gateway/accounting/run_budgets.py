"""The total budgets of runs (and their labels and pipelines), for calls that do not carry them: a
run has one budget, whichever door its calls come through.

Calls of workers carry the budget, the pipeline and the labels of their run; what is remembered is used
for what they do not carry, unless it is that of another pipeline. A call over HTTP that names a Hocket
run has the budget of that run, for which the ledger is asked; if the call carries a smaller budget,
that one applies. For other runs, the budget that a call last carried applies.

A run's first step may make a call before Postgres has the run, because steps are sent out before
the commit. So if the ledger does not know the run that a call names, the call waits, for PAUSES_S
in total: the run may be stored at any moment, and without its budget every call would be let
through. For the same reason a call fails, with RunBudgetUnknown, if no ledger answers in time.
Once a ledger has answered, none is needed for the run's calls. After PAUSE_MS without one over HTTP or
of a guest it is asked again, because the run may have been deleted, and its key have begun another one
under the same id: what was known is then that of the deleted run, and is replaced. If the ledger has no
run of that id, its labels and pipeline are forgotten, but not its budgets: its calls may go on. If no
ledger answers in time (WAITS_SHARE, WAITS_S), all of it stays, and the ledger is asked again after
PAUSE_MS.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal

import structlog

from hocket.gateway.accounting.spent_before import TIMEOUT_MS, SpentBefore
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets.runs_by_tenant import RunsByTenant
from hocket.gateway.core.errors import CallStopped
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import ids
from hocket.schemas.errors import ErrorClass
from hocket.schemas.messages import CallRequest, RootBudget, SpentAsked, SpentTold

MAX_RUNS = 50_000
"""The most runs whose budgets are remembered."""
UNKNOWN_MS = 1_000.0
"""How long a run unknown to the ledger is assumed to have no budget."""
PAUSE_MS = 60_000.0
"""After how long without a call over HTTP that names it a known run may be another one; and after how
long a question about it that nobody answered is asked again."""
WAITS_S = TIMEOUT_MS / 1000
WAITS_SHARE = 0.2
"""How long a call waits to learn whether it is, and at most which share of the time that it has left."""
PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Pauses before the ledger is asked again about an unknown run,
the first time that the run is named."""
MAX_PATIENT = 16
"""How many unknown runs of one tenant are asked about after each of these pauses. Beyond that, the
ledger is asked about a run once more, after all of them."""

log = structlog.get_logger()


class RunBudgetUnknown(CallStopped):
    """No ledger says what the run `{run_id}` may spend, so the call was not made. Nothing was spent; try
    again later. If this lasts, see whether the ledger runs and reaches Postgres: `hocket doctor`."""

    code = "run_budget_unknown"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


def run_budget_unknown(run_id: str, now_ms: float) -> RunBudgetUnknown:
    """Return the error of a call that names a run of which no ledger tells."""
    retry_at_ms = now_ms + UNKNOWN_MS
    return RunBudgetUnknown(run_id=run_id, component="gateway", retry_at_ms=retry_at_ms)


@dataclass(slots=True)
class _Run:
    budget_usd: Decimal | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    pipeline: str | None = None
    root: RootBudget | None = None
    ask_at_ms: float | None = None
    """When to ask the ledger again; None if it has told, or was not asked."""
    is_stored: bool = False
    """Whether it comes from the ledger and not from a call."""
    accepted_at_ms: float | None = None
    """Told by the ledger; that of a run that has the id of a deleted one is another."""
    named_at_ms: float = 0.0
    """When a call of the HTTP door or of a guest last named it."""

    def learn(self, told: SpentTold) -> bool:
        """Take over what the ledger tells of a run that is stored; return whether it is another run than
        before."""
        before_ms = self.accepted_at_ms
        if told.accepted_at_ms is not None:
            self.accepted_at_ms = told.accepted_at_ms
        self.budget_usd, self.labels = told.budget_usd, told.labels or {}
        self.pipeline, self.root = told.pipeline, told.root_budget
        self.is_stored, self.ask_at_ms = True, None
        return before_ms not in (None, self.accepted_at_ms)

    def forget(self) -> None:
        """Forget the labels and the pipeline of a run that the ledger has no longer. Its budgets stay
        until the ledger tells of another run: they limit calls that still name this one."""
        self.labels, self.pipeline, self.ask_at_ms, self.is_stored = {}, None, None, False


class RunBudgets:
    """Remembers the budgets of runs.

    `replaced` is called with the tenant and the id of a run that was found to be another than before.
    """

    def __init__(
        self,
        ledger: SpentBefore | None,
        now_ms: Callable[[], float],
        replaced: Callable[[str, str], None] = lambda tenant, run_id: None,
    ) -> None:
        self._ledger = ledger
        self._now_ms = now_ms
        self._replaced = replaced
        self._runs: RunsByTenant[_Run] = RunsByTenant(MAX_RUNS)
        self._asking: dict[tuple[str, str], asyncio.Task[bool]] = {}
        self._patient: Counter[str] = Counter()
        """How many unknown runs are asked about again, by tenant."""
        self._is_closed = False

    def known(self, request: CallRequest) -> Decimal | None:
        """Return the budget of a call's run, as far as it is known; calls of workers carry it."""
        if request.openai is None:
            return request.budget_usd
        run = self._known_run(request)
        return _smaller(request.budget_usd, None if run is None else run.budget_usd)

    def labels_of(self, request: CallRequest) -> Mapping[str, str]:
        """Return the labels of a call's run: those that a worker's call carries, or the known ones."""
        carried = request.attribution.labels
        if request.openai is None and carried:
            return carried
        run = self._known_run(request)
        return {} if run is None else run.labels

    def pipeline_of(self, request: CallRequest) -> str | None:
        """Return the pipeline of a call's run: the one that a worker's call carries, or the known
        one."""
        carried = request.attribution.pipeline
        if request.openai is None and carried is not None:
            return carried
        run = self._known_run(request)
        return None if run is None else run.pipeline

    def root_of(self, request: CallRequest) -> RootBudget | None:
        """Return the budget at the top of a call's tree of runs, as far as known;
        calls of workers carry it."""
        if request.root_budget is not None:
            return request.root_budget
        run = self._known_run(request)
        return None if run is None else run.root

    def _known_run(self, request: CallRequest) -> _Run | None:
        """Return what is known of a call's run; None if a worker's call carries another pipeline, as
        that of a run with the id of a deleted one may."""
        who = request.attribution
        run = None if who.run_id is None else self._runs.get(who.tenant, who.run_id)
        if run is None or request.openai is not None or run.pipeline is None:
            return run
        return run if who.pipeline in (None, run.pipeline) else None

    async def of(
        self, request: CallRequest, cancellation: Cancellation | None = None
    ) -> Decimal | None:
        """Return the budget of a call's run; None if it has none. Raises RunBudgetUnknown, and
        CallStopped if the call is cancelled."""
        who = request.attribution
        if who.run_id is None:
            return request.budget_usd
        key = (who.tenant, who.run_id)
        if request.openai is None:
            if request.budget_usd is not None:
                self._run(*key).budget_usd = request.budget_usd
            return request.budget_usd
        if not ids.is_run_id(who.run_id):
            if request.budget_usd is not None:
                self._run(*key).budget_usd = request.budget_usd
            return self.known(request)
        if self._is_due(key) or key in self._asking:
            await self._asked(key, request.deadline_at_ms, cancellation or Cancellation())
        self._run(*key).named_at_ms = self._now_ms()
        return self.known(request)

    async def as_stored(self, request: CallRequest) -> CallRequest:
        """Return a guest's call with the budgets, pipeline and labels of its run as stored in Postgres.

        A guest may omit or raise the budgets it was given, so the smaller run budget applies, and
        always the stored one at the top of the tree. It may also name another pipeline or other
        labels, whose budgets its call would then spend from. Raises RunBudgetUnknown.
        """
        who = request.attribution
        if who.run_id is None:
            return request
        key = (who.tenant, who.run_id)
        if self._is_due(key):
            await self._asked(key, request.deadline_at_ms, Cancellation())
        run = self._run(*key)
        run.named_at_ms = self._now_ms()
        usd = _smaller(request.budget_usd, run.budget_usd)
        if run.is_stored:
            pipeline, labels = run.pipeline or who.pipeline, dict(run.labels) or None
            who = who.model_copy(update={"pipeline": pipeline, "labels": labels})
        return request.model_copy(
            update={
                "budget_usd": usd,
                "root_budget": run.root or request.root_budget,
                "attribution": who,
            }
        )

    async def close(self) -> None:
        """Stop asking the ledger, for good."""
        self._is_closed = True
        await stop_tasks(set(self._asking.values()))

    def _is_due(self, key: tuple[str, str]) -> bool:
        """Tell whether the ledger is to be asked about a run: also if its budget is known from a
        worker's call, because its labels and the budget at the top of its tree are not."""
        run, now_ms = self._runs.get(*key), self._now_ms()
        if run is None:
            return True
        if run.is_stored and run.ask_at_ms is None:
            return now_ms - run.named_at_ms > PAUSE_MS
        return (run.ask_at_ms or 0) <= now_ms

    def _is_stored(self, key: tuple[str, str]) -> bool:
        """Tell whether the ledger has told of a run."""
        run = self._runs.get(*key)
        return run is not None and run.is_stored

    async def _asked(
        self, key: tuple[str, str], deadline_at_ms: float, cancellation: Cancellation
    ) -> None:
        """Ask the ledger about a run and wait. Raises CallStopped, and RunBudgetUnknown unless a ledger
        has told of the run before."""
        if self._ledger is None:
            return
        if self._is_stored(key):
            left_s = min(self._left_s(deadline_at_ms) * WAITS_SHARE, WAITS_S)
            if await self._is_told(key, left_s, cancellation) or self._is_stored(key):
                return
        if not await self._is_told(key, self._left_s(deadline_at_ms), cancellation):
            raise run_budget_unknown(key[1], self._now_ms())

    def _left_s(self, deadline_at_ms: float) -> float:
        return max(deadline_at_ms - self._now_ms(), 0.0) / 1000

    async def _is_told(
        self, key: tuple[str, str], within_s: float, cancellation: Cancellation
    ) -> bool:
        """Ask the ledger about a run; return whether it answers within a time. Concurrent callers share
        one question."""
        if self._is_closed:
            return False
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.create_task(self._ask(*key), name="budget of a run")
            self._asking[key] = asking
            asking.add_done_callback(lambda _: self._asking.pop(key))
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                return await cancellation.guard(asyncio.shield(asking))
        return False

    async def _ask(self, tenant: str, run_id: str) -> bool:
        """Learn from the ledger what it knows of a run; return whether it answered."""
        assert self._ledger is not None
        try:
            told = await self._told(self._ledger, SpentAsked(tenant=tenant, run_id=run_id))
        except Exception:
            log.exception("run_budget_not_asked", tenant=tenant, run_id=run_id)
            told = None
        run = self._run(tenant, run_id)  # it may have been pushed out
        if told is None:
            if run.is_stored:  # else each call would wait for it
                run.ask_at_ms = self._now_ms() + PAUSE_MS
            return False
        run.named_at_ms = self._now_ms()
        if not told.run_known:
            run.ask_at_ms = self._now_ms() + UNKNOWN_MS
        elif run.learn(told):
            self._replaced(tenant, run_id)
        return True

    async def _told(self, ledger: SpentBefore, asked: SpentAsked) -> SpentTold | None:
        """Return what the ledger tells of a run; None if none answers. Forgets a run that it has no
        longer: another one with its id may be stored at any moment."""
        run = self._run(asked.tenant, asked.run_id or "")
        if run.is_stored:
            told = await ledger.ask(asked)
            if told is not None and not told.run_known:
                run.forget()
        else:
            told = await ledger.ask_patiently(asked)
        if told is not None and not told.run_known and run.ask_at_ms is None:
            told = await self._told_when_stored(ledger, asked)
        return told

    async def _told_when_stored(self, ledger: SpentBefore, asked: SpentAsked) -> SpentTold | None:
        """Return what the ledger tells of an unknown run, after some pauses; None if none answers."""
        tenant = asked.tenant
        pauses = PAUSES_S if self._patient[tenant] < MAX_PATIENT else (sum(PAUSES_S),)
        self._patient[tenant] += 1
        try:
            for pause_s in pauses:
                await asyncio.sleep(pause_s)
                told = await ledger.ask_patiently(asked)
                if told is None or told.run_known:
                    break
        finally:
            self._patient[tenant] -= 1
            if not self._patient[tenant]:
                del self._patient[tenant]
        return told

    def _run(self, tenant: str, run_id: str) -> _Run:
        return self._runs.of(tenant, run_id, _Run)


def _smaller(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return min((usd for usd in (one, other) if usd is not None), default=None)
