"""Asks the ledger what runs, pipelines and tenants have spent, and what a run may spend.

A ledger is asked when a gateway meets an account that is not in the gateways' bucket, and from time
to time while calls over HTTP name a run, because other calls may have come without its budget. A
tenant has few questions open at once, whatever its calls name, so that it does not use up the places
of the ledgers; its further ones wait. If no ledger answers, or all are busy, the caller decides:
most calls go ahead with what the gateways know themselves.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal

import structlog
from pydantic import ValidationError

from hocket.gateway.core.budgets.budget import Account
from hocket.gateway.core.budgets.shared_account import Line
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import SEAL, Capabilities, answer_to, sealed
from hocket.schemas.messages import SpentAsked, SpentTold

METERED_MS = 5_000.0
"""How old the ledger's answer may be: for runs whose calls do not come from their coordinator's
workers, for accounts that are not shared, and for tool charges."""
RUN_METERED_MS = 100.0
"""How old it may be for a run of ours that a call over HTTP names: tools may charge the run at any time,
and nothing but the ledger tells of it."""
PAUSE_FACTOR = 5
"""For so many times as long as the ledger took to answer, it is not asked again: a run may have
thousands of sub-runs."""
TIMEOUT_MS = 1_000.0
CALL_WAITS_S = 2 * TIMEOUT_MS / 1000
"""How long a call waits for a question that may take long: for its turn, and an answer."""
LONG_TIMEOUT_MS = 6_000.0
"""... and the question itself for an answer: a little longer than a ledger takes at most."""
MAX_OPEN = 8
"""The most questions of one tenant that are open at once."""
MAX_LONG = 4
"""How many of them may take long, so that the others get their turn."""
PATIENCE_S = 10.0
"""How long a ledger is asked about a run of ours whose budget, or spending, nobody knows here."""
RETRY_S = 0.2
NONCE_BYTES = 8
_NOTHING = Decimal(0)

log = structlog.get_logger()
_reporting = Reporting()


class _NoAnswer(Exception):
    """Somebody else than a ledger answered, or one that is busy."""


@dataclass(slots=True)
class _Tenant:
    """The turns of a tenant's questions, and how many have or want one."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_OPEN))
    long_turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_LONG))
    questions: int = 0


class SpentBefore:
    """Asks the ledgers."""

    def __init__(self, bus: Bus, seals: Capabilities | None = None) -> None:
        self._bus = bus
        self._seals = seals
        self._tenants: dict[str, _Tenant] = {}

    async def ask(
        self, asked: SpentAsked, waits_ms: float = TIMEOUT_MS, *, is_long: bool = False
    ) -> SpentTold | None:
        """Return the ledger's answer; None if no ledger answers or all are busy, or if other questions
        of the tenant were open for `waits_ms`. An answer may take long if `is_long`."""
        try:
            async with self._turn(asked.tenant, waits_ms, is_long=is_long):
                return await self._answer(asked, LONG_TIMEOUT_MS if is_long else TIMEOUT_MS)
        except TimeoutError:
            reason = f"{MAX_OPEN} questions of the tenant are open"
        except (BusUnavailable, ValidationError, _NoAnswer) as error:
            reason = str(error)
        if count := _reporting.due("spent_before_unknown"):
            log.warning("spent_before_unknown", tenant=asked.tenant, reason=reason, count=count)
        return None

    async def ask_patiently(self, asked: SpentAsked) -> SpentTold | None:
        """Ask again and again while no ledger answers; None if none does within PATIENCE_S."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENCE_S
        while (left_s := until_s - loop.time()) > 0:
            told = await self.ask(asked, left_s * 1000)
            if told is not None:
                return told
            await asyncio.sleep(RETRY_S)
        return None

    async def _answer(self, asked: SpentAsked, timeout_ms: float) -> SpentTold:
        """Return an answer. Raises BusUnavailable, ValidationError and _NoAnswer."""
        asked = asked.model_copy(update={"nonce": os.urandom(NONCE_BYTES).hex()})
        body = asked.model_dump_json().encode()
        subject = subjects.LEDGER_SPENT
        answer = await self._bus.request(
            subject, body, timeout_ms=timeout_ms, headers=sealed(self._seals, subject, body)
        )
        if not self._is_ours(body, answer.data, (answer.headers or {}).get(SEAL, "")):
            raise _NoAnswer("the answer is not sealed by a ledger")
        told = SpentTold.model_validate_json(answer.data)
        if told.busy:
            raise _NoAnswer("the ledger is busy")
        return told

    @asynccontextmanager
    async def _turn(self, tenant: str, waits_ms: float, *, is_long: bool) -> AsyncIterator[None]:
        """Wait for a turn of a tenant's; raise TimeoutError after `waits_ms`."""
        known = self._tenants.setdefault(tenant, _Tenant())
        known.questions += 1
        try:
            async with AsyncExitStack() as held:
                async with asyncio.timeout(waits_ms / 1000):
                    if is_long:
                        await held.enter_async_context(known.long_turns)
                    await held.enter_async_context(known.turns)
                yield
        finally:
            known.questions -= 1
            if not known.questions:
                del self._tenants[tenant]

    def _is_ours(self, asked: bytes, told: bytes, seal: str) -> bool:
        expected = answer_to(subjects.LEDGER_SPENT, asked)
        return self._seals is None or self._seals.is_sealed(seal, expected, told)


class AccountMeter:
    """Asks what was spent from accounts, from time to time.

    `charged` is called when the ledger has told something, with what tools charged more than was known.
    """

    def __init__(
        self,
        ledger: SpentBefore,
        now_ms: Callable[[], float],
        charged: Callable[[Account, Decimal], None],
    ) -> None:
        self._ledger = ledger
        self._now_ms = now_ms
        self._charged = charged
        self._asking: dict[int, asyncio.Task[None]] = {}

    def asks(self, account: Account, *, often: bool) -> asyncio.Task[None] | None:
        """Return the question about an account that is open; a new one if that is due, after
        RUN_METERED_MS if `often`."""
        mark = id(account)
        asking = self._asking.get(mark)
        if asking is not None:
            return asking
        now_ms, at_ms = self._now_ms(), account.metered_at_ms
        pause_ms = METERED_MS
        if often:
            pause_ms = min(max(RUN_METERED_MS, PAUSE_FACTOR * account.metering_ms), METERED_MS)
        if at_ms is not None and now_ms - at_ms <= pause_ms:
            return None
        account.metered_at_ms = now_ms
        asking = asyncio.create_task(self._ask(account, often=often), name="budget total")
        self._asking[mark] = asking
        asking.add_done_callback(lambda _: self._asking.pop(mark))
        return asking

    async def wait(self, asking: asyncio.Task[None], account: Account) -> None:
        """Let a call wait for a question about an account; for one that may take long, CALL_WAITS_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CALL_WAITS_S if _takes_long(account) else None):
                await asyncio.shield(asking)

    async def ask_first(self, account: Account) -> None:
        """Ask what was spent from an account when it begins."""
        told = await self._ledger.ask(_asked(account))
        account.metered_at_ms = self._now_ms()
        account.is_unknown = told is None
        if told is not None:
            account.is_told, account.metered_usd = True, told.spent_usd
            more_usd, others = _more_of_tools(account, told), account.others
            account.tools_usd += more_usd
            account.others = Line(others.claim_usd + more_usd, others.spent_usd + more_usd)

    async def ask_tools(self, account: Account) -> None:
        """Make sure that recent tool charges are known.

        Runs are left out: for them, coordinators send these charges with each call, and for calls over
        HTTP the ledger tells them together with the cost of the calls.
        """
        now_ms, at_ms = self._now_ms(), account.tools_at_ms
        if account.budget.level == "run" or (at_ms is not None and now_ms - at_ms <= METERED_MS):
            return
        account.tools_at_ms = now_ms
        told = await self._ledger.ask(_asked(account).model_copy(update={"tools": True}))
        if told is None or told.tools_usd is None or told.tools_usd <= account.tools_usd:
            return
        more_usd = told.tools_usd - account.tools_usd
        account.tools_usd = told.tools_usd
        self._charged(account, more_usd)

    def close(self) -> None:
        """Ask no more."""
        for asking in self._asking.values():
            asking.cancel()

    async def _ask(self, account: Account, *, often: bool) -> None:
        """Learn from the ledger what was spent from an account; while that is not shared, others have
        spent what this gateway has not."""
        began_ms = self._now_ms()
        if often and not account.is_told:
            told = await self._ledger.ask_patiently(_asked(account))
        elif _takes_long(account):
            told = await self._ledger.ask(_asked(account), is_long=True)
            if told is None:  # the pause begins now
                account.metered_at_ms = self._now_ms()
        else:
            told = await self._ledger.ask(_asked(account))
        account.metering_ms = METERED_MS if told is None else self._now_ms() - began_ms
        if told is None:
            return
        account.is_unknown, account.is_told = False, True
        more_usd = _more_of_tools(account, told)
        account.tools_usd += more_usd
        if account.alone_until_ms <= self._now_ms():
            account.metered_usd = told.spent_usd
        self._charged(account, more_usd)
        if account.alone_until_ms > self._now_ms():
            others, usd = account.others, told.spent_usd - account.spent_usd + account.tools_usd
            account.others = Line(max(others.claim_usd, usd), max(others.spent_usd, usd))


def _takes_long(account: Account) -> bool:
    """Tell whether the ledger may have to add up the calls of a month."""
    return account.budget.level != "run"


def is_of_ours(account: Account) -> bool:
    """Tell whether an account is that of a run of this platform."""
    budget = account.budget
    return budget.level == "run" and ids.is_run_id(budget.name.partition("/")[2])


def _more_of_tools(account: Account, told: SpentTold) -> Decimal:
    """Return by how much the charges of tools to a run, which the ledger tells together with the cost of
    its calls, exceed what was known of them."""
    if account.budget.level != "run" or told.tools_usd is None:
        return _NOTHING
    return max(told.tools_usd - account.tools_usd, _NOTHING)


def _asked(account: Account) -> SpentAsked:
    budget = account.budget
    tenant, _, name = budget.name.partition("/")
    if budget.level == "run":
        return SpentAsked(tenant=tenant, run_id=name, tools=True)
    if budget.level == "pipeline":
        return SpentAsked(tenant=tenant, pipeline=name, since_ms=account.since_ms)
    if budget.level == "label":
        key, _, value = name.partition("=")
        return SpentAsked(tenant=tenant, labels={key: value}, since_ms=account.since_ms)
    return SpentAsked(tenant=tenant, since_ms=account.since_ms)
