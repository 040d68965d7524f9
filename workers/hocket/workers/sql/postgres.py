"""Connections to Postgres: their limits, and parameters that behave like literals.

Text is sent with an unknown type, like a quoted literal: Postgres infers its type and parses it (`day >=
:since` with "2024-01-01" works, and so does `CAST(:since AS date)`). Numbers and booleans have the type
of the same literal; a fraction is `numeric`, never binary floating point. asyncpg on its own would
require a Python object of the inferred type, so these types are sent as text.
"""

import asyncio
import errno
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

import asyncpg
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from hocket.workers.sql.answers import JsonText
from hocket.workers.sql.places import State, Statement
from hocket.workers.sql.wire import BoundedWire, ValueCount

MAX_INTEGER: Final = 2**31 - 1
MAX_BIGINT: Final = 2**63 - 1


MAX_TEMPORARY_KB: Final = 4 * 1024 * 1024
"""How much a query's sorts and joins may write to the server's disk, if the user may set this."""

WRITTEN_AS: Final[Mapping[str, str]] = {"datestyle": "ISO", "extra_float_digits": "1"}
"""The settings by which the server writes times and floats; a database or a user may have others."""

_SERVER: Final = "CAST(extract(epoch FROM pg_postmaster_start_time()) AS text)"
KNOWN_BY: Final = f"pg_backend_pid(), CAST(extract(epoch FROM now()) AS text), {_SERVER}"
"""What a transaction is known by: its process, when it began, and when its server was started. Behind a
pooler, and with several hosts, a connection may get another process or server for each transaction."""
LOOK_TIMEOUT_S: Final = 10.0
_LOOK: Final = text(
    f"SELECT {_SERVER}, pid, coalesce(state, ''), CAST(extract(epoch FROM xact_start) AS text) "
    "FROM (SELECT 1) AS server LEFT JOIN pg_catalog.pg_stat_activity ON pid = ANY(:pids)"
)
_HIDDEN_STATES: Final = ("", "disabled")
"""What the server tells of a process that the login may not see, and of one that tells nothing
(`track_activities`)."""
_HIDDEN_SQLSTATES: Final = ("42501", "42P01")
"""No right to ask, and no such view."""
_NO_SERVER: Final = "57P03"
"""The server starts or stops."""
_NOBODY_LISTENS: Final = frozenset({errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")

_WIRE: Final = "hocket_wire"


def prepare(connection: Any, record: Any) -> None:
    """Prepare a new asyncpg connection of SQLAlchemy: set its codecs and limits."""
    values = ValueCount()
    connection.run_async(partial(_set_codecs, values))
    connection.run_async(_bound_temporary_files)
    record.info[_WIRE] = BoundedWire(connection.driver_connection, values)


async def wire_of(connection: AsyncConnection) -> BoundedWire:
    """Return the object that counts the bytes and values of a connection."""
    pooled = await connection.get_raw_connection()
    wire = pooled.info[_WIRE]
    assert isinstance(wire, BoundedWire)
    return wire


def statement_of(row: Sequence[Any]) -> Statement:
    """Return the statement from a row that begins with KNOWN_BY."""
    return Statement(row[0], row[1], row[2])


async def states_of(engine: AsyncEngine, statements: Sequence[Statement]) -> list[State]:
    """Ask the server whether it still works on statements; return their states, in their order."""
    try:
        async with asyncio.timeout(LOOK_TIMEOUT_S), engine.connect() as connection:
            rows = await connection.execute(_LOOK, {"pids": [known.pid for known in statements]})
            found = rows.all()
    except (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        return [_state_without_look(error)] * len(statements)
    server = found[0][0]
    processes = {pid: (state, begun) for _server, pid, state, begun in found}
    return [_state(known, server, *processes.get(known.pid, (None, None))) for known in statements]


def _state(known: Statement, server: str, state: str | None, begun: str | None) -> State:
    """Return the state of a statement from what `server` tells about its process, if it has that."""
    if server != known.server:  # the same one, started again, or another one of several
        return State.ENDED if float(server) > float(known.begun) else State.UNSURE
    if state is None:
        return State.ENDED
    if state in _HIDDEN_STATES:
        return State.HIDDEN
    if state.startswith("idle"):
        return State.ENDED
    return State.WORKING if begun == known.begun else State.ENDED


def _state_without_look(error: Exception) -> State:
    """Return the state of statements that a look failed to tell."""
    if sqlstate_of(error) in _HIDDEN_SQLSTATES:
        return State.HIDDEN
    is_gone = sqlstate_of(error) == _NO_SERVER or _is_refused(error)
    return State.ENDED if is_gone else State.UNSURE


def _is_refused(error: Exception) -> bool:
    """Whether no server listens, at any address of its name; asyncio tells of several in one text."""
    reasons = {int(number) for number in _ERRNO.findall(str(error))}
    return (
        isinstance(error, OSError) and errno.ECONNREFUSED in reasons and reasons <= _NOBODY_LISTENS
    )


def sqlstate_of(error: BaseException | None) -> str:
    """Return the SQLSTATE of what a driver raised, or an empty text."""
    while error is not None:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if state:
            return str(state)
        error = getattr(error, "orig", None) or error.__cause__
    return ""


def type_of(value: Any) -> str | None:
    """Return the type that `value` has as a literal, or None to let Postgres infer it."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        if abs(value) <= MAX_INTEGER:
            return "integer"
        return "bigint" if abs(value) <= MAX_BIGINT else "numeric"
    if isinstance(value, float | Decimal):
        return "numeric"
    return None


def search_path(schemas: Sequence[str]) -> str:
    """Return the session's `search_path`: built-in names first, temporary ones last."""
    quoted = ('"' + name.replace('"', '""') + '"' for name in schemas)
    return ", ".join(["pg_catalog", *quoted, "pg_temp"])


async def _set_codecs(values: ValueCount, connection: Any) -> None:
    for is_dear, decoders in ((False, _DECODERS), (True, _DEAR_DECODERS)):
        for name, decoder in decoders.items():
            counted = values.counted(decoder, is_dear=is_dear)
            await connection.set_type_codec(
                name, schema="pg_catalog", encoder=_encode, decoder=counted, format="text"
            )
    await connection.set_type_codec(
        "interval",
        schema="pg_catalog",
        encoder=_no_interval,
        decoder=values.counted(_interval, is_dear=True),
        format="tuple",
    )


async def _bound_temporary_files(connection: asyncpg.Connection) -> None:
    with suppress(asyncpg.InsufficientPrivilegeError):
        await connection.execute(f"SET temp_file_limit = {MAX_TEMPORARY_KB}")


def _encode(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value)
    return str(value)


def _no_interval(_value: Any) -> Any:
    raise TypeError("parameters are text, not intervals")


def _interval(parts: tuple[int, int, int]) -> timedelta | str:
    """Read months, days and microseconds; as in asyncpg, a month has 30 days and a year 365. Beyond
    the days that Python counts, return ISO 8601 text."""
    if parts in _INFINITE:
        return _INFINITE[parts]
    all_months, days, us = parts
    sign = -1 if all_months < 0 else 1
    years, months = divmod(abs(all_months), 12)
    try:
        return timedelta(days=days + sign * (365 * years + 30 * months), microseconds=us)
    except OverflowError:
        return f"P{all_months}M{days}DT{Decimal(us).scaleb(-6):f}S"


def _geometry(text: str) -> Any:
    """Read a point, or a shape made of points, as lists of numbers."""
    return json.loads(text.translate(_BRACKETS), parse_int=float)


def _or_text(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Read a value, or keep the text of one that Python cannot represent (`infinity`, years BC)."""

    def decode(text: str) -> Any:
        try:
            return read(text)
        except ValueError:
            return text

    return decode


_DECODERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "bool": lambda text: text == "t",
    "int2": int,
    "int4": int,
    "int8": int,
    "float4": float,
    "float8": float,
    "numeric": Decimal,
    "text": str,
    "varchar": str,
    "bpchar": str,
    "date": _or_text(date.fromisoformat),
    "time": _or_text(time.fromisoformat),
    "timestamp": _or_text(datetime.fromisoformat),
    "timestamptz": _or_text(datetime.fromisoformat),
    "uuid": str,
    "json": JsonText,
    "jsonb": JsonText,
}
_INFINITE: Final[Mapping[tuple[int, int, int], str]] = {
    (2**31 - 1, 2**31 - 1, 2**63 - 1): "infinity",
    (-(2**31), -(2**31), -(2**63)): "-infinity",
}
"""How Postgres 17 and later send intervals without an end."""
_BRACKETS: Final = str.maketrans("(){}<>", "[][][]")
_DEAR_DECODERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "point": _geometry,
    "lseg": _geometry,
    "box": lambda text: _geometry(f"({text})"),
    "path": _geometry,
    "polygon": _geometry,
    "line": _geometry,
    "circle": _geometry,
    "inet": str,
    "cidr": str,
    "bit": str,
    "varbit": str,
    "timetz": _or_text(time.fromisoformat),
}
"""Decoders for types that asyncpg would turn into objects without counting them, or reads slowly."""
