"""The checks of Postgres standbys by `hocket doctor`: which servers there are, and whether commits reach
two of them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from hocket.cli.doctor.findings import Finding, Verdict, listed
from hocket.kit.postgres.database import said
from hocket.kit.postgres.errors import STATEMENT_ERRORS

TIMEOUT_S = 5.0
POSTGRES_PORT = 5432
MAX_BEHIND_BYTES = 64 * 1024**2
MIB = 1024**2
NAME = "standby"
UNSAFE_COMMITS = ("off", "local")
PAGE = "docs/how-to/postgres.md#a-standby"

_PRIMARY = """
SELECT pg_is_in_recovery() AS is_standby,
       current_setting('synchronous_commit') AS commits,
       current_setting('synchronous_standby_names') AS names
"""
_STANDBYS = """
SELECT application_name AS name, state, sync_state,
       CASE WHEN state IS NOT NULL
            THEN pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint END AS behind
FROM pg_stat_replication
ORDER BY application_name
"""
"""Without the role `pg_read_all_stats`, a row reveals only that it exists."""


@dataclass(frozen=True, slots=True)
class Place:
    """One of the servers in DATABASE_URL."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def places_of(url: str) -> list[Place]:
    """Return the servers in a DATABASE_URL if it names several."""
    named = urlsplit(url).netloc.rpartition("@")[2].split(",")
    places = [urlsplit(f"//{one}") for one in named if one]
    if len(places) < 2:
        return []
    return [Place(one.hostname or "", one.port or POSTGRES_PORT) for one in places]


async def servers(url: str) -> list[Finding]:
    """Report for each server in the URL whether it can be reached, and how many of them are primary."""
    places = places_of(url)
    roles = await asyncio.gather(*(_role(url, place) for place in places))
    found = []
    for place, role in zip(places, roles, strict=True):
        cure = "Start it: while it is down, there is one server less to fail over to."
        bad = role not in (PRIMARY, STANDBY)
        verdict = Verdict.FAILED if bad else Verdict.OK
        found.append(Finding(f"postgres {place}", verdict, role, cure if bad else ""))
    primaries = [str(place) for place, role in zip(places, roles, strict=True) if role == PRIMARY]
    if len(primaries) > 1:
        told = f"{listed(primaries)} all accept writes"
        cure = "Stop all but one at once: what is written to the others will be lost. Then rebuild them."
        found.append(Finding("primary", Verdict.FAILED, told, cure))
    return found


PRIMARY, STANDBY = "primary", "standby"


async def _role(url: str, place: Place) -> str:
    try:
        connection = await asyncpg.connect(
            url,
            host=place.host,
            port=place.port,
            target_session_attrs="any",
            timeout=TIMEOUT_S,
            command_timeout=TIMEOUT_S,
        )
    except STATEMENT_ERRORS as error:
        return said(error)
    try:
        is_standby = await connection.fetchval("SELECT pg_is_in_recovery()")
    except STATEMENT_ERRORS as error:
        return said(error)
    finally:
        connection.terminate()
    return STANDBY if is_standby else PRIMARY


async def standbys(connection: Any, *, expected: bool) -> list[Finding]:
    """Report whether commits are replicated to a second server. `expected`: a missing standby is a
    problem, because several servers are named."""
    primary = await connection.fetchrow(_PRIMARY, timeout=TIMEOUT_S)
    if primary["is_standby"]:
        cure = "Promote it, or name the primary in DATABASE_URL."
        return [
            Finding(
                NAME, Verdict.FAILED, "the server is a standby: it does not accept writes", cure
            )
        ]
    rows = await connection.fetch(_STANDBYS, timeout=TIMEOUT_S)
    found = _commits(primary, rows)
    if rows:
        return [*found, _state(rows)]
    return [*found, *_away(primary, expected=expected)]


def _commits(primary: Any, rows: Sequence[Any]) -> list[Finding]:
    commits = primary["commits"]
    if commits != "off" and not (commits in UNSAFE_COMMITS and rows):
        return []
    found = f"synchronous_commit = {commits}: acknowledged data may be lost with the server"
    cure = "Set synchronous_commit = on, for the server and for Hocket's login."
    return [Finding("commits", Verdict.FAILED, found, cure)]


def _away(primary: Any, *, expected: bool) -> list[Finding]:
    if primary["names"]:
        names = primary["names"]
        found = f"none is streaming, and commits wait for one (synchronous_standby_names = {names})"
        cure = "Add a standby, or set synchronous_standby_names = '' until there is one."
        return [Finding(NAME, Verdict.FAILED, found, cure)]
    if expected:
        found, cure = "none is streaming from the primary", f"Create one from a copy of it: {PAGE}"
        return [Finding(NAME, Verdict.FAILED, found, cure)]
    return []


def _state(rows: Sequence[Any]) -> Finding:
    if any(row["state"] is None for row in rows):
        cure = "Grant Hocket's login access: GRANT pg_read_all_stats TO hocket;"
        return Finding(NAME, Verdict.NOTE, f"{len(rows)}; their state is not visible to it", cure)
    told = listed(f"{row['name']} is {_sync(row)}" for row in rows)
    late = [row for row in rows if (row["behind"] or 0) > MAX_BEHIND_BYTES]
    if late:
        behind = listed(f"{row['name']} by {row['behind'] / MIB:,.0f} MiB" for row in late)
        cure = "Check its disk and network: until it has caught up, it is slow to promote."
        return Finding(NAME, Verdict.NOTE, f"{told}; behind: {behind}", cure)
    if not any(row["sync_state"] in ("sync", "quorum") for row in rows):
        cure = (
            "Set synchronous_standby_names = '*': acknowledged tasks that a standby lacks are "
            f"lost with the primary: {PAGE}"
        )
        return Finding(NAME, Verdict.NOTE, told, cure)
    return Finding(NAME, Verdict.OK, told)


def _sync(row: Any) -> str:
    kinds = {"sync": "synchronous", "quorum": "synchronous", "async": "asynchronous"}
    kind = kinds.get(row["sync_state"], row["sync_state"])
    return f"{kind}" if row["state"] == "streaming" else f"{kind}, {row['state']}"
