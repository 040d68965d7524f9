"""The checks of coordinators by `hocket doctor`: which are alive, and whether each partition has an
owner."""

import asyncio
from base64 import b64decode
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError

from hocket.cli.doctor.findings import Finding, Verdict, listed
from hocket.cli.doctor.nats.connection import ask
from hocket.coordinator.core.scheduling.lease_records import (
    Lease,
    Sign,
    lease_of,
    member_in,
    partition_in,
    sign_of,
)
from hocket.kit.postgres.database import said
from hocket.schemas.subjects import COORDINATORS

BUCKET = f"KV_{COORDINATORS}"
PREFIX = f"$KV.{COORDINATORS}."
LIVES_S = 5.0
"""Heartbeats come every 0.5 s, and 2 s without one counts as dead; longer here, to allow for a busy
server."""
MAX_PARTITIONS = 1_024
AT_ONCE = 32
START = "Start: python -m hocket.coordinator"


@dataclass(slots=True)
class Coordinators:
    """The live coordinators, and the owner of each partition according to its lease."""

    signs: dict[str, Sign] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)

    def owner_of(self, partition: int) -> str | None:
        """Return the owner of a partition, or None if no live coordinator owns it."""
        lease = self.leases.get(partition)
        sign = self.signs.get(lease.owner) if lease is not None else None
        if lease is None or sign is None or sign.incarnation != lease.incarnation:
            return None
        return lease.owner


async def read_coordinators(connection: Client) -> Coordinators | Finding:
    """Read the bucket with the coordinators' heartbeats and leases."""
    try:
        info = await ask(connection, f"STREAM.INFO.{BUCKET}", {"subjects_filter": ">"})
        if info.error:
            found = f"no coordinator has made the bucket {COORDINATORS}"
            return Finding("coordinator", Verdict.FAILED, found, START)
        now = datetime.fromisoformat(info.body["ts"])
        subjects = list(info.body["state"].get("subjects") or {})
        room = asyncio.Semaphore(AT_ONCE)

        async def read(subject: str) -> Mapping[str, Any]:
            async with room:
                got = await ask(connection, f"STREAM.MSG.GET.{BUCKET}", {"last_by_subj": subject})
            return got.body.get("message") or {}

        entries = await asyncio.gather(*(read(subject) for subject in subjects))
    except (NatsError, TimeoutError) as error:
        cure = "Its stream must have a leader; see `leaders` above."
        return Finding("coordinator", Verdict.FAILED, f"{COORDINATORS}: {said(error)}", cure)
    found_all = Coordinators()
    for subject, entry in zip(subjects, entries, strict=True):
        if entry.get("data"):
            _take(found_all, subject.removeprefix(PREFIX), entry, now)
    return found_all


def _take(found: Coordinators, key: str, entry: Mapping[str, Any], now: datetime) -> None:
    value = b64decode(entry["data"])
    name, partition = member_in(key), partition_in(key, MAX_PARTITIONS)
    if name is not None and (sign := sign_of(value)) is not None:
        age_s = (now - datetime.fromisoformat(entry["time"])).total_seconds()
        if age_s <= LIVES_S:
            found.signs[name] = sign
    elif partition is not None and (lease := lease_of(value)) is not None:
        found.leases[partition] = lease


def findings_of(coordinators: Coordinators, partitions: int | None) -> list[Finding]:
    """Report the coordinators, and which partitions none of them owns. `partitions` is the number of
    partitions, None if not known."""
    owned: dict[str, list[int]] = defaultdict(list)
    unowned: list[str] = []
    for number in range(partitions or 0):
        owner = coordinators.owner_of(number)
        if owner is not None:
            owned[owner].append(number)
            continue
        lease = coordinators.leases.get(number)
        last = f" (last {lease.owner})" if lease is not None and lease.owner else ""
        unowned.append(f"{number}{last}")
    found = [_living(coordinators, owned)]
    if not partitions:
        return found
    if unowned:
        some = f"{len(unowned)} of {partitions} have no live owner: {listed(unowned)}"
        cure = (
            f"{START}; others take over within 3 s. If they do not, their logs say why "
            "(`partition_free`, `schema_not_ready`)."
        )
        found.append(Finding("partitions", Verdict.FAILED, some, cure))
    else:
        found.append(Finding("partitions", Verdict.OK, f"all {partitions} have an owner"))
    return found


def _living(coordinators: Coordinators, owned: Mapping[str, list[int]]) -> Finding:
    signs = coordinators.signs
    if not signs:
        return Finding("coordinator", Verdict.FAILED, "none is alive", START)
    told = listed(
        f"{name} ({len(owned.get(name, ()))} partitions{_state(sign)})"
        for name, sign in sorted(signs.items())
    )
    if all(sign.state == "full" for sign in signs.values()):
        cure = (
            "Add coordinators, or find out why runs do not end: "
            "docs/how-to/runbooks.md#hocketintakepaused"
        )
        return Finding("coordinator", Verdict.FAILED, f"{told}: no tasks are accepted", cure)
    return Finding("coordinator", Verdict.OK, told)


def _state(sign: Sign) -> str:
    return "" if sign.state == "serving" else f", {sign.state}"
