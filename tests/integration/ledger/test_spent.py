"""What gateways ask the ledger: what was spent, and what a run may spend."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import asyncpg
import pytest
from nats.aio.msg import Msg

from hocket.gateway.accounting import spent_before
from hocket.gateway.accounting.spent_before import SpentBefore
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.database import connect_pool
from hocket.ledger.spent import SpentDoor, spent
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import Attribution, RootBudget, RunParent, SpentAsked, SpentTold
from support.ledger_rig import STARTED_MS, drained, encoded, publish, record, running_ledger

SEALS = Capabilities([b"u" * 32])
RUN = "r" + 24 * "a"


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=2, name="test")
    yield pool
    await pool.close()


async def test_calls_of_the_http_door_have_the_labels_and_the_pipeline_of_the_run_that_they_name(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    await pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at, labels) VALUES ($1, 0, 'acme', 'report', 1, 'running',"
        """ 'standard', '{}', now(), now(), '{"team": "search", "tier": "gold"}')""",
        RUN,
    )
    named = Attribution(tenant="acme", run_id=RUN)
    own = named.model_copy(update={"labels": {"tier": "own", "user": "u"}})
    stranger = own.model_copy(update={"tenant": "other"})
    other = own.model_copy(update={"pipeline": "other"})
    worker = named.model_copy(update={"labels": {"team": "search"}})
    calls = {
        "http:1": (named, {"team": "search", "tier": "gold"}),
        "http:2": (own, {"team": "search", "tier": "gold", "user": "u"}),
        "http:3": (stranger, {"tier": "own", "user": "u"}),
        "http:4": (other, {"team": "search", "tier": "gold", "user": "u"}),
        "r:s:1:1:1": (worker, {"team": "search"}),
        "r:s:1:1:2": (named, None),
    }
    async with running_ledger(bus, pool):
        await publish(
            bus, encoded(*(record(name, attribution=who) for name, (who, _) in calls.items()))
        )
        await drained(bus)
    rows = await pool.fetch("SELECT call_id, labels, pipeline, version FROM hocket.usage")
    assert {row["call_id"]: (row["pipeline"], row["version"]) for row in rows} == {
        "http:1": ("report", 1),
        "http:2": ("report", 1),
        "http:3": (None, None),
        "http:4": ("report", 1),
        "r:s:1:1:1": (None, None),
        "r:s:1:1:2": (None, None),
    }
    found = {row["call_id"]: row["labels"] and json.loads(row["labels"]) for row in rows}
    assert found == {name: labels for name, (_, labels) in calls.items()}
    ledger = SpentBefore(bus, SEALS)
    async with SpentDoor(bus, pool, SEALS).open():
        of_run = await ledger.ask(SpentAsked(tenant="acme", run_id=RUN))
        assert of_run is not None
        assert of_run.labels == {"team": "search", "tier": "gold"}
        for labels, usd in (
            ({"team": "search"}, "0.0004"),
            ({"tier": "gold"}, "0.0003"),
            ({"tier": "x"}, "0"),
        ):
            answer = await ledger.ask(SpentAsked(tenant="acme", labels=labels))
            assert answer == told(usd), labels


ACCEPTED_AT = datetime.fromtimestamp(STARTED_MS / 1000, UTC).replace(microsecond=0)


def told(
    usd: str,
    budget_usd: str | None = None,
    *,
    run_known: bool = False,
    accepted_at_ms: float | None = None,
) -> SpentTold:
    return SpentTold(
        spent_usd=Decimal(usd),
        run_known=run_known,
        pipeline="report" if run_known else None,
        budget_usd=None if budget_usd is None else Decimal(budget_usd),
        accepted_at_ms=accepted_at_ms,
    )


async def test_the_ledger_tells_what_a_run_a_pipeline_and_a_tenant_spent(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    await pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at, budget_usd) VALUES ($1, 0, 'acme', 'report', 1,"
        " 'running', 'standard', '{}', $2, now(), 0.5)",
        RUN,
        ACCEPTED_AT,
    )
    mine = Attribution(tenant="acme", pipeline="report", run_id=RUN)
    calls = [
        record("c1", attribution=mine, cost_usd=Decimal("0.1")),
        record("c2", attribution=mine, cost_usd=Decimal("0.02"), status="cancelled"),
        record("c3", attribution=mine.model_copy(update={"tenant": "other"})),
        record(
            "c4",
            attribution=Attribution(tenant="acme", run_id="agent-7"),
            cost_usd=Decimal("0.003"),
            started_at_ms=STARTED_MS - 1,
        ),
    ]
    async with running_ledger(bus, pool):
        await publish(bus, encoded(*calls))
        await drained(bus)
    ledger = SpentBefore(bus, SEALS)
    acme = SpentAsked(tenant="acme")
    async with SpentDoor(bus, pool, SEALS).open():
        assert [
            await ledger.ask(acme.model_copy(update=asked))
            for asked in (
                {"run_id": RUN},
                {"run_id": "agent-7"},
                {"run_id": "none"},
                {},
                {"since_ms": STARTED_MS},
                {"pipeline": "report"},
                {"pipeline": "other"},
            )
        ] == [
            told("0.12", "0.5", run_known=True, accepted_at_ms=ACCEPTED_AT.timestamp() * 1000),
            told("0.003"),
            told("0"),
            told("0.123"),
            told("0.12"),
            told("0.12"),
            told("0"),
        ]


async def test_the_ledger_tells_the_budget_at_the_top_of_a_sub_runs_tree(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    root = RootBudget(run_id="top", budget_usd=Decimal("0.90"))
    below = RunParent(run_id="top", step="s", attempt=1, partition=0, root_budget=root)
    parents = {RUN: below, "free": below.model_copy(update={"root_budget": None}), "top": None}
    for run_id, parent in parents.items():
        await pool.execute(
            "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
            " input, accepted_at, deadline_at, parent) VALUES ($1, 0, 'acme', 'report', 1,"
            " 'running', 'standard', '{}', now(), now(), $2)",
            run_id,
            None if parent is None else parent.model_dump_json(),
        )
    ledger = SpentBefore(bus, SEALS)
    async with SpentDoor(bus, pool, SEALS).open():
        for run_id, expected in ((RUN, root), ("free", None), ("top", None), ("none", None)):
            answer = await ledger.ask(SpentAsked(tenant="acme", run_id=run_id))
            assert answer is not None
            assert answer.root_budget == expected, run_id


async def test_neither_a_question_nor_an_answer_without_a_seal_counts(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    question = SpentAsked(tenant="acme").model_dump_json().encode()
    async with SpentDoor(bus, pool, SEALS).open():
        assert await SpentBefore(bus, Capabilities([b"o" * 32])).ask(SpentAsked(tenant="a")) is None
        with pytest.raises(BusUnavailable):
            await bus.request(subjects.LEDGER_SPENT, question, timeout_ms=50)

    async def forges(message: object) -> None:
        body = json.dumps({"spent_usd": "0"}).encode()
        bus.respond(message.reply, body)  # type: ignore[attr-defined]

    forger = await bus.subscribe(subjects.LEDGER_SPENT, forges)
    assert await SpentBefore(bus, SEALS).ask(SpentAsked(tenant="acme")) is None
    assert await SpentBefore(bus).ask(SpentAsked(tenant="acme")) == told("0")
    await forger.unsubscribe()


ACCEPTED = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
    accepted_at, deadline_at, budget_usd)
VALUES ($1, 0, 'acme', 'report', 1, 'running', 'standard', '{}', $2, $2, 0.75)
"""


async def spend(pool: asyncpg.Pool, call_id: str, run_id: str, at: datetime) -> None:
    await pool.execute("SELECT hocket.cover_usage($1, 1)", at)
    await pool.execute(
        "INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, cost_usd,"
        " started_at, latency_ms) VALUES ($1, 'acme', $2, 'm', 'b', 'ok', 0.5, $3, 1)",
        call_id,
        run_id,
        at,
    )


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_run_has_not_spent_what_a_deleted_one_with_its_key_did(
    pool: asyncpg.Pool, is_stored: bool
) -> None:
    """A key begins the same run id anew once its run has been deleted."""
    now = datetime.now(UTC)
    before = now - timedelta(days=31)
    await pool.execute(ACCEPTED, RUN, before)
    await spend(pool, "of-the-deleted", RUN, before)
    await spend(pool, "agents", "agent-7", before)
    await pool.execute("DELETE FROM hocket.run")
    if is_stored:
        await pool.execute(ACCEPTED, RUN, now)
        await spend(pool, "early", RUN, now - timedelta(days=2))  # by the clock of its gateway
    await spend(pool, "own", RUN, now)
    asked = SpentAsked(tenant="acme", run_id=RUN)
    of_run = await spent(pool, asked)
    assert of_run.run_known is is_stored
    assert of_run.spent_usd == (Decimal("1") if is_stored else Decimal("0.5"))
    assert of_run.budget_usd == (Decimal("0.75") if is_stored else None)
    of_agent = await spent(pool, asked.model_copy(update={"run_id": "agent-7"}))
    assert of_agent.spent_usd == Decimal("0.5")


async def test_a_call_booked_before_its_run_was_is_not_of_the_next_run_with_its_key(
    pool: asyncpg.Pool,
) -> None:
    now = datetime.now(UTC)
    before = now - timedelta(days=31)
    await spend(pool, "booked-first", RUN, before)
    await pool.execute(ACCEPTED, RUN, before)
    assert await pool.fetchval("SELECT run_id FROM hocket.stray_call") == RUN
    await pool.execute("DELETE FROM hocket.run")
    await pool.execute(ACCEPTED, RUN, now)
    await spend(pool, "own", RUN, now)
    of_run = await spent(pool, SpentAsked(tenant="acme", run_id=RUN))
    assert of_run.spent_usd == Decimal("0.5")


CHARGES = """
INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at, dispatched_at,
    finished_at, facts)
VALUES ($1, $2, $2, $3, 'leaf', 'succeeded', 1, now(), now(), now(),
    jsonb_build_object('charged_usd', $4::text))
"""


async def test_a_run_is_told_what_tools_charged_to_it_and_to_the_runs_below_it(
    pool: asyncpg.Pool,
) -> None:
    parents = {"top": None, "below": "top", "deep": "below", "beside": None}
    for run_id, parent in parents.items():
        await pool.execute(
            "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
            " input, accepted_at, deadline_at, parent) VALUES ($1, 0, 'acme', 'p', 1, 'running',"
            " 'standard', '{}', now(), now(), CASE WHEN $2::text IS NOT NULL"
            " THEN jsonb_build_object('run_id', $2::text) END)",
            run_id,
            parent,
        )
    for run_id, key, kind, usd in (
        ("top", "look", "http", "1"),
        ("top", "write", "llm", "32"),  # its calls are in the ledger
        ("below", "look", "python", "2"),
        ("deep", "look", "mcp", "4"),
        ("beside", "look", "http", "8"),
    ):
        await pool.execute(CHARGES, run_id, key, kind, usd)
    for tenant, run_id, tools_usd in (
        ("acme", "top", 7),
        ("acme", "below", 6),
        ("acme", "beside", 8),
        ("acme", "none", 0),
        ("other", "top", 0),
    ):
        asked = SpentAsked(tenant=tenant, run_id=run_id, tools=True)
        assert (await spent(pool, asked)).tools_usd == tools_usd, (tenant, run_id)
    told_of_calls = await spent(pool, SpentAsked(tenant="acme", run_id="top"))
    assert told_of_calls.tools_usd is None


async def test_a_tenants_flood_of_questions_is_told_that_the_ledger_is_busy_and_no_others(
    bus: Bus, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, asked_of = asyncio.Event(), Counter[str]()

    async def waits(_: asyncpg.Pool, asked: SpentAsked) -> SpentTold:
        asked_of[asked.tenant] += 1
        if asked.tenant == "flood":
            await goes_on.wait()
        return told("1")

    monkeypatch.setattr("hocket.ledger.spent.spent", waits)
    monkeypatch.setattr(spent_before, "MAX_OPEN", 200)
    ledger = SpentBefore(bus, SEALS)
    async with SpentDoor(bus, pool, SEALS).open(), asyncio.TaskGroup() as tasks:
        flood = [
            tasks.create_task(ledger.ask(SpentAsked(tenant="flood", run_id=f"r{number}")))
            for number in range(100)
        ]
        busy, _ = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
        assert {one.result() for one in busy} == {None}
        assert await ledger.ask(SpentAsked(tenant="acme")) == told("1")
        goes_on.set()
    assert asked_of == {"flood": 16, "acme": 1}


async def test_while_postgres_is_away_a_ledger_says_so_at_once(
    bus: Bus, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: asyncpg.Pool, asked: SpentAsked) -> SpentTold:
        raise OSError("connection refused")

    monkeypatch.setattr("hocket.ledger.spent.spent", fails)
    monkeypatch.setattr(spent_before, "TIMEOUT_MS", 60_000.0)
    async with SpentDoor(bus, pool, SEALS).open():
        assert await SpentBefore(bus, SEALS).ask(SpentAsked(tenant="acme")) is None


async def test_a_tenant_has_few_questions_open_and_keeps_no_other_from_asking(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, opened = asyncio.Event(), Counter[str]()

    async def answers(message: Msg) -> None:
        tenant = SpentAsked.model_validate_json(message.data).tenant
        opened[tenant] += 1
        if tenant == "flood":
            waiting.append(message)
        else:
            bus.respond(message.reply, told("1").model_dump_json().encode())
        if goes_on.is_set():
            while waiting:
                bus.respond(waiting.pop().reply, told("2").model_dump_json().encode())

    waiting: list[Msg] = []
    monkeypatch.setattr(spent_before, "TIMEOUT_MS", 60_000.0)
    subscription = await bus.subscribe(subjects.LEDGER_SPENT, answers)
    ledger = SpentBefore(bus)
    async with asyncio.TaskGroup() as tasks:
        flood = [
            tasks.create_task(ledger.ask(SpentAsked(tenant="flood"), 60_000)) for _ in range(30)
        ]
        assert await ledger.ask(SpentAsked(tenant="acme")) == told("1")
        assert opened["flood"] <= spent_before.MAX_OPEN
        assert await ledger.ask(SpentAsked(tenant="flood"), 1) is None, "it had no turn"
        goes_on.set()
        assert await ledger.ask(SpentAsked(tenant="acme")) == told("1")
    assert [one.result() for one in flood] == [told("2")] * 30
    assert opened["flood"] == 30
    assert not ledger._tenants
    await subscription.unsubscribe()
