"""Holds calls to the rates of their tenant and model (`core/rates/`).

Requests and expected tokens are counted before a call is made: about one token per 4 characters,
plus the answers that it allows (each `max_tokens`, or USUAL_OUTPUT_TOKENS). They count until it has
ended, and then its actual usage (`core/rates/minute.py`). Gateways share a rate evenly: each live one
enforces its part, so together they stay within the rate.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets.estimate import USUAL_OUTPUT_TOKENS
from hocket.gateway.core.calls import request_content
from hocket.gateway.core.errors import ModelRateReached
from hocket.gateway.core.rates.minute import SLOT_MS, Minute, Slot
from hocket.gateway.core.rates.rules import Account, RateRule, RateRules
from hocket.schemas.messages import CallRequest, ModelRateState

MAX_ACCOUNTS = 10_000
"""The most accounts of tenants and models; beyond that, the least recently used are dropped."""
MAX_SHOWN = 500
_Key = tuple[Account, int]
"""An account, and how many earlier rules have one with the same key."""


@dataclass(slots=True)
class _Used:
    rule: RateRule
    requests: Minute = field(default_factory=Minute)
    tokens: Minute = field(default_factory=Minute)
    waiting: int = 0
    in_force: RateRule | None = None
    """The account's rule in `looked_up_in`, which changes with the configuration alone."""
    looked_up_in: RateRules | None = None

    def limits(self, tokens: int, shares: int) -> Iterator[tuple[Minute, int, int]]:
        """Yield what a call with so many tokens takes of which minute, and the gateway's limit there."""
        if self.rule.requests_per_min is not None:
            yield self.requests, 1, max(1, self.rule.requests_per_min // shares)
        if self.rule.tokens_per_min is not None:
            yield self.tokens, tokens, max(1, self.rule.tokens_per_min // shares)


@dataclass(frozen=True, slots=True)
class Admission:
    """The tokens that a call is expected to use, and the slots in which it began."""

    expected: int
    counted: tuple[tuple[Minute, Slot], ...]


class ModelRates:
    """The rates of one gateway; `gateways` returns the number of live gateways that share them."""

    def __init__(
        self,
        rules: RateRules,
        now_ms: Callable[[], float],
        gateways: Callable[[], int] = lambda: 1,
    ) -> None:
        self._rules = rules
        self._now_ms = now_ms
        self._gateways = gateways
        self._accounts: OrderedDict[_Key, _Used] = OrderedDict()

    def use(self, rules: RateRules) -> None:
        """Use other rules from now on; usage so far stays counted."""
        self._rules = rules

    async def admit(
        self, request: CallRequest, model: str, cancellation: Cancellation
    ) -> Admission | None:
        """Count the expected usage of a call as soon as there is room; None if no rule applies.

        Raises ModelRateReached if the call must not wait or cannot wait long enough, and the error
        of a stopped call.
        """
        held = self._rules.of(request.attribution.tenant, model)
        if not held:
            return None
        used = self._used(held)
        tokens = _expected_tokens(request)
        while (slot := self._room_at(used, tokens)) > self._slot():
            if self._refuses(used, tokens) or slot * SLOT_MS >= request.deadline_at_ms:
                raise self._reached(request, model, slot)
            await self._wait(used, slot, cancellation)
        return _taken(used, self._slot(), tokens)

    def settle(self, admission: Admission | None, used: int) -> None:
        """Replace the expected tokens of a call that has ended with those that its attempts used."""
        if admission is not None:
            _settle(admission, admission.expected, used, self._slot())

    def add(self, admission: Admission | None, used: int) -> None:
        """Count tokens that a call has used after it was settled."""
        if admission is not None:
            _settle(admission, 0, used, self._slot())

    def states(self) -> tuple[ModelRateState, ...]:
        """Return this gateway's usage of each rate in force, for the most recently used accounts."""
        now, shares = self._slot(), self._shares()
        in_force = islice(self._in_force(), MAX_SHOWN)
        return tuple(
            ModelRateState(
                tenant=tenant,
                model=model,
                requests_per_min=rule.requests_per_min,
                tokens_per_min=rule.tokens_per_min,
                beyond=rule.beyond,
                requests=one.requests.used(now),
                tokens=one.tokens.used(now),
                waiting=one.waiting,
                gateways=shares,
            )
            for (tenant, model), rule, one in reversed(list(in_force))
        )

    def _in_force(self) -> Iterator[tuple[Account, RateRule, _Used]]:
        """Yield the accounts whose rule is in force, the most recently used first."""
        rules = self._rules
        for (account, number), one in reversed(self._accounts.items()):
            if one.looked_up_in is not rules:
                held = rules.of_account(account)
                one.in_force = held[number] if number < len(held) else None
                one.looked_up_in = rules
            if one.in_force is not None:
                yield account, one.in_force, one

    def _used(self, held: Sequence[tuple[Account, RateRule]]) -> list[_Used]:
        """Return the usage of each rule that applies to a call."""
        before: list[Account] = []
        used = []
        for account, rule in held:
            used.append(self._account((account, before.count(account)), rule))
            before.append(account)
        return used

    def _account(self, key: _Key, rule: RateRule) -> _Used:
        used = self._accounts.get(key)
        if used is None:
            used = self._accounts[key] = _Used(rule)
            if len(self._accounts) > MAX_ACCOUNTS:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(key)
        used.rule = rule
        return used

    def _room_at(self, used: list[_Used], tokens: int) -> int:
        """Return the first slot in which all accounts have room, assuming no other calls."""
        now, shares = self._slot(), self._shares()
        return max(
            minute.room_at(now, amount, limit)
            for one in used
            for minute, amount, limit in one.limits(tokens, shares)
        )

    def _refuses(self, used: list[_Used], tokens: int) -> bool:
        """Return whether an account without room lets nobody wait."""
        now, shares = self._slot(), self._shares()
        return any(
            minute.room_at(now, amount, limit) > now
            for one in used
            if one.rule.beyond == "refuse"
            for minute, amount, limit in one.limits(tokens, shares)
        )

    def _reached(self, request: CallRequest, model: str, slot: int) -> ModelRateReached:
        at_ms = slot * SLOT_MS
        return ModelRateReached(
            model=model,
            tenant=request.attribution.tenant,
            wait_s=round(max(0.0, at_ms - self._now_ms()) / 1_000, 1),
            component="gateway",
            retry_at_ms=at_ms,
        )

    async def _wait(self, used: list[_Used], slot: int, cancellation: Cancellation) -> None:
        wait_s = max(0.0, slot * SLOT_MS - self._now_ms()) / 1_000
        for one in used:
            one.waiting += 1
        try:
            await cancellation.guard(asyncio.ensure_future(asyncio.sleep(wait_s)))
        finally:
            for one in used:
                one.waiting -= 1

    def _shares(self) -> int:
        return max(1, self._gateways())

    def _slot(self) -> int:
        return int(self._now_ms() // SLOT_MS)


def _taken(used: list[_Used], now: int, tokens: int) -> Admission:
    """Count a call that begins in slot `now`."""
    for one in used:
        one.requests.take(now, 1)
    return Admission(tokens, tuple((one.tokens, one.tokens.expect(now, tokens)) for one in used))


def _settle(admission: Admission, expected: int, used: int, now: int) -> None:
    for minute, slot in admission.counted:
        minute.settle(slot, expected, used, now)


def _expected_tokens(request: CallRequest) -> int:
    tokens = request_content.tokens(request)
    if request_content.embeds(request):
        return tokens
    answer = request_content.answer_tokens(request, USUAL_OUTPUT_TOKENS)
    return tokens + request_content.choices(request) * answer
