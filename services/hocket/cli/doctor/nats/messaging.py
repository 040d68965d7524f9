"""Runs the checks of `hocket doctor` over NATS: servers, streams, and what processes report about
themselves."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from nats.aio.client import Client

from hocket.cli.doctor.certificates import Certificate, ours
from hocket.cli.doctor.clocks import ClockReading
from hocket.cli.doctor.findings import Finding, Verdict
from hocket.cli.doctor.nats import coordinators, keys, offers, streams, system
from hocket.cli.doctor.nats import servers as named_servers
from hocket.cli.doctor.nats.connection import connect
from hocket.cli.doctor.nats.coordinators import Coordinators
from hocket.kit.nats.server_tls import certificate_files
from hocket.schemas.worker_slots import WorkerSlots


@dataclass(slots=True)
class Messaging:
    """The findings, and what other checks need: certificates, the servers' times and, if available, the
    coordinators and what workers offer."""

    findings: list[Finding] = field(default_factory=list)
    certificates: list[Certificate] = field(default_factory=list)
    readings: list[ClockReading] = field(default_factory=list)
    coordinators: Coordinators | None = None
    slots: WorkerSlots | None = None


async def look_at_nats(url: str, found: Messaging, *, is_own: bool) -> None:
    """Check everything behind a `NATS_URL`; `is_own`: the server belongs to `hocket up`. Raises OSError,
    TimeoutError and nats.errors.Error if the connection is lost meanwhile."""
    servers = await named_servers.look_at_servers(url)
    found.findings += named_servers.findings_of(servers)
    found.certificates += named_servers.certificates_of(servers)
    found.certificates += ours(certificate_files(url), "nats")
    if all(one.fault for one in servers):
        return
    connection = await connect(url)
    try:
        known = await streams.read_streams(connection)
        if isinstance(known, Finding):
            found.findings.append(known)
            return
        count = await _of_servers(found, known, servers)
        found.findings += streams.findings_of(known, count)
        if count == 1 and not is_own:
            found.findings.append(_sync_interval())
        await _of_processes(connection, found)
    finally:
        await connection.close()


async def _of_servers(
    found: Messaging, known: streams.Streams, servers: Sequence[named_servers.Server]
) -> int:
    """Check the servers by asking in the system account, if that is allowed; return how many there
    are."""
    found.readings += known.readings
    count = max(len(servers), len(streams.servers_of(known)))
    access = os.environ.get(system.ACCESS_ENV)
    if not access:
        if known.is_clustered:
            found.findings.append(system.not_asked())
        return count
    told = await system.ask_servers(access)
    if isinstance(told, Finding):
        found.findings.append(told)
        return count
    named = {one.greeting.name for one in servers if one.greeting is not None}
    found.findings += system.findings_of(told, named)
    found.readings += told.readings
    return max(count, len(told.answers))


def _sync_interval() -> Finding:
    return Finding(
        "sync_interval",
        Verdict.NOTE,
        "a server does not reveal it to clients",
        "For a single server, set `jetstream { sync_interval: always }`: with the default of "
        "2 min, a power failure loses confirmed tasks. In a cluster, use 3 replicas.",
    )


async def _of_processes(connection: Client, found: Messaging) -> None:
    """Check what coordinators, gateways, ledgers and workers report about themselves."""
    gateway, slots, living, of_keys = await asyncio.gather(
        offers.gateway(connection),
        offers.offered(connection),
        coordinators.read_coordinators(connection),
        keys.usage_keys(connection),
    )
    found.slots = slots
    found.findings += [gateway, offers.workers(slots), *of_keys]
    if isinstance(living, Finding):
        found.findings.append(living)
    else:
        found.coordinators = living
