"""The questions of `hocket doctor` to NATS servers in the system account: who leads, who is missing,
what the time is, how much space is free. This needs the user `access`
(docs/reference/nats-access.md)."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hocket.admin.nats_access.elections import PING
from hocket.admin.nats_access.server_answers import answers_of_all
from hocket.cli.doctor.clocks import ClockReading, reading
from hocket.cli.doctor.findings import Finding, Verdict, listed
from hocket.cli.doctor.nats.streams import is_away
from hocket.cli.remote.messaging import connected_bus
from hocket.kit.nats.errors import BusUnavailable

ANSWERS_S = 2.0
QUIET_S = 0.4
FULL_PART = 0.8
ACCESS_ENV = "HOCKET_NATS_ACCESS_URL"
NAME = "meta leader"


@dataclass(frozen=True, slots=True)
class Told:
    """What the servers said, and when they were asked and heard (epoch s)."""

    answers: Sequence[Mapping[str, Any]]
    asked_s: float
    heard_s: float

    @property
    def readings(self) -> list[ClockReading]:
        """The time reported by each server."""
        return [
            one
            for answer in self.answers
            for one in reading(
                f"nats {_name(answer)}",
                str(answer["server"].get("time", "")),
                self.asked_s,
                self.heard_s,
            )
        ]


async def ask_servers(access_url: str) -> Told | Finding:
    """Return the answers of all servers, or a finding if they cannot be asked."""
    cure = f"Correct {ACCESS_ENV}: it is the file access.url that `hocket nats accounts` creates."
    try:
        async with connected_bus(access_url, "hocket-doctor") as bus:
            asked_s = time.time()
            answers = await answers_of_all(bus, PING, {}, first_s=ANSWERS_S, quiet_s=QUIET_S)
            told = Told(answers, asked_s, time.time())
    except BusUnavailable as error:
        return Finding(NAME, Verdict.FAILED, str(error.fields["reason"]), cure)
    if not told.answers:
        return Finding(NAME, Verdict.FAILED, "no server responds in the system account", cure)
    return told


def findings_of(told: Told, named: Iterable[str]) -> list[Finding]:
    """Report what is wrong with the cluster; `named`: the servers that NATS_URL leads to."""
    return [*_meta(told), *_unnamed(told, named), *_room(told)]


def not_asked() -> Finding:
    """Return the finding of what is not known without the user `access`."""
    cure = (
        f"Set {ACCESS_ENV}_FILE to access.url, which `hocket nats accounts` creates, to check "
        "the servers themselves."
    )
    return Finding(NAME, Verdict.NOTE, "not known: servers report it in their system account", cure)


def _meta(told: Told) -> list[Finding]:
    metas = {_name(one): meta for one in told.answers if (meta := _jetstream(one).get("meta"))}
    if not metas:
        return []
    leaders = {name: meta for name, meta in metas.items() if meta.get("leader") == name}
    if not leaders:
        found = f"none of {listed(sorted(metas))} leads: nothing can be created, changed or placed"
        cure = (
            "More than half of the servers must be running and able to reach each other. See "
            "their logs."
        )
        return [Finding(NAME, Verdict.FAILED, found, cure)]
    leader, meta = next(iter(leaders.items()))
    size = meta.get("cluster_size", len(metas))
    answered = {_name(one) for one in told.answers}
    peers = meta.get("replicas") or ()
    away = sorted(one["name"] for one in peers if is_away(one) or one["name"] not in answered)
    if away:
        found = f"{leader}; {listed(away)} down, of {size} servers"
        left = size - len(away) - size // 2 - 1
        cure = f"Start the servers that are down: {left} more may be lost before the cluster stops."
        if left < 1:
            cure = "Start the servers that are down: with one more loss, the cluster stops."
        return [Finding(NAME, Verdict.FAILED, found, cure)]
    if size % 2 == 0:
        found = f"{leader}, {size} servers"
        cure = f"Run {size + 1}: {size} survive no more losses than {size - 1}."
        return [Finding(NAME, Verdict.NOTE, found, cure)]
    return [Finding(NAME, Verdict.OK, f"{leader}, {size} servers")]


def _unnamed(told: Told, named: Iterable[str]) -> list[Finding]:
    others = {_name(one) for one in told.answers} - set(named)
    if not others:
        return []
    found = f"{listed(sorted(others))} is in the cluster but not named in NATS_URL"
    cure = "Name all servers in NATS_URL of every process."
    return [Finding("nats cluster", Verdict.NOTE, found, cure)]


def _room(told: Told) -> list[Finding]:
    parts: dict[str, float] = {}
    for answer in told.answers:
        most = _jetstream(answer).get("config", {}).get("max_storage", 0)
        used = _jetstream(answer).get("stats", {}).get("storage", 0)
        if most > 0:
            parts[_name(answer)] = used / most
    full = {name: part for name, part in parts.items() if part >= FULL_PART}
    if full:
        found = listed(f"{name} {part:.0%}" for name, part in sorted(full.items()))
        cure = "Give JetStream more space (`max_file_store`, the disk), or delete old data."
        return [Finding("nats storage", Verdict.FAILED, found, cure)]
    if not parts:
        return []
    name, part = max(parts.items(), key=lambda one: one[1])
    return [Finding("nats storage", Verdict.OK, f"{name} is fullest: {part:.0%} of its storage")]


def _name(answer: Mapping[str, Any]) -> str:
    return str(answer["server"]["name"])


def _jetstream(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return (answer.get("statsz") or {}).get("jetstream") or {}
