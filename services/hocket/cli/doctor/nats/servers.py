"""The checks by `hocket doctor` of each server in NATS_URL, and whether they form one cluster."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nats.aio.client import Client
from nats.errors import Error as NatsError

from hocket.cli.doctor.certificates import Certificate, shown
from hocket.cli.doctor.findings import Finding, Verdict, listed
from hocket.cli.doctor.nats.connection import Greeting, connect, greeting
from hocket.kit.nats.server_urls import server_urls, without_passwords
from hocket.kit.postgres.database import said

OLDEST = (2, 12)
UNREACHABLE: tuple[type[Exception], ...] = (OSError, TimeoutError, NatsError, ValueError)
"""The errors raised by connecting to a server."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server in NATS_URL: what it said, and what is wrong with it."""

    place: str
    greeting: Greeting | None = None
    fault: str = ""


async def look_at_servers(url: str) -> list[Server]:
    """Ask each server in the URL. Raises InvalidInput if the URL names none."""
    return list(await asyncio.gather(*(_look(url, one) for one in server_urls(url))))


def findings_of(servers: Sequence[Server]) -> list[Finding]:
    """Report for each server whether it can be used, and whether all belong to one cluster."""
    several = len(servers) > 1
    found = [_finding(one, f"nats {one.place}" if several else "nats") for one in servers]
    told = [one.greeting for one in servers if one.greeting is not None]
    return [*found, *_cluster(told, len(servers))]


def certificates_of(servers: Sequence[Server]) -> list[Certificate]:
    """Return the certificates presented by the servers."""
    return [
        certificate
        for one in servers
        if one.greeting is not None
        for certificate in shown(f"nats {one.place}", one.greeting.certificate)
    ]


async def _look(url: str, one: str) -> Server:
    place = without_passwords(one).rpartition("://")[2]
    told = None
    try:
        told = await greeting(url, one)
        connection = await connect(url, only=one)
    except UNREACHABLE as error:
        return Server(place, told, said(error))
    told = told or _by_client(connection)
    await connection.close()
    return Server(place, told)


def _by_client(connection: Client) -> Greeting:
    """Return what is known about a server connected to by WebSockets."""
    version = connection.connected_server_version
    return Greeting("", "", f"{version.major}.{version.minor}.{version.patch}", "", None)


def _finding(one: Server, name: str) -> Finding:
    if one.fault:
        cure = "Start the server, or correct NATS_URL."
        return Finding(name, Verdict.FAILED, one.fault, cure)
    assert one.greeting is not None, "it has a fault or has answered"
    version, cluster = one.greeting.version, one.greeting.cluster
    found = f"{version}, {one.greeting.name} of the cluster {cluster}" if cluster else version
    if _numbers(version) >= OLDEST:
        return Finding(name, Verdict.OK, found)
    return Finding(name, Verdict.FAILED, found, "Use NATS 2.12 or later.")


def _cluster(told: Sequence[Greeting], named: int) -> list[Finding]:
    if named == 1:
        if not (told and told[0].cluster):
            return []
        found = f"only one server of the cluster {told[0].cluster} is named"
        cure = (
            "Name all of them in NATS_URL: a process that starts while this one is down finds none."
        )
        return [Finding("nats cluster", Verdict.NOTE, found, cure)]
    known = [one for one in told if one.server_id]
    clusters = sorted({one.cluster for one in known})
    if len(clusters) > 1 or clusters == [""]:
        found = " and ".join(f"the cluster {name}" if name else "no cluster" for name in clusters)
        cure = (
            "Give all servers the same `cluster { name }` and routes to each other; see their logs."
        )
        return [Finding("nats cluster", Verdict.FAILED, f"they belong to {found}", cure)]
    return [*_doubled(known), *_versions(known)]


def _doubled(known: Sequence[Greeting]) -> list[Finding]:
    counts = Counter(one.server_id for one in known)
    names = sorted({one.name for one in known if counts[one.server_id] > 1})
    if not names:
        return []
    found = f"{listed(names)} is reached through several addresses"
    cure = "Name each server once: a proxy that leads to any of them hides which one is down."
    return [Finding("nats cluster", Verdict.NOTE, found, cure)]


def _versions(known: Sequence[Greeting]) -> list[Finding]:
    versions = sorted({one.version for one in known}, key=_numbers)
    if len(versions) < 2:
        return []
    found, cure = f"versions {listed(versions)} run side by side", "Upgrade all to the newest."
    return [Finding("nats versions", Verdict.NOTE, found, cure)]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdecimal())
