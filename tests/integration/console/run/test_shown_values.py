"""Inputs and outputs in the console: read as they are stored, and laid out in a thread."""

import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hocket.admin.console.rendering import MAX_SHOWN_CHARS
from hocket.admin.console.run import shown_values
from hocket.admin.console.run.shown_values import indented
from hocket.admin.runs import reads
from hocket.kit.process.limits.tenant_places import TenantPlaces
from support.administration.console_rig import CHILD, PAGE, RUN, add_run, add_step
from support.rest_rig import Rest

COMPARISON = f"/console/compare?a={RUN}&b={CHILD}"
STEP = f"/console/runs/{RUN}/steps/hello"
VALUES = f"/console/runs/{RUN}?view=values"
AS_STORED = """{
  "to": 1.50,
  "all": [
    1,
    "a, b: [c]",
    [],
    {}
  ],
  "sum": 0.0000001,
  "many": 100000000000000000000000
}"""


async def test_values_are_shown_as_postgres_stores_them(rest: Rest) -> None:
    text = '{"sum": 1e-7, "all":[1,"a, b: [c]",[],{ }],"to": 1.50, "many": 1e23}'
    stored = await rest.pool.fetchval("SELECT $1::jsonb::text", text)
    assert indented(stored) == AS_STORED


@pytest.mark.parametrize(
    ("path", "last_read", "kind"),
    [
        (f"/console/runs/{RUN}", "find_run", "run"),
        (VALUES, "find_run", "run"),
        (COMPARISON, "find_run", "run"),
        (STEP, "one_step", "step"),
    ],
    ids=["run", "values", "comparison", "step"],
)
async def test_what_is_deleted_while_its_page_is_built_is_unknown(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, path: str, last_read: str, kind: str
) -> None:
    read: Callable[..., Awaitable[Any]] = getattr(reads, last_read)

    async def then_deleted(*args: Any, **options: Any) -> Any:
        found = await read(*args, **options)
        async with rest.pool.acquire() as connection, connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            for table in ("attempt", "step", "run"):
                await connection.execute(f"DELETE FROM hocket.{table} WHERE run_id = $1", RUN)
        return found

    await _add_both(rest)
    monkeypatch.setattr(reads, last_read, then_deleted)
    answer = await rest.get(path, headers=PAGE)
    assert answer.status == 404, answer.body
    assert f"There is no {kind} <code>" in answer.body


@pytest.mark.parametrize("path", [VALUES, COMPARISON, STEP], ids=["values", "comparison", "step"])
async def test_values_are_laid_out_in_a_thread_without_a_place_for_long_reads(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    held = 0
    seen: list[tuple[bool, int]] = []
    place = TenantPlaces.place
    own_thread = threading.get_ident()

    @asynccontextmanager
    async def counted(places: TenantPlaces, tenant: str) -> AsyncIterator[None]:
        nonlocal held
        async with place(places, tenant):
            held += 1
            yield
            held -= 1

    def laid_out(text: str) -> str:
        seen.append((threading.get_ident() == own_thread, held))
        return indented(text)

    await _add_both(rest)
    monkeypatch.setattr(TenantPlaces, "place", counted)
    monkeypatch.setattr(shown_values, "indented", laid_out)
    assert (await rest.get(path, headers=PAGE)).status == 200
    assert seen
    assert set(seen) == {(False, 0)}


async def test_runs_that_differ_after_what_is_shown_are_not_said_to_be_the_same(
    rest: Rest,
) -> None:
    for run_id, end in ((RUN, "a"), (CHILD, "b")):
        long = "x" * MAX_SHOWN_CHARS + end
        await add_run(rest, run_id, input={"text": long}, output=long)
    differ = (await rest.get(COMPARISON, headers=PAGE)).body
    alike = (await rest.get(f"/console/compare?a={RUN}&b={RUN}", headers=PAGE)).body

    for name in ("Input", "Output"):
        assert f"{name}: the same in the part that is compared here; they differ" in differ
        assert f"{name}: the same in both." in alike


async def test_the_edited_input_of_a_retry_is_read_only_with_the_values(rest: Rest) -> None:
    origin = {"run_id": CHILD, "operation": "retry", "from_step": "hello"}
    edited = {**origin, "step_input": {"text": "edited"}}
    await add_run(rest)
    facts = json.dumps({"origin": edited})
    await rest.pool.execute("UPDATE hocket.run SET facts = $2 WHERE run_id = $1", RUN, facts)
    for values, told in ((False, origin), (True, edited)):
        row = await reads.run_row(rest.pool, "default", RUN, values=values)
        assert json.loads(row["origin"]) == told


async def _add_both(rest: Rest) -> None:
    for run_id in (RUN, CHILD):
        await add_run(rest, run_id)
    await add_step(rest, "hello")
