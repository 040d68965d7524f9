"""Runs all checks of `hocket doctor`, in order of dependency. A part that cannot be reached is a
finding, never a traceback."""

import asyncio
from collections.abc import Awaitable

from nats.errors import Error as NatsError

from hocket.cli.doctor import machine, processes
from hocket.cli.doctor.api import look_at_api
from hocket.cli.doctor.certificates import expiry
from hocket.cli.doctor.clocks import difference
from hocket.cli.doctor.database import Database, connected, look_at_database
from hocket.cli.doctor.findings import Finding, Verdict
from hocket.cli.doctor.nats import coordinators, offers
from hocket.cli.doctor.nats.messaging import Messaging, look_at_nats
from hocket.cli.remote.target import Target
from hocket.kit.postgres.database import said
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.schemas.errors import HocketError

BOUND_S = 30.0
"""How long the checks of one part may take, such as those of NATS."""


async def examine(target: Target) -> list[Finding]:
    """Run all checks and return what they found."""
    local = [machine.python(), *machine.wheels(target)]
    local += [machine.data_folder(target), machine.disk(target)]
    nats, database = Messaging(), Database()
    of_api, own = list[Finding](), list[Finding]()
    await asyncio.gather(
        _bounded("nats", nats.findings, _nats(target, nats)),
        _bounded("postgres", database.findings, _database(target, database)),
        _bounded("api", of_api, _api(target, of_api)),
        _bounded("processes", own, _processes(target, own)),
    )
    return [
        *local,
        processes.platform(target),
        *of_api,
        *nats.findings,
        *database.findings,
        *_coordinators(nats, database),
        *await _node_types(target, nats, database),
        *expiry([*nats.certificates, *database.certificates]),
        *difference([*nats.readings, *database.readings]),
        *own,
    ]


async def _nats(target: Target, found: Messaging) -> None:
    url = target.known_nats
    if url is not None:
        is_own = target.facts is not None and target.facts.nats_url == url
        await look_at_nats(url, found, is_own=is_own)


async def _database(target: Target, found: Database) -> None:
    if target.known_database is not None:
        await look_at_database(target.known_database, found)


async def _api(target: Target, found: list[Finding]) -> None:
    found += await look_at_api(target)


async def _processes(target: Target, found: list[Finding]) -> None:
    found += await processes.processes(target)


def _coordinators(nats: Messaging, database: Database) -> list[Finding]:
    """Compare the coordinators known to NATS with the partitions in Postgres."""
    if nats.coordinators is None:
        return []
    return coordinators.findings_of(nats.coordinators, database.partitions)


async def _node_types(target: Target, nats: Messaging, database: Database) -> list[Finding]:
    """Compare what the pipelines in Postgres need with what workers on NATS offer."""
    url = target.known_database
    if url is None or database.partitions is None or nats.slots is None:
        return []
    try:
        async with connected(url) as connection:
            return await offers.unserved(connection, nats.slots)
    except STATEMENT_ERRORS as error:
        cure = "See the result for postgres above."
        return [Finding("node types", Verdict.FAILED, said(error), cure)]


async def _bounded(name: str, findings: list[Finding], check: Awaitable[None]) -> None:
    """Run a check, and add a finding if it was not completed."""
    try:
        async with asyncio.timeout(BOUND_S):
            await check
    except TimeoutError:
        found = f"no answer within {BOUND_S:g} s"
        findings.append(Finding(name, Verdict.FAILED, found, "Check the load on this machine."))
    except HocketError as error:  # of this environment: an address or a setting that cannot be used
        findings.append(Finding(name, Verdict.FAILED, str(error)))
    except (OSError, NatsError, ValueError) as error:
        cure = "It became unavailable during the check: run it again."
        findings.append(Finding(name, Verdict.FAILED, said(error), cure))
