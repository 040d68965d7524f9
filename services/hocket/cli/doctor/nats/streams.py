"""The checks of streams by `hocket doctor`: their existence, replicas, leaders and free space."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError

from hocket.cli.doctor.clocks import ClockReading, reading
from hocket.cli.doctor.findings import Finding, Verdict, listed
from hocket.cli.doctor.nats.connection import ask
from hocket.kit.nats.streams import WORK_QUEUES_ONCE, stream_configs
from hocket.kit.postgres.database import said
from hocket.schemas import subjects

NEEDED = tuple(wanted["name"] for wanted in stream_configs())
ON_THE_WAY = (subjects.TASKS, subjects.LOG, subjects.STEPS)
"""The streams on the path of every run."""
FIXED = ("subjects", "retention", "storage")
"""What decides which messages a stream has, and for how long."""
REFUSE = "new"
FULL_PART = 0.7
"""From this fill level on, a stream that rejects messages when full is reported, as in
deploy/monitoring/rules.yaml."""
SILENT_NS = 5_000_000_000
"""A server not heard for so long is down: it sends something every second. It may take minutes until the
other servers mark it as offline."""
MAX_LAG = 1_000
"""How many messages a replica may lag behind under load without anything being wrong."""
ENOUGH_SERVERS = 3
MAX_PAGES = 40


@dataclass(slots=True)
class Streams:
    """The state of all streams as reported by their leaders, by name."""

    by_name: dict[str, dict[str, Any]] = field(default_factory=dict)
    leaderless: set[str] = field(default_factory=set)
    readings: list[ClockReading] = field(default_factory=list)

    @property
    def is_clustered(self) -> bool:
        """Whether they are on a cluster."""
        return bool(self.leaderless) or any(one.get("cluster", {}).get("name") for one in self)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.by_name.values())


async def read_streams(connection: Client) -> Streams | Finding:
    """Return the state of all streams, or a finding if NATS does not provide it."""
    cure = "Start the server with `-js`, and enable JetStream for this account."
    try:
        account = await ask(connection, "INFO")
        if account.error:
            return Finding("jetstream", Verdict.FAILED, account.error, cure)
        return await _all_of(connection)
    except (NatsError, TimeoutError) as error:
        return Finding("jetstream", Verdict.FAILED, said(error), cure)


async def _all_of(connection: Client) -> Streams:
    found = Streams()
    for _ in range(MAX_PAGES):
        page = await ask(connection, "STREAM.LIST", {"offset": len(found.by_name)})
        infos = page.body.get("streams") or []
        found.by_name |= {info["config"]["name"]: info for info in infos}
        found.leaderless |= set(page.body.get("missing") or ())
        if not infos or len(found.by_name) >= page.body.get("total", 0):
            break
    leaders = dict.fromkeys(filter(None, (_cluster_of(info).get("leader") for info in found)))
    asked = [_led_by(found, leader) for leader in leaders]
    answers = await asyncio.gather(*(ask(connection, f"STREAM.INFO.{name}") for name in asked))
    for leader, answer in zip(leaders, answers, strict=True):
        said_at = str(answer.body.get("ts", ""))
        found.readings += reading(f"nats {leader}", said_at, answer.asked_s, answer.heard_s)
    found.leaderless -= found.by_name.keys()
    return found


def findings_of(streams: Streams, servers: int) -> list[Finding]:
    """Report what is wrong with streams on a cluster of so many servers."""
    known = streams.by_name.keys() | streams.leaderless
    missing = [name for name in NEEDED if name not in known]
    found = [Finding("jetstream", Verdict.OK, "on")]
    if missing:
        cure = "`hocket up` or any process creates them."
        found.append(Finding("streams", Verdict.FAILED, f"missing: {listed(missing)}", cure))
    else:
        found.append(Finding("streams", Verdict.OK, listed(NEEDED)))
    if streams.is_clustered or servers > 1:
        found += [*_led(streams), *_copies(streams, servers), *_spread(streams, servers)]
    return [*found, *_configured(streams), *_room(streams)]


def _configured(streams: Streams) -> list[Finding]:
    """Report streams that were made by others: processes keep what cannot be changed of them."""
    others = [
        f"{name} has {field} {_listed(info['config'].get(field))}, not {_listed(wanted[field])}"
        for wanted in stream_configs()
        if (info := streams.by_name.get(name := wanted["name"])) is not None
        for field in FIXED
        if info["config"].get(field) != wanted[field]
        and not (field == "retention" and name in WORK_QUEUES_ONCE)
    ]
    if not others:
        return []
    cure = "Back up, delete these streams, and restore: docs/how-to/backup.md."
    return [Finding("streams", Verdict.FAILED, listed(others), cure)]


def _listed(value: object) -> str:
    return listed(value) if isinstance(value, list) else str(value)


def _led(streams: Streams) -> list[Finding]:
    nobody = streams.leaderless | {
        info["config"]["name"] for info in streams if info.get("cluster") and not _leader(info)
    }
    if not nobody:
        return []
    found = f"{listed(sorted(nobody))} has no leader"
    cure = (
        "More than half of each stream's servers must be running and able to reach each "
        "other. See their logs."
    )
    return [Finding("leaders", Verdict.FAILED, found, cure)]


def _copies(streams: Streams, servers: int) -> list[Finding]:
    alone = sorted(
        info["config"]["name"] for info in streams if info["config"]["num_replicas"] == 1
    )
    found = []
    if alone and servers >= ENOUGH_SERVERS:
        cure = (
            "Streams created for one server stay there: back up, and restore on empty servers "
            "with `--replicas 3`: docs/how-to/three-servers.md#from-one-server-to-three"
        )
        said_of = f"on one of {servers} servers, and lost with it: {listed(alone)}"
        found.append(Finding("replicas", Verdict.FAILED, said_of, cure))
    behind = _behind(streams)
    for server, names in sorted(behind.away.items()):
        cure = f"Start {server}: until then, one more loss stops these streams."
        said_of = f"{server} is down, with replicas of {listed(sorted(names))}"
        found.append(Finding("replicas", Verdict.FAILED, said_of, cure))
    for server, lags in sorted(behind.late.items()):
        cure = "It catches up automatically; if it does not, check its disk, network and log."
        said_of = (
            f"{server} is behind: {listed(f'{name} by {lag:,}' for name, lag in lags.items())}"
        )
        found.append(Finding("replicas", Verdict.NOTE, said_of, cure))
    if not found:
        copies = Counter(info["config"]["num_replicas"] for info in streams)
        told = listed(f"{count} on {number}" for number, count in sorted(copies.items()))
        found = [Finding("replicas", Verdict.OK, f"all replicas are current: {told}")]
    return found


@dataclass(slots=True)
class _Behind:
    away: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    late: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))


def _behind(streams: Streams) -> _Behind:
    """Return the servers whose replicas lag behind, with what they lack."""
    found = _Behind()
    for info in streams:
        name = info["config"]["name"]
        for peer in _cluster_of(info).get("replicas") or ():
            if is_away(peer):
                found.away[peer["name"]].add(name)
            elif not peer.get("current") or peer.get("lag", 0) > MAX_LAG:
                found.late[peer["name"]][name] = peer.get("lag", 0)
    return found


def _spread(streams: Streams, servers: int) -> list[Finding]:
    led = Counter(leader for info in streams if (leader := _leader(info)))
    if not led:
        return []
    found = listed(f"{server} {count}" for server, count in sorted(led.items()))
    on_the_way = {_leader(streams.by_name[name]) for name in ON_THE_WAY if name in streams.by_name}
    if servers >= ENOUGH_SERVERS and len(on_the_way) == 1:
        (only,) = on_the_way
        said_of = f"{only} leads {listed(ON_THE_WAY)}: it carries the load of all runs"
        return [Finding("leaders", Verdict.NOTE, said_of, "`hocket nats spread` balances them.")]
    return [Finding("leaders", Verdict.OK, found)]


def _room(streams: Streams) -> list[Finding]:
    full = {
        info["config"]["name"]: part
        for info in streams
        if info["config"].get("discard") == REFUSE and (part := _used(info)) >= FULL_PART
    }
    if not full:
        return []
    found = listed(f"{name} is {part:.0%} full" for name, part in sorted(full.items()))
    cure = (
        "It refuses messages when full. Is Postgres down, or are ledgers or workers missing? "
        "docs/how-to/runbooks.md#hocketstreamfillsup"
    )
    return [Finding("room", Verdict.FAILED, found, cure)]


def _used(info: Mapping[str, Any]) -> float:
    most = info["config"].get("max_bytes", 0)
    return float(info["state"]["bytes"] / most) if most > 0 else 0.0


def _led_by(streams: Streams, leader: str) -> str:
    return next(str(one["config"]["name"]) for one in streams if _leader(one) == leader)


def _leader(info: Mapping[str, Any]) -> str:
    return str(_cluster_of(info).get("leader") or "")


def _cluster_of(info: Mapping[str, Any]) -> Mapping[str, Any]:
    return info.get("cluster") or {}


def is_away(peer: Mapping[str, Any]) -> bool:
    """Tell whether a leader has not heard from a peer of its group for some time."""
    is_silent = not peer.get("current") and peer.get("active", 0) > SILENT_NS
    return bool(peer.get("offline")) or is_silent


def servers_of(streams: Streams) -> Sequence[str]:
    """Return the servers that have replicas of streams."""
    names = {_leader(info) for info in streams}
    for info in streams:
        names |= {peer["name"] for peer in _cluster_of(info).get("replicas") or ()}
    return sorted(names - {""})
