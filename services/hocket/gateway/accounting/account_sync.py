"""Keeps accounts that gateways share in sync: this gateway's line in each is raised before it
spends more.

An account is read when its first call arrives; if no gateway has it in the bucket, the ledger is
asked what was spent from it before. It is added to the bucket when something is claimed from it, and
leaves it soon if nothing was spent: calls that cost nothing must not fill the bucket. While calls
arrive, a gateway claims a little more than they need, so that most of them need not wait, and
FLUSH_S after a call has ended it gives back what it does not need. While calls wait because of the
claims of others, those claims are read again every POLL_S. At most one write per account is in
progress. Errors are never raised: while NATS is unreachable writes are retried. An account for which
the bucket has no room is not shared: instead, the ledger is asked every METERED_MS, while calls
arrive, what the others have spent from it. What neither of them spent (`_with_charges`) is written to
the account, too.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from decimal import ROUND_UP, Decimal

import structlog

from hocket.gateway.accounting.budget_store import RUN_KEYS, key_of
from hocket.gateway.accounting.shared_budgets import Peers, SharedBudgets
from hocket.gateway.accounting.spent_before import AccountMeter, is_of_ours
from hocket.gateway.core.budgets.budget import Account, Budgets, Published
from hocket.gateway.core.budgets.estimate import Estimate
from hocket.gateway.core.budgets.shared_account import Line, SharedAccount
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.kit.nats.kv.entry import RevisionPassed
from hocket.kit.nats.streams import StreamRefused

FLUSH_S = 0.1
POLL_S = 0.1
RETRY_S = 0.5
RUN_KEPT_S = 3_600.0
"""How long a run's account stays in the bucket without a call;
by then the ledger knows what the run spent."""
LATE_S = 3_600.0
"""How long an account stays in the bucket after its period has ended."""
EMPTY_KEPT_S = 10.0
"""How long an account stays in the bucket if nothing was spent from it and nobody claims any of it."""
ALONE_MS = 60_000.0
"""How long an account for which the bucket has no room stays unshared before sharing is tried again."""
MAX_TRIES = 100
SPARE_CALLS = 32
SPARE_SHARE = Decimal("0.02")
"""Limits on the amount claimed beyond the needs of current calls: enough for SPARE_CALLS more
calls, this share of the budget, and an eighth (SPARE_PART) of this gateway's part of what is
left."""
SPARE_PART = 8
_NOTHING = Decimal(0)
_DIGITS = Decimal("1e-13")

log = structlog.get_logger()
_reporting = Reporting()


class AccountSync:
    """Keeps the claims of this gateway.

    `wishes` returns the estimates of the calls waiting for an account, in order; `changed` is
    called when an account was written or read.
    """

    def __init__(
        self,
        shared: SharedBudgets,
        budgets: Budgets,
        now_ms: Callable[[], float],
        wishes: Callable[[Account], Iterable[Estimate]],
        changed: Callable[[Account], None],
    ) -> None:
        self._store = shared.store
        self._peers = shared.peers
        self._budgets = budgets
        self._now_ms = now_ms
        self._wishes = wishes
        self._changed = changed
        self._running: dict[int, tuple[Account, asyncio.Task[None]]] = {}
        self._again: set[int] = set()
        self._reading: set[int] = set()
        self._later: dict[int, tuple[Account, asyncio.TimerHandle]] = {}
        self._meter = AccountMeter(shared.ledger, now_ms, self._charged)

    async def adopt(self, account: Account, *, metered: bool) -> None:
        """Make sure that an account is read; if `metered` or if the bucket has no room for it,
        including a recent total from the ledger.

        If no ledger knew what had been spent when the account began, or if others than gateways spend
        from a run's, it is asked again; calls do not wait for that."""
        alone = account.alone_until_ms > self._now_ms()
        waits = metered or alone
        if waits or account.is_unknown or _is_charged(account):
            asking = self._meter.asks(account, often=metered and is_of_ours(account))
            if waits and asking is not None:
                await self._meter.wait(asking, account)
        await self._meter.ask_tools(account)
        published = account.published
        if published is None and account.claim_usd is None and not alone:
            account.claim_usd = _NOTHING
            self.need(account)
        elif published is not None and _has_news(account):
            self._reading.add(id(account))  # what other gateways spent meanwhile is no news
            self.need(account)

    def _charged(self, account: Account, more_usd: Decimal) -> None:
        """Count what tools charged more than was known, and what the ledger has of a run's calls; calls
        here see it at once, other gateways after the write."""
        if account.published is not None:
            _folded(account, account.published, self._peers)
        else:  # not read yet, or the bucket has no room for it
            others = account.others
            account.others = Line(others.claim_usd + more_usd, others.spent_usd + more_usd)
        if account.alone_until_ms <= self._now_ms():
            self.need(account)

    def need(self, account: Account) -> None:
        """Write this gateway's line of an account now."""
        mark = id(account)
        if mark in self._running:
            self._again.add(mark)
            return
        self._forget_later(mark)
        task = asyncio.create_task(self._run(account), name="budget claim")
        self._running[mark] = (account, task)
        task.add_done_callback(lambda _: self._ended(mark))

    def later(self, account: Account, after_s: float | None = None, *, read: bool = False) -> None:
        """Write this gateway's line of an account after `after_s` (FLUSH_S if None); if `read`, after
        reading the account again."""
        mark = id(account)
        if read:
            self._reading.add(mark)
        if account.claim_usd is None or mark in self._later:
            return
        within_s = FLUSH_S if after_s is None else after_s
        timer = asyncio.get_running_loop().call_later(within_s, self._due, account)
        self._later[mark] = (account, timer)

    async def close(self, timeout_s: float) -> None:
        """Give back unspent claims, within `timeout_s`."""
        self._meter.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    for account, _ in list(self._later.values()):
                        self.need(account)
                    # a write in progress is followed by another if its account has changed meanwhile
                    tasks = {task for _, task in self._running.values()}
                    if not tasks:
                        break
                    await asyncio.wait(tasks)
                    if self._later:  # a write failed
                        await asyncio.sleep(RETRY_S)
        for _, timer in self._later.values():
            timer.cancel()
        self._later.clear()
        for _, task in self._running.values():
            task.cancel()

    def _due(self, account: Account) -> None:
        self._forget_later(id(account))
        self.need(account)

    def _forget_later(self, mark: int) -> None:
        known = self._later.pop(mark, None)
        if known is not None:
            known[1].cancel()

    def _ended(self, mark: int) -> None:
        account, task = self._running.pop(mark)
        if mark in self._again and not task.cancelled():
            self._again.discard(mark)
            self.need(account)

    async def _run(self, account: Account) -> None:
        try:
            if not await self._write(account) and id(account) in self._again:
                self._again.discard(id(account))  # nothing more can be claimed now
                self.later(account, POLL_S, read=True)
        except PublishRefused as error:
            log.warning("budget_not_shared", budget=account.budget.name, reason=str(error))
            _leave(account, self._now_ms() + ALONE_MS, self._peers)
        except (BusUnavailable, StreamRefused) as error:
            if count := _reporting.due("budget_not_written"):
                log.warning("budget_not_written", reason=str(error), count=count)
            self.later(account, RETRY_S, read=True)
            return
        self._changed(account)

    async def _write(self, account: Account) -> bool:
        """Write this gateway's line, merging what others wrote meanwhile; return whether it changed."""
        mark, me = id(account), self._peers.name
        if account.published is None or mark in self._reading:
            await self._read(account)
        for _ in range(MAX_TRIES):
            known = account.published
            assert known is not None, "it was read"
            metered_usd = account.metered_usd
            shared = _folded(account, known, self._peers)
            line = self._line(account)
            if shared is known.shared and _adds_nothing(line, known):
                account.metered_usd = None
                return False
            before_usd = account.claim_usd or _NOTHING
            account.claim_usd = min(before_usd, line.claim_usd)  # until one of them is confirmed
            try:
                written = shared.with_line(me, line)
                revision = await self._store.put(
                    _key(account),
                    written.encoded(),
                    known.revision,
                    EMPTY_KEPT_S if written.is_empty else _ttl_s(account, self._now_ms()),
                    RUN_KEYS if account.budget.level == "run" else None,
                )
            except RevisionPassed:
                account.claim_usd = before_usd
                await self._read(account)
                continue
            except BaseException:
                self._reading.add(mark)
                raise
            account.published = Published(revision, written, line)
            account.claim_usd = line.claim_usd
            account.others = _with_charges(account, written, me).others(me)
            if account.metered_usd == metered_usd:  # it may have been asked again meanwhile
                account.metered_usd = None
            return True
        raise BusUnavailable(reason=f"{account.budget.name} changes all the time")

    async def _read(self, account: Account) -> None:
        me, known = self._peers.name, account.published
        shared, revision = await self._found(account, known)
        mine = shared.lines.get(me)
        if known is None and mine is not None:  # this gateway had the account, and forgot it
            shared, mine = shared.without({me}), None
        if known is not None and known.line is not None and mine is None:
            # this gateway was declared dead, so that its claim counts as spent; or something foreign
            # overwrote the account, and another gateway began anew without what was known here
            known_usd = known.shared.spent_usd - known.line.spent_usd + account.spent_usd
            shared = shared.spent_at_least(known_usd)
            account.beside_usd += account.spent_usd
            account.spent_usd = _NOTHING
        account.claim_usd = _NOTHING if mine is None else mine.claim_usd
        account.published = Published(revision, shared, mine)
        account.others = _with_charges(account, shared, me).others(me)

    async def _found(self, account: Account, known: Published | None) -> tuple[SharedAccount, int]:
        """Return an account as the bucket has it, or as it begins there, and its revision."""
        # an account of which nothing was spent may have left the bucket, and have come again
        is_new = known is None or _is_unspent(account, known)
        after = 0 if known is None or is_new else known.revision
        value, revision = await self._store.get(_key(account), after)
        self._reading.discard(id(account))
        shared = None if value is None else SharedAccount.decoded(value)
        if shared is None and known is not None and (revision or not is_new):
            shared = known.shared  # it has expired, or something foreign overwrote it
        if shared is None:
            begun = SharedAccount(await self._before_usd(account))
            shared = _with_charges(account, begun, self._peers.name)
        return shared, revision

    async def _before_usd(self, account: Account) -> Decimal:
        """Return what other gateways spent from an account that is not in the bucket.

        If the bucket had no room for it, this gateway has spent from it since, which is part of what
        the ledger knows, and what others had spent before is known."""
        if account.metered_usd is None and not account.beside_usd:
            await self._meter.ask_first(account)
        told_usd = account.metered_usd or _NOTHING
        others_usd = account.others.spent_usd - account.tools_usd
        return max(told_usd - account.spent_usd, others_usd, _NOTHING)

    def _line(self, account: Account) -> Line:
        """Return the line this gateway should write."""
        wishes = list(self._wishes(account))
        claim_usd = self._budgets.claimable_usd(account, wishes)
        calls = len(wishes) + account.under_way.calls
        if calls:
            needed_usd = claim_usd - account.spent_usd
            one_usd = needed_usd / calls
            spare_usd = min(
                one_usd * SPARE_CALLS,
                account.budget.usd * SPARE_SHARE,
                (account.unclaimed_usd(account.budget.usd) - needed_usd)
                / (SPARE_PART * max(len(self._peers.live), 1)),
            )
            claim_usd += spare_usd if spare_usd >= one_usd else _NOTHING
            claim_usd = claim_usd.quantize(_DIGITS, ROUND_UP)
        return Line(claim_usd, account.spent_usd)


def _ttl_s(account: Account, now_ms: float) -> float:
    if account.until_ms is None:
        return RUN_KEPT_S
    return max(account.until_ms - now_ms, 0.0) / 1000 + LATE_S


def _leave(account: Account, until_ms: float, peers: Peers) -> None:
    """Share an account no more until then. What callers know of other spending is still known here, and
    the rest of it comes from the ledger."""
    if account.published is not None:
        less_usd = _folded(account, account.published, peers).tools_usd - account.tools_usd
        others = account.others
        account.others = Line(others.claim_usd - less_usd, others.spent_usd - less_usd)
    account.claim_usd, account.published, account.metered_usd = None, None, None
    account.alone_until_ms = until_ms


def _folded(account: Account, known: Published, peers: Peers) -> SharedAccount:
    """Return the account in the bucket with the lines of dead gateways merged, and with what this
    gateway knows of other spending."""
    shared = known.shared
    if peers.is_leased:
        live = peers.live
        dead = [name for name in shared.lines if name not in live and name != peers.name]
        shared = shared.without(dead)
    if account.metered_usd is not None:
        mine_usd = max(account.claim_usd or _NOTHING, account.spent_usd)
        more = shared.at_least(account.metered_usd, mine_usd, peers.name)
        shared = _without_calls(account, more, more.gone_usd - shared.gone_usd)
    shared = _with_charges(account, shared, peers.name)
    account.booked_usd = account.beside_usd
    if account.budget.level != "run":
        account.tools_usd = shared.tools_usd
    account.others = shared.others(peers.name)
    return shared


def _with_charges(account: Account, shared: SharedAccount, me: str) -> SharedAccount:
    """Return an account with what was spent besides the gateways: at least what the ledger says of
    tools, and of what callers know what no gateway can have spent.

    All that the others claim may be spent, and known to the caller: so nothing counts twice."""
    gateways_usd = shared.others(me).claim_usd - shared.tools_usd
    return shared.charged(max(account.tools_usd, account.beside_usd - gateways_usd))


def _without_calls(account: Account, shared: SharedAccount, calls_usd: Decimal) -> SharedAccount:
    """Return a run's account in which calls that the ledger has told of are counted as calls, and no
    longer as other spending that callers know of."""
    if account.budget.level != "run" or calls_usd <= 0:
        return shared
    others_usd = max(shared.tools_usd - calls_usd, min(account.tools_usd, shared.tools_usd))
    return replace(shared, tools_usd=others_usd)


def _is_charged(account: Account) -> bool:
    """Tell whether others than gateways have spent from a run."""
    if account.budget.level != "run" or account.published is None:
        return False
    return bool(account.published.shared.tools_usd)


def _has_news(account: Account) -> bool:
    """Tell whether callers know of spending that is not in the account as it was last read."""
    return account.beside_usd > max(account.booked_usd, account.others.spent_usd)


def _adds_nothing(line: Line, known: Published) -> bool:
    """Tell whether a line need not be written: it is there already, or it is empty, and no gateway has
    the account in the bucket."""
    return line == known.line or not (line.most_usd or known.line or known.revision)


def _is_unspent(account: Account, known: Published) -> bool:
    """Tell whether nothing was spent from an account and this gateway claims none of it, as far as it
    knows."""
    claims = known.line is not None and known.line.most_usd
    return known.shared.is_unspent and not (account.spent_usd or claims)


def _key(account: Account) -> str:
    budget = account.budget
    return key_of("claims", budget.level, budget.name, f"{account.since_ms:.0f}")
