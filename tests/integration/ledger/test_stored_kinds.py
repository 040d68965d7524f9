"""What became of a call is written into its row, whichever of the two was committed first."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import asyncpg
import pytest

from hocket.kit.postgres.database import connect_pool
from hocket.ledger import kinds
from hocket.ledger.prices import KnownPrices
from hocket.ledger.records.record import Record, booked
from hocket.ledger.store import insert
from hocket.schemas.messages import Attribution
from support.ledger_rig import record

KINDS = "SELECT call_id, kind FROM {} ORDER BY call_id"


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=2, name="test")
    yield pool
    await pool.close()


def now_ms() -> float:
    return datetime.now(UTC).timestamp() * 1000


async def book(
    pool: asyncpg.Pool, call_id: str, run_id: str, step: str, *, late_s: float = 0, **fields: object
) -> None:
    who = Attribution(tenant="acme", run_id=run_id, step=step, attempt=1)
    one = record(call_id, attribution=who, started_at_ms=now_ms() - late_s * 1000, **fields)
    assert await insert(pool, [booked(one)], KnownPrices()) == 1


async def add_run(pool: asyncpg.Pool, run_id: str, parent: str = "") -> None:
    above, _, step = parent.partition("/")
    await pool.execute(
        """INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,
           input, accepted_at, deadline_at, parent) VALUES ($1, 0, 'acme', 'p', 1, 'running', 'standard',
           '{}', now(), now(), CASE WHEN $2 <> ''
           THEN jsonb_build_object('run_id', $2::text, 'step', $3::text) END)""",
        run_id,
        above,
        step,
    )


async def fail(pool: asyncpg.Pool, run_id: str, step: str) -> None:
    await pool.execute(
        "INSERT INTO hocket.attempt (run_id, key, attempt, outcome, finished_at)"
        " VALUES ($1, $2, 1, 'failed', now())",
        run_id,
        step,
    )


async def found(pool: asyncpg.Pool, table: str = "report.usage") -> dict[str, str]:
    return {row["call_id"]: row["kind"] for row in await pool.fetch(KINDS.format(table))}


async def test_a_failed_attempts_calls_are_retries_at_once_and_then_by_their_rows(
    pool: asyncpg.Pool,
) -> None:
    await add_run(pool, "r")
    await book(pool, "before", "r", "draft")
    await book(pool, "good", "r", "other")
    await fail(pool, "r", "draft")
    await book(pool, "after", "r", "draft")
    told = {"after": "retry", "before": "retry", "good": "call"}
    assert await found(pool) == told
    assert await found(pool, "hocket.usage") == dict.fromkeys(told, "call")
    assert await kinds.settle(pool) == 0  # a booking could still be under way
    assert await found(pool) == told
    assert await kinds.settle(pool, settled_s=0) == 2
    assert await found(pool) == await found(pool, "hocket.usage") == told
    assert await pool.fetchval("SELECT count(*) FROM hocket.kind_change") == 0
    # the note is gone: a call that comes only now brings one of its own
    await book(pool, "late", "r", "draft", late_s=kinds.LATE_S + 1)
    assert (await found(pool))["late"] == "retry"
    assert await kinds.settle(pool, settled_s=0) == 1
    assert (await found(pool, "hocket.usage"))["late"] == "retry"


async def test_a_run_whose_kinds_take_too_long_keeps_no_other(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = ["endless", *(f"r{number}" for number in range(30))]
    for run_id in runs:
        await add_run(pool, run_id)
        await book(pool, run_id, run_id, "draft")
        await fail(pool, run_id, "draft")
    write, tried = kinds._write, []

    async def slow(connection: asyncpg.Connection, some: Sequence[str], timeout_s: float) -> int:
        tried.append(len(some))
        if "endless" in some:
            raise TimeoutError
        return await write(connection, some, timeout_s)

    monkeypatch.setattr(kinds, "_write", slow)
    settled = 0
    for _ in range(2):
        settled += await kinds.settle(pool, settled_s=0)
    assert settled == len(runs) - 1
    assert 1 in tried
    told = dict.fromkeys(runs, "retry")
    assert await found(pool) == told
    assert await found(pool, "hocket.usage") == told | {"endless": "call"}
    assert await pool.fetchval("SELECT array_agg(run_id) FROM hocket.kind_change") == ["endless"]


async def test_a_group_of_the_ledger_is_one_row_while_some_of_its_runs_are_noted(
    pool: asyncpg.Pool,
) -> None:
    for run_id in ("r", "calm"):
        await add_run(pool, run_id)
        await book(pool, f"{run_id}-1", run_id, "draft")
        await book(pool, f"{run_id}-2", run_id, "other")
    await fail(pool, "r", "draft")
    entries = "SELECT kind, entries, cost_usd FROM report.ledger ORDER BY kind"
    told = [("call", 3, Decimal("0.0003")), ("retry", 1, Decimal("0.0001"))]
    assert [tuple(row) for row in await pool.fetch(entries)] == told
    await kinds.settle(pool, settled_s=0)
    assert [tuple(row) for row in await pool.fetch(entries)] == told


async def test_what_branches_spent_that_lost_a_race_is_speculation_in_sub_runs_too(
    pool: asyncpg.Pool,
) -> None:
    await add_run(pool, "r")
    await add_run(pool, "sub", parent="r/race~slow")
    await add_run(pool, "below", parent="sub/again")
    await pool.execute(
        "INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at)"
        " VALUES ('r', 'race', 'race', 'race', 'race', 'open', 1, now())"
    )
    for call_id, run_id, step in (
        ("fast", "r", "race~fast"),
        ("slow", "r", "race~slow"),
        ("sub", "sub", "draft"),
        ("below", "below", "draft"),
    ):
        await book(pool, call_id, run_id, step)
    assert set((await found(pool)).values()) == {"call"}
    await pool.execute(
        """UPDATE hocket.step SET state = 'succeeded', facts = '{"winner": "race~fast"}'"""
    )
    told = {"fast": "call", "slow": "speculation", "sub": "speculation", "below": "speculation"}
    assert await found(pool) == told
    assert await kinds.settle(pool, settled_s=0) == 3
    assert await found(pool) == await found(pool, "hocket.usage") == told


async def test_a_price_is_asked_for_in_the_table_once_and_noted_when_it_changes(
    pool: asyncpg.Pool,
) -> None:
    prices = KnownPrices()

    def call(call_id: str, usd: str) -> Record:
        return booked(record(call_id, input_usd_per_mtok=Decimal(usd), started_at_ms=now_ms()))

    noted = "SELECT input_usd_per_mtok FROM hocket.price ORDER BY 1"
    await insert(pool, [call("a", "1"), call("b", "0")], prices)
    assert not prices.not_in_force([call("c", "1"), call("d", "0")])
    await insert(pool, [call("c", "1"), call("d", "2")], prices)
    assert [row[0] for row in await pool.fetch(noted)] == [1, 2]
    await pool.execute("DELETE FROM hocket.price")
    await insert(pool, [call("e", "2"), call("f", "3")], prices)
    assert [row[0] for row in await pool.fetch(noted)] == [3]
    await insert(pool, [call("g", "1")], KnownPrices())
    assert [row[0] for row in await pool.fetch(noted)] == [1, 3]


SWAPPED = """
SELECT round(other_cost_usd * 1000000) FROM report.model_swap WHERE other_model = 'swinging'
"""


async def test_a_price_that_is_in_force_again_is_the_one_of_comparisons(
    pool: asyncpg.Pool,
) -> None:
    began_ms = now_ms() - 60_000
    first, second = KnownPrices(), KnownPrices()

    def call(number: int, usd: str) -> Record:
        fields = {"model": "swinging", "backend": "s", "input_usd_per_mtok": Decimal(usd)}
        return booked(record(f"c{number}", started_at_ms=began_ms + number * 1_000, **fields))

    async def in_force() -> object:
        last = "SELECT DISTINCT ON (model) input_usd_per_mtok FROM report.prices"
        price = await pool.fetchval(f"{last} ORDER BY model, in_force_at DESC")
        assert await pool.fetchval(SWAPPED) == price
        return price

    await insert(
        pool, [booked(record("steady", started_at_ms=began_ms, input_tokens=1))], KnownPrices()
    )
    await insert(pool, [call(1, "1")], first)
    await insert(pool, [call(10, "2")], first)
    assert await in_force() == 2
    await insert(pool, [call(5, "1"), call(6, "1")], second)  # told of late
    assert await in_force() == 2
    assert len(first.not_in_force([call(20, "1")])) == 1
    await insert(pool, [call(20, "1"), call(15, "2")], first)
    assert await in_force() == 1
    assert not first.not_in_force([call(21, "1"), call(16, "2")])
    await insert(pool, [call(30, "2"), call(31, "3"), call(32, "2")], second)
    assert await in_force() == 2
    await insert(pool, [call(40, "1")], KnownPrices())  # by a ledger that has just started
    assert await in_force() == 1
    firsts = "SELECT input_usd_per_mtok, effective_from FROM report.prices ORDER BY 1"
    assert [row[1].timestamp() * 1000 - began_ms for row in await pool.fetch(firsts)] == [
        pytest.approx(at_ms, abs=1) for at_ms in (1_000, 10_000, 31_000)
    ]


async def test_models_are_compared_with_those_whose_calls_are_of_their_kind(
    pool: asyncpg.Pool,
) -> None:
    def call(model: str, output: int, *usd: str, started_at_ms: float = 0.0) -> Record:
        names = ("input_usd_per_mtok", "output_usd_per_mtok", "request_usd")
        amounts = dict(zip(names, map(Decimal, usd), strict=True))
        fields = {"model": model, "backend": f"at-{model}", "input_tokens": 9, **amounts}
        at_ms = started_at_ms or now_ms()
        return booked(
            record(f"{model}:{output}", output_tokens=output, started_at_ms=at_ms, **fields)
        )

    long_ago = now_ms() - 20 * 86_400_000
    await insert(
        pool,
        [
            call("chat", 5, "1", "2", "0"),
            call("chat", 0, "1", "2", "0"),  # it failed before it said anything
            call("chat-by-request", 5, "0", "0", "1"),
            call("vectors", 0, "1", "0", "0"),
            call("vectors-priced-as-chat", 0, "1", "1", "0"),
            call("ranker-by-request", 0, "0", "0", "1"),
            call("free", 5, "0", "0", "0"),
            call("former-chat", 5, "1", "2", "0", started_at_ms=long_ago),
            call("former-vectors", 0, "1", "0", "0", started_at_ms=long_ago),
            call("former-ranker", 0, "0", "0", "1", started_at_ms=long_ago),
        ],
        KnownPrices(),
    )
    compared: dict[str, set[str]] = {}
    for model, other in await pool.fetch("SELECT model, other_model FROM report.model_swap"):
        compared.setdefault(model, set()).add(other)
    chats = {"chat", "chat-by-request", "former-chat"}
    others = {"vectors", "vectors-priced-as-chat", "ranker-by-request", "former-vectors"}
    assert compared == {
        **{model: chats - {model} for model in ("chat", "chat-by-request")},
        **{model: others - {model} for model in others - {"former-vectors"}},
        "free": chats,
    }


async def test_what_a_tenants_models_are_compared_by_is_not_made_for_all_tenants_first(
    pool: asyncpg.Pool,
) -> None:
    plan = "EXPLAIN SELECT * FROM report.model_swap WHERE tenant = 'acme'"
    made_first = [row[0].strip() for row in await pool.fetch(plan) if "CTE" in row[0]]
    assert made_first == []


async def test_calls_of_a_deleted_run_keep_their_kind_when_its_key_is_used_again(
    pool: asyncpg.Pool,
) -> None:
    run_id = "r" + "0" * 24
    await add_run(pool, run_id)
    await pool.execute("UPDATE hocket.run SET accepted_at = now() - interval '40 days'")
    await book(pool, "of-the-deleted", run_id, "draft", late_s=31 * 86_400)
    assert await kinds.settle(pool, settled_s=0) == 0
    await pool.execute("DELETE FROM hocket.run")
    await add_run(pool, run_id)
    await book(pool, "own", run_id, "draft")
    await book(pool, "early", run_id, "draft", late_s=2 * 86_400)  # by its gateway's clock
    await fail(pool, run_id, "draft")
    told = {"early": "retry", "of-the-deleted": "call", "own": "retry"}
    assert await found(pool) == told
    assert await kinds.settle(pool, settled_s=0) == 2
    assert await found(pool, "hocket.usage") == told
