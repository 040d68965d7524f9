"""The demo's data in a real Postgres, and questions over it; expected figures come from molmass."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from molmass import ELEMENTS

from hocket.schemas.messages import Document
from hocket.workers.demo.catalog import catalog
from hocket.workers.demo.load import READER, load_tables, write_texts
from hocket.workers.extractive.answering import answer
from hocket.workers.extractive.drafts import Draft
from hocket.workers.extractive.planning import Plan, plan_question, value_selects
from hocket.workers.extractive.verification import verify
from hocket.workers.retrieval.connections import IndexConnections
from hocket.workers.retrieval.index import add_folder
from hocket.workers.retrieval.search import search
from hocket.workers.sql.runner import run_query
from hocket.workers.sql.targets import Target, TargetSettings

PASSWORD = "only for 'tests'"
TIMEOUT_MS = 10_000
MAX_LOAD_S = 2.0
TRIALS = 3


@pytest.fixture(scope="module")
async def pool(module_database_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(module_database_url, min_size=1, max_size=3, timeout=10) as made:
        async with made.acquire() as connection:
            assert await load_tables(connection, reader_password=PASSWORD, timeout_ms=TIMEOUT_MS)
        yield made


@pytest.fixture(scope="module")
async def reader(module_database_url: str, pool: asyncpg.Pool) -> AsyncIterator[Target]:
    """The demo's database as a SQL node sees it."""
    settings = TargetSettings(url=_as_reader(module_database_url), tables=("demo_data.*",))
    target = Target("demo", settings)
    yield target
    await target.close()


def _as_reader(url: str) -> str:
    parts = urlsplit(url)
    address = parts.netloc.rsplit("@", 1)[-1]
    return urlunsplit(parts._replace(netloc=f"{READER}:only%20for%20%27tests%27@{address}"))


async def test_the_tables_hold_what_the_package_holds(pool: asyncpg.Pool) -> None:
    row = await pool.fetchrow("SELECT * FROM demo_data.element WHERE name = 'Tungsten'")
    source = ELEMENTS["W"]
    assert row is not None
    assert (row["number"], row["symbol"], row["period"]) == (74, "W", source.period)
    assert float(row["melting_point_k"]) == source.tmelt
    assert float(row["density_g_per_cm3"]) == source.density
    counts = {
        "element": len(ELEMENTS),
        "isotope": sum(len(element.isotopes) for element in ELEMENTS),
        "ionization_energy": sum(len(element.ionenergy) for element in ELEMENTS),
    }
    for table, expected in counts.items():
        assert await pool.fetchval(f"SELECT count(*) FROM demo_data.{table}") == expected
    abundance = await pool.fetchval(
        "SELECT sum(abundance) FROM demo_data.isotope WHERE number = 50"
    )
    assert abundance == Decimal(1)


async def test_gases_have_their_density_in_the_unit_of_the_column(pool: asyncpg.Pool) -> None:
    found = await pool.fetch(
        "SELECT symbol, density_g_per_cm3 AS density FROM demo_data.element WHERE state = 'gas'"
    )
    assert {row["symbol"] for row in found} == {
        "H", "He", "N", "O", "F", "Ne", "Cl", "Ar", "Kr", "Xe", "Rn"
    }  # fmt: skip
    for row in found:
        assert float(row["density"]) * 1000 == pytest.approx(ELEMENTS[row["symbol"]].density)


async def test_what_is_not_known_is_null(pool: asyncpg.Pool) -> None:
    unknown = [e.name for e in ELEMENTS if not e.eleneg]
    found = await pool.fetch(
        "SELECT name FROM demo_data.element WHERE electronegativity IS NULL ORDER BY number"
    )
    assert [row["name"] for row in found] == unknown


async def test_loading_again_writes_nothing(pool: asyncpg.Pool) -> None:
    before = await pool.fetchval(
        "SELECT oid FROM pg_class WHERE oid = 'demo_data.element'::regclass"
    )
    took_s = []
    for _ in range(TRIALS):
        began_s = perf_counter()
        async with pool.acquire() as connection:
            loaded = await load_tables(connection, reader_password=PASSWORD, timeout_ms=TIMEOUT_MS)
        took_s.append(perf_counter() - began_s)
        assert not loaded
    assert min(took_s) < MAX_LOAD_S, took_s  # a busy machine only ever makes it later
    assert before == await pool.fetchval("SELECT 'demo_data.element'::regclass::oid")


async def test_every_table_and_figure_is_described(pool: asyncpg.Pool) -> None:
    bare = await pool.fetch(
        "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = 'demo_data' AND relkind IN ('r', 'v') AND obj_description(c.oid) IS NULL"
    )
    assert bare == []


async def test_the_reader_reads_the_demo_and_nothing_else(
    module_database_url: str, pool: asyncpg.Pool
) -> None:
    await pool.execute("CREATE TABLE IF NOT EXISTS public.private (secret text)")
    connection = await asyncpg.connect(_as_reader(module_database_url), timeout=10)
    try:
        assert await connection.fetchval("SELECT count(*) FROM demo_data.element") == 109
        for statement in (
            "SELECT * FROM public.private",
            "SELECT * FROM retrieval.chunk",
            "SELECT * FROM hocket.run",
            "DELETE FROM demo_data.element",
            "SET default_transaction_read_only = off; DELETE FROM demo_data.element",
            "CREATE TABLE demo_data.mine (a int)",
        ):
            with pytest.raises(asyncpg.PostgresError):
                await connection.execute(statement)
    finally:
        await connection.close()


async def test_texts_are_written_once_and_strangers_removed(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    assert write_texts(folder) == 109
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    (folder / "stranger.md").write_text("old")
    assert write_texts(folder) == 109
    assert before == {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert ELEMENTS["Au"].description in (folder / "079-gold.md").read_text()


async def test_every_query_of_the_catalog_passes_the_guard_and_finds_rows(reader: Target) -> None:
    given = {"element": "Iron", "property": "melting point", "series": "Noble gases", "limit": 3}
    queries = catalog()
    assert 8 <= len(queries) <= 12
    for query in queries:
        params = {name: given[name] for name in query.params}
        result = await run_query(reader, query.sql, params, timeout_ms=TIMEOUT_MS, max_rows=200)
        assert result.rows, query.name


# ---- questions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A question's way: its plan, its evidence and its draft."""

    question: str
    plan: Plan
    passages: list[Document]
    tables: list[Document]
    draft: Draft

    def accepts(self, text: str) -> bool:
        return verify(text, self.passages, self.tables, question=self.question).ok


class Report:
    """The demo's pipeline without a runtime: plan, search and query, draft."""

    def __init__(self, pool: asyncpg.Pool, reader: Target) -> None:
        self._pool = pool
        self._reader = reader

    async def ask(self, question: str) -> Asked:
        values = {
            select: [row[0] for row in (await self._query(select, {})).rows]
            for select in value_selects(catalog())
        }
        plan = plan_question(question, catalog(), values)
        tables = []
        for number, query in enumerate(plan.queries, 1):
            result = await self._query(query.sql, dict(query.params))
            tables.append(
                Document(
                    id=f"S{number}",
                    kind="table",
                    title=query.name,
                    source=result.sql,
                    columns=result.columns,
                    rows=result.rows,
                )
            )
        found = await search(
            IndexConnections(self._pool),
            "elements",
            plan.searches,
            tenant="default",
            top_k=6,
            timeout_ms=TIMEOUT_MS,
        )
        passages = [
            Document(id=f"P{number}", title=one.title, source=one.source, text=one.text)
            for number, one in enumerate(found, 1)
        ]
        return Asked(question, plan, passages, tables, answer(question, passages, tables))

    async def _query(self, sql: str, params: dict[str, object]):  # type: ignore[no-untyped-def]
        return await run_query(self._reader, sql, params, timeout_ms=TIMEOUT_MS, max_rows=200)


@pytest.fixture(scope="module")
async def report(
    pool: asyncpg.Pool, reader: Target, tmp_path_factory: pytest.TempPathFactory
) -> Report:
    texts = tmp_path_factory.mktemp("texts")
    write_texts(texts)
    await add_folder(pool, texts, "elements", tenant="default")
    return Report(pool, reader)


async def test_a_ranking_and_a_text_are_answered_with_the_packages_figures(report: Report) -> None:
    asked = await report.ask(
        "Which five elements have the highest melting points, and what are tungsten alloys used for?"
    )
    top = sorted(ELEMENTS, key=lambda element: -element.tmelt)[:5]
    lines = asked.draft.text.splitlines()
    assert asked.draft.status == "answered"
    assert [line.partition(" \u2013 ")[0] for line in lines[:5]] == [e.name for e in top]
    assert [float(_figure(line)) for line in lines[:5]] == [e.tmelt for e in top]
    assert lines[5].startswith('Hafnium: "Used in tungsten alloys in filaments')
    assert len(lines) == 6
    assert asked.accepts(asked.draft.text)


async def test_a_comparison_of_averages_is_answered_with_the_packages_figures(
    report: Report,
) -> None:
    asked = await report.ask(
        "Compare the average boiling point of the alkali metals and the halogens."
    )
    expected = {}
    for name, series in (("Alkali metals", 3), ("Halogens", 6)):
        known = [Decimal(repr(e.tboil)) for e in ELEMENTS if e.series == series and e.tboil]
        expected[name] = sum(known) / len(known)
    lines = asked.draft.text.splitlines()
    assert [line.partition(" \u2013 ")[0] for line in lines] == list(expected)
    for line, average in zip(lines, expected.values(), strict=True):
        assert abs(Decimal(_figure(line)) - average) <= Decimal("0.0005")
    assert asked.accepts(asked.draft.text)


@pytest.mark.parametrize(
    "question",
    [
        "What is the price of gold per gram?",
        "What is the boiling point of water?",
        "Which country produces the most polonium?",
        "How many people live in Berlin?",
    ],
)
async def test_what_neither_side_holds_is_not_in_the_data(report: Report, question: str) -> None:
    asked = await report.ask(question)
    assert asked.draft.status == "not_in_data"
    assert asked.draft.text == "Not in the data: nothing found answers this."
    assert asked.accepts(asked.draft.text)


async def test_every_tampered_figure_of_a_real_answer_is_refused(report: Report) -> None:
    asked = await report.ask("Which five elements are the densest, and who discovered iridium?")
    text = asked.draft.text
    assert asked.draft.status == "answered"
    assert asked.accepts(text)
    markers = [match.span() for match in re.finditer(r"\[[^\]]*\]", text)]
    digits = [
        place
        for place, char in enumerate(text)
        if char.isdigit() and not any(start <= place < end for start, end in markers)
    ]
    assert len(digits) >= 24
    for place in digits:
        for other in "0123456789".replace(text[place], ""):
            assert not asked.accepts(text[:place] + other + text[place + 1 :])


def _figure(line: str) -> str:
    found = re.search(r": (-?[\d.]+)", line)
    assert found, line
    return found[1]
