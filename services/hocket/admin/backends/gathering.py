"""Asks all gateways for the state of their replicas, and merges their answers."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from hocket.admin.backends.errors import GatewayAway
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects
from hocket.schemas.administration.backends import (
    BackendList,
    ModelRate,
    ModelRateList,
    Replica,
    ReplicaAtGateway,
)
from hocket.schemas.messages import BudgetRule, ReplicaState, ReplicasTold

FIRST_S = 2.0
"""How long to wait for the first answer."""
OTHERS_S = 0.5
"""How long to wait for the other gateways' answers; the first answer names these gateways."""
MAX_GATEWAYS = 200


async def gathered(bus: Bus) -> BackendList:
    """Return the replicas as seen by all gateways, or raise GatewayAway if none answers."""
    return put_together(await _asked(bus))


async def gathered_rates(bus: Bus, tenant: str | None) -> ModelRateList:
    """Return the rates of tenants and models over all gateways. A tenant gets its own rates and those
    that apply to all tenants; None returns everything. Raises GatewayAway if no gateway answers."""
    told = await _asked(bus)
    found: dict[tuple[str | None, str | None], ModelRate] = {}
    for state in (state for one in told for state in one.rates):
        if tenant is not None and state.tenant not in (None, tenant):
            continue
        before = found.get((state.tenant, state.model))
        rate = ModelRate.model_validate(state.model_dump(exclude={"gateways"}))
        if before is not None:
            rate = rate.model_copy(
                update={
                    name: getattr(before, name) + getattr(rate, name)
                    for name in ("requests", "tokens", "waiting")
                }
            )
        found[state.tenant, state.model] = rate
    heard = {one.gateway for one in told}
    return ModelRateList(
        rates=tuple(found.values()),
        gateways=tuple(sorted(heard)),
        silent=tuple(sorted(_live({one.gateway: one for one in told}) - heard)),
    )


async def gathered_budgets(bus: Bus) -> tuple[BudgetRule, ...]:
    """Return the budgets of the gateways' configuration, or raise GatewayAway if none answers. If their
    configurations differ, the gateway whose name sorts first is believed."""
    told = sorted(await _asked(bus), key=lambda one: one.gateway)
    found = {(rule.level, rule.name): rule for one in reversed(told) for rule in one.budgets}
    return tuple(found.values())


async def _asked(bus: Bus) -> list[ReplicasTold]:
    told: dict[str, ReplicasTold] = {}
    came = asyncio.Event()

    async def hear(message: Msg) -> None:
        try:
            one = ReplicasTold.model_validate_json(message.data)
        except ValidationError:
            came.set()  # no gateway is listening, or this is not an answer
            return
        if len(told) < MAX_GATEWAYS:
            told[one.gateway] = one
        came.set()

    async def all_came() -> None:
        while not told or not told.keys() >= _live(told):
            came.clear()
            await came.wait()

    inbox = bus.nc.new_inbox()
    try:
        subscription = await bus.subscribe(inbox, hear, confirmed=False)
    except (BusUnavailable, NatsError, OSError) as error:
        raise GatewayAway(reason=str(error) or type(error).__name__) from error
    try:
        bus.publish_nowait(subjects.GATEWAY_STATES, b"{}", reply=inbox)
        async with asyncio.timeout(FIRST_S):
            await came.wait()
        async with asyncio.timeout(OTHERS_S):
            await all_came()
    except TimeoutError:
        pass  # the result says which gateways are missing
    finally:
        await subscription.unsubscribe()
    if not told:
        raise GatewayAway(reason=f"nobody answered on {subjects.GATEWAY_STATES}")
    return list(told.values())


def put_together(told: Sequence[ReplicasTold]) -> BackendList:
    """Merge the reports of several gateways into one list, in the order of the first one's
    configuration."""
    told = sorted(told, key=lambda one: one.gateway)
    seen: dict[str, list[tuple[str, ReplicaState]]] = {}
    for one in told:
        for state in one.replicas:
            seen.setdefault(state.replica, []).append((one.gateway, state))
    heard = {one.gateway for one in told}
    live = {name for one in told for name in one.gateways}
    return BackendList(
        replicas=tuple(_replica(views) for views in seen.values()),
        gateways=tuple(sorted(heard)),
        silent=tuple(sorted(live - heard)),
    )


def _replica(views: list[tuple[str, ReplicaState]]) -> Replica:
    """Return a replica with each gateway's view of it, and the operators' latest order for it."""
    newest = max((state for _, state in views), key=lambda state: state.changed_at_ms or 0.0)
    return Replica(
        replica=newest.replica,
        backend=newest.backend,
        kind=newest.kind,
        models=newest.models,
        drained=newest.drained,
        level=newest.level or None,
        ready_at=_moment(newest.ready_at_ms),
        warm_until=_moment(newest.warm_until_ms),
        by=newest.by,
        reason=newest.reason,
        changed_at=_moment(newest.changed_at_ms),
        in_flight=sum(state.in_flight for _, state in views),
        limit=newest.limit,
        gateways=tuple(
            ReplicaAtGateway(
                gateway=gateway,
                drained=state.drained,
                breaker=state.breaker,
                openings=state.openings,
                in_flight=state.in_flight,
                waiting=state.waiting,
                waiting_by_class=state.waiting_by_class,
                rests_ms=state.rests_ms,
            )
            for gateway, state in views
        ),
    )


def _moment(ms: float | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def _live(told: Mapping[str, ReplicasTold]) -> set[str]:
    return {name for one in told.values() for name in one.gateways}
