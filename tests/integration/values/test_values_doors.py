"""Hostile values through the doors that are not for a task's JSON: pairs of the command line, rows,
references, notes of approvals, addresses, the gateway's HTTP door; and very large ones."""

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import nats.errors
import pytest

from hocket.kit.blobs import FileBlobs
from hocket.kit.embedded import EmbeddedServers
from support.values.comparison import LARGE, same
from support.values.hostile_values import CARRIED, REFUSED, Value, packed
from support.values.value_doors import (
    APPROVES,
    DATABASE,
    READS,
    by_approval,
    by_pair,
    by_row,
    percent,
    raw,
)
from support.values.values_rig import (
    UNSAFE,
    VIEWS,
    House,
    Outcome,
    by_nats,
    by_rest,
    house,
    printed,
)

MAX_TASK_BYTES = 512 * 1024
DEEP_60 = "[" * 60 + "]" * 60


@pytest.fixture(scope="module")
async def hall(servers: EmbeddedServers) -> AsyncIterator[House]:
    database = {"url": servers.database_url, "tables": ["hostile.*"]}
    async with house(READS, APPROVES, databases={DATABASE: database}) as found:
        yield found
        print(f"\n{sum(found.cells.values())} cells (value, door, view) were right:")
        for cell, count in sorted(found.cells.items()):
            print(f"  {count:5} {cell}")


async def shows(hall: House, door: str, outcome: Outcome, expected: Any, name: str) -> None:
    """Check every view of a run that succeeded."""
    assert outcome.status == "succeeded", (door, name, outcome)
    for view, look in VIEWS.items():
        assert same(await look(hall, outcome), expected), (door, name, view)
        hall.cell(door, view)
    if len(json.dumps(expected)) < LARGE:
        assert not UNSAFE.search(await printed(hall, outcome)), (door, name)
        hall.cell(door, "CLI for people")


# ---- pairs of the command line --------------------------------------------------------------


AS_PAIRS = {"not UTF-8": "surrogate", "overlong": "surrogate", "halves, raw": "surrogate"}
"""What the system hands over as halves of surrogate pairs: bytes that are no text."""


async def test_a_pair_of_the_command_line_is_json_or_text(hall: House) -> None:
    for value in [*packed(CARRIED), *REFUSED]:
        if len(value.text) > 100_000:
            continue  # the system takes no longer argument
        text = value.text.decode("utf-8", "surrogateescape")
        outcome = await by_pair(hall, text)
        if value.refused is None:
            await shows(hall, "CLI -i", outcome, value.expected, value.name)
        elif value.refused == "not JSON" and "\x00" not in text:
            await shows(hall, "CLI -i", outcome, text, value.name)
        else:
            assert outcome.refused, (value.name, outcome)
            assert outcome.error["field"].startswith(("-i v", "input.v")), (value.name, outcome)
            wanted = {"not JSON": "U+0000", "UTF-8": "surrogate"}.get(value.refused, value.refused)
            assert wanted in outcome.error["message"], (value.name, outcome.error)
            hall.cell("CLI -i", "refusal")
    await hall.healthy()


# ---- rows of a real Postgres ----------------------------------------------------------------


ROWS: dict[str, Any] = {
    "'NaN'::numeric": "NaN",
    "'Infinity'::numeric": "Infinity",
    "'-Infinity'::numeric": "-Infinity",
    "2::numeric ^ 70": "1180591620717411303424",
    "1180591620717411303424::numeric": "1180591620717411303424",
    "9007199254740993::bigint": "9007199254740993",
    "9007199254740991::bigint": 2**53 - 1,
    "('1' || repeat('0', 5000))::numeric": "1" + "0" * 5_000,
    "'1e-2000'::numeric": f"0.{'0' * 1_999}1",
    "'NaN'::float8": None,
    "'-Infinity'::float8": None,
    "'-0'::float8": -0.0,
    "'infinity'::timestamptz": "infinity",
    "'-infinity'::date": "-infinity",
    "'0044-03-15 BC'::date": "0044-03-15 BC",
    "'99999-01-01'::date": "99999-01-01",
    "'00:00:00'::interval": 0.0,
    "ARRAY['NaN'::float8, 1.5]": [None, 1.5],
    "ARRAY[NULL, 'a']": [None, "a"],
    """'{"a": {"b": [1180591620717411303424, 1.5e300, null]}}'::jsonb""": {
        "a": {"b": [str(2**70), "15" + "0" * 299, None]}
    },
    """'{"__proto__": 1, "": 2}'::jsonb""": {"__proto__": 1, "": 2},
    f"'{DEEP_60}'::jsonb": json.loads(DEEP_60),
    "'{{ 7*7 }}'::text": "{{ 7*7 }}",
    """'"\\ud83d\\ude00"'::json""": "\U0001f600",
    """'{"a": 1, "a": 2}'::json""": {"a": 2},
    """'"a\\u0000b"'::json""": "a\ufffdb",
    """'"\\ud800"'::json""": "\ufffd",
    "NULL": None,
    "true": True,
    "'6f1b1f0e-0000-4000-8000-000000000000'::uuid": "6f1b1f0e-0000-4000-8000-000000000000",
}
"""What a query may give, as it is stored."""
NOT_GIVEN = {
    "'\\x00ff'::bytea": "bytes",
    f"'{'[' * 100}{']' * 100}'::jsonb": "64 levels",
    f"'{'[' * 5_000}{']' * 5_000}'::json": "",
    "repeat('x', 100)::bytea": "bytes",
    "'{' || repeat('1', 5000) || '}'": None,
}


@pytest.mark.timeout(300)
async def test_what_postgres_gives_is_stored_as_json(hall: House) -> None:
    for expression, expected in ROWS.items():
        outcome = await by_row(hall, f"SELECT {expression} AS v")
        await shows(hall, "SQL row", outcome, expected, expression[:80])
    await hall.healthy()


@pytest.mark.timeout(300)
async def test_text_of_a_table_is_read_as_it_stands_there(
    hall: House, servers: EmbeddedServers
) -> None:
    texts = [one.expected for one in CARRIED if isinstance(one.expected, str)]
    connection = await asyncpg.connect(servers.database_url)
    await connection.execute("CREATE SCHEMA hostile; CREATE TABLE hostile.t (id int, said text)")
    await connection.executemany("INSERT INTO hostile.t VALUES ($1, $2)", list(enumerate(texts)))
    try:
        for number, text in enumerate(texts):
            outcome = await by_row(hall, f"SELECT said FROM hostile.t WHERE id = {number}")
            await shows(hall, "SQL text", outcome, text, repr(text[:40]))
    finally:
        await connection.execute("DROP SCHEMA hostile CASCADE")
        await connection.close()
    await hall.healthy()


@pytest.mark.parametrize("expression", NOT_GIVEN)
async def test_what_postgres_gives_and_json_has_not_fails_its_step(
    hall: House, expression: str
) -> None:
    outcome = await by_row(hall, f"SELECT {expression} AS v")
    assert outcome.status == ("failed" if NOT_GIVEN[expression] is not None else "succeeded")
    if outcome.status == "failed":
        assert str(NOT_GIVEN[expression]) in outcome.error["message"], outcome.error
        hall.cell("SQL row", "error")
    assert not UNSAFE.search(await printed(hall, outcome))
    await hall.healthy()


# ---- references to blobs --------------------------------------------------------------------


async def test_a_reference_gives_what_its_tenant_kept_and_nothing_else(hall: House) -> None:
    blobs = FileBlobs(hall.platform.data_dir / "blobs")
    ours = await blobs.put("default", b"kept \xe2\x80\xae")
    theirs = await blobs.put("other", b"theirs")
    nowhere = hashlib.sha256(b"nowhere").hexdigest()
    whole = {"$blob": ours.hash, "size": ours.size, "type": "text"}

    data: list[tuple[str, Any, Any]] = [
        ("a number", {"$blob": 5}, {"$blob": 5}),
        ("null", {"$blob": None, "size": 3}, {"$blob": None, "size": 3}),
        ("in a text", '{"$blob": "x"}', '{"$blob": "x"}'),
        ("another key", {"blob": nowhere, "$Blob": nowhere}, {"blob": nowhere, "$Blob": nowhere}),
        ("ours", whole, "kept \u202e"),
        ("ours, inside", [{"a": whole}], [{"a": "kept \u202e"}]),
    ]
    for name, given, expected in data:
        for door in (by_nats, by_rest):
            outcome = await door(hall, json.dumps(given).encode())
            await shows(hall, "reference", outcome, expected, name)
    refused: list[tuple[str, Any]] = [
        ("another tenant's", {"$blob": theirs.hash, "size": theirs.size, "type": "text"}),
        ("nobody's", {"$blob": nowhere, "size": 3, "type": "text"}),
        ("a path", {"$blob": "../../../../etc/passwd", "size": 3, "type": "text"}),
        (
            "a path of ours",
            {"$blob": f"../tenant-other/{theirs.hash[:2]}/{theirs.hash}", "size": 6},
        ),
        ("capitals", {**whole, "$blob": ours.hash.upper() + "A"}),
        ("no size", {"$blob": ours.hash}),
        ("another size", {**whole, "size": 1}),
        ("a size beyond", {**whole, "size": 10**12}),
        ("a negative size", {**whole, "size": -1}),
        ("another type", {**whole, "type": "exe"}),
        ("not its type", {**whole, "type": "json"}),
        ("a terminal's", {**whole, "$blob": "\x1b[31m\u202e"}),
    ]
    for name, given in refused:
        for door in (by_nats, by_rest):
            outcome = await door(hall, json.dumps([{"deep": given}]).encode())
            assert outcome.status == "failed", (name, outcome)
            assert outcome.error["code"] == "blob_unresolved", (name, outcome.error)
            assert outcome.error["field"] == "input.v.0.deep", (name, outcome.error)
            assert "theirs" not in outcome.error["message"]
            assert not UNSAFE.search(outcome.error["message"]), (name, outcome.error)
            hall.cell("reference", "error")
    await hall.healthy()


# ---- who approves, and why ------------------------------------------------------------------


@pytest.mark.timeout(300)
async def test_a_note_of_an_approval_is_kept_as_it_came(hall: House) -> None:
    views = ("REST run", "Postgres run", "public fact", "CLI --json", "REST events")
    for value in [*packed(CARRIED), *REFUSED]:
        outcome = await by_approval(hall, value.text)
        if value.refused is None:
            assert outcome.status == "succeeded", (value.name, outcome)
            for view in views:
                assert same(await VIEWS[view](hall, outcome), value.expected), (value.name, view)
                hall.cell("approval note", view)
        else:
            assert outcome.refused, value.name
            assert value.refused in outcome.error["message"], value.name
            hall.cell("approval note", "refusal")
    await hall.healthy()


# ---- addresses ------------------------------------------------------------------------------


PARTS: tuple[str | bytes, ...] = (
    "a\x00b", "\x1b[31m", "\u202ex", "e\u0301", "👩‍👩‍👧‍👦", "x" * 5_000, "{{ 7*7 }}", "'; DROP--",
    "..", "../x", "%00", "1e-20000", "-0", "NaN", "0x10", "\u0661", "1_000", "9" * 5_000, "-1", "",
    " ", b"\xff\xfe", b"\xed\xa0\x80", "r" + "0" * 24, "vals", "*", ">", "a.b", "true", "\r\nX: 1",
)  # fmt: skip


@pytest.mark.timeout(300)
async def test_every_part_of_an_address_is_taken_or_refused(hall: House) -> None:
    """Each path and query parameter of the OpenAPI document, so that none can be forgotten."""
    described = await hall.get("/openapi.json")
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "header":
                    continue
                for text in PARTS:
                    await _asked(hall, method, path, operation, parameter, text)
    await hall.healthy()


async def _asked(
    hall: House, method: str, path: str, operation: Any, parameter: Any, text: str | bytes
) -> None:
    name, place = parameter["name"], parameter["in"]
    address, query = path, ""
    for one in operation["parameters"]:
        if one["in"] == "path":
            known = percent(text) if one is parameter else "r" + "0" * 24
            address = address.replace(f"{{{one['name']}}}", known)
        elif one is parameter:
            query = f"?{name}={percent(text)}"
    status, said = await raw(
        hall.platform.api_url,
        method.upper(),
        address + query,
        {"Content-Type": b"application/json"} if method != "get" else {},
        b"{}" if method == "post" else b"",
        key=hall.platform.api_key,
        follows=True,
    )
    where = (method, path, name, text[:20], status, said)
    assert status < 500, where
    if status >= 400:
        assert 0 < len(said["detail"]) < 2_000, where
        assert not UNSAFE.search(said["detail"]), where
        assert place != "query" or status in (400, 404, 413, 414) or said["field"], where
    hall.cell(f"{place} parameter", "refusal" if status >= 400 else "taken")


# ---- very large -----------------------------------------------------------------------------


def _of(size: int) -> Value:
    """A text that makes a task of this size."""
    return Value(f"{size} bytes", b'"' + b"x" * (size - len(b'{"v": ""}')) + b'"')


@pytest.mark.timeout(300)
async def test_a_task_may_be_as_large_as_the_limit_and_no_larger(hall: House) -> None:
    near = _of(MAX_TASK_BYTES - 64)
    for name, door in (("NATS task", by_nats), ("REST run", by_rest)):
        outcome = await door(hall, near.text)
        assert outcome.status == "succeeded", (name, outcome.error)
        for view, look in VIEWS.items():
            assert _whole_or_kept(await look(hall, outcome), near.expected), (name, view)
            hall.cell(f"{name}, 512 KiB", view)
        for beyond in (MAX_TASK_BYTES + 64, 900_000):
            outcome = await door(hall, _of(beyond).text)
            assert outcome.refused, (name, beyond, outcome)
            assert outcome.error["code"] == "payload_too_large", (name, beyond, outcome)
            hall.cell(f"{name}, beyond 512 KiB", "refusal")
    status, said = await raw(
        hall.platform.api_url,
        "POST",
        "/v1/runs",
        {"Content-Type": b"application/json"},
        length=5_000_000,
        key=hall.platform.api_key,
    )
    assert (status, said["code"]) == (413, "payload_too_large"), said
    hall.cell("REST run, 5 MB", "refusal")
    with pytest.raises(nats.errors.MaxPayloadError):
        await by_nats(hall, _of(5_000_000).text)
    hall.cell("NATS task, 5 MB", "refusal")
    await hall.healthy()


def _whole_or_kept(found: Any, expected: str) -> bool:
    """Whether a text is here, or its reference."""
    if isinstance(found, dict):
        return set(found) == {"$blob", "size", "type"} and found["size"] == len(expected)
    return bool(found == expected)
