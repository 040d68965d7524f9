"""Speeds up the election of JetStream leaders when a server of a cluster is lost.

Followers of a silent server start campaigning after a random 4 to 9 s, which cannot be configured. But a
follower with a newer log campaigns within 0.8 s when a candidate with an older log asks for its vote. So
when a server has left MISSED questions unanswered that the others answered, or comes back as another
process, its Raft groups are examined, and each leaderless group is asked to vote for a candidate with an
empty log. No member grants that vote, and a member with a complete log is elected by the servers' own
rules: a request from here can neither elect anyone nor lose data. If a group's leader turned out to be
healthy, the request would depose it for a moment.

Neither the queries nor the format of the request (`server/raft.go`: processVoteRequest) are a stable
interface of NATS, so this is done only with KNOWN versions. Otherwise elections take their usual time.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from hocket.admin.nats_access.server_answers import answers_of_all
from hocket.kit.nats.bus import Bus
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas.access.nats_table import PLATFORM_ACCOUNT, SYSTEM_ACCOUNT

KNOWN = frozenset({(2, 15)})
ROUND_S = 0.4
"""How often servers are pinged; an answer takes about a millisecond."""
MISSED = 3
LOOKED_AT = 30
"""Rounds in which groups are examined after a server was lost or came back: 12 s. By then its groups
have elected leaders by themselves."""
FORGOTTEN = 300
"""Unanswered questions after which a server is forgotten: 2 minutes."""
ANSWERS_S = 1.0
QUIET_S = 0.25
"""How long to wait for the first answer, and for each further one while one is missing: a busy machine
answers late."""
AGAIN_S = 1.5
"""How long until a group is asked again: longer than a member takes to campaign (0.8 s)."""
PING = "$SYS.REQ.SERVER.PING"
GROUPS = "$SYS.REQ.SERVER.PING.RAFTZ"
VOTES = "$NRG.V"
NOBODY = b"nobody00"
"""The candidate's name: 8 bytes, and unlike any server's, which are hashes."""

log = structlog.get_logger(__name__)


def vote_request(term: int) -> bytes:
    """Return a vote request for a term, from a candidate with an empty log."""
    return struct.pack("<QQQ", term, 0, 0) + NOBODY


@dataclass(slots=True)
class Servers:
    """The known servers, and how many questions in a row each has left unanswered."""

    missed: dict[str, int] = field(default_factory=dict)
    versions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    processes: dict[str, str] = field(default_factory=dict)
    looked_at: int = 0
    """For how many more rounds groups have to be examined."""

    def heard(self, answers: Iterable[Mapping[str, Any]]) -> None:
        """Record the answers of a round. If no majority of the servers answered, the round is ignored:
        probably this process was cut off."""
        here = {one["server"]["name"]: one["server"] for one in answers}
        if 2 * len(here) <= len(self.missed.keys() | here.keys()):
            return
        self.looked_at -= self.looked_at > 0
        if any(self.processes.get(name, one["id"]) != one["id"] for name, one in here.items()):
            self.looked_at = LOOKED_AT
        self.processes |= {name: one["id"] for name, one in here.items()}
        self.versions |= {name: _version(one["ver"]) for name, one in here.items()}
        for name in self.missed.keys() - here.keys():
            self.missed[name] += 1
            if self.missed[name] == MISSED:
                self.looked_at = LOOKED_AT
            if self.missed[name] > FORGOTTEN:
                del self.missed[name], self.versions[name], self.processes[name]
        self.missed |= dict.fromkeys(here, 0)

    @property
    def are_known(self) -> bool:
        """Whether all servers run a version with which this was tested."""
        return all(version in KNOWN for version in self.versions.values())

    @property
    def gone(self) -> set[str]:
        """The servers that no longer answer."""
        return {name for name, missed in self.missed.items() if missed >= MISSED}


def leaderless(answers: Iterable[Mapping[str, Any]], gone: Collection[str]) -> dict[str, int]:
    """Return the leaderless groups whose remaining members have a quorum: names with their latest terms.
    A server that followers regard as the leader must either be gone or have answered that it does not
    lead."""
    heard: set[str] = set(gone)
    members: dict[str, list[Mapping[str, Any]]] = {}
    for answer in answers:
        heard.add(answer["server"]["name"])
        for groups in (answer.get("data") or {}).values():
            for name, group in groups.items():
                members.setdefault(name, []).append(group)
    return {
        name: max(group["term"] for group in groups)
        for name, groups in members.items()
        if len(groups) >= groups[0]["quorum_needed"]
        and all(group["state"] != "LEADER" for group in groups)
        and any(group["pindex"] > 0 for group in groups)  # otherwise an empty log would win
        and heard.issuperset(_leaders(groups))
    }


def _leaders(groups: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return the servers that a group's members regard as its leader."""
    for group in groups:
        if group.get("leader"):
            yield (group.get("peers") or {}).get(group["leader"], {}).get("name", "")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


class Elections:
    """Watches the servers over a connection in the system account."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.servers = Servers()
        self._asked: dict[str, float] = {}

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch until the block ends."""
        task = asyncio.create_task(self._watch(), name="elections")
        try:
            yield
        finally:
            await stop_tasks([task])

    async def _watch(self) -> None:
        while True:
            pause = asyncio.create_task(asyncio.sleep(ROUND_S))
            try:
                await self._round()
            except Exception as error:  # whatever it is, there will be another round
                log.warning("servers_not_looked_at", reason=repr(error))
            await pause

    async def _round(self) -> None:
        servers = self.servers
        servers.heard(await self._answers(PING, {}, enough=len(servers.missed)))
        if not servers.looked_at or not servers.are_known:
            self._asked.clear()
            return
        gone = servers.gone
        here = len(servers.missed) - len(gone)
        now = asyncio.get_running_loop().time()
        due = [
            (name, term)
            for account in (SYSTEM_ACCOUNT, PLATFORM_ACCOUNT)
            for name, term in leaderless(
                await self._answers(GROUPS, {"account": account}, enough=here), gone
            ).items()
            if now - self._asked.get(name, -AGAIN_S) >= AGAIN_S
        ]
        for name, term in due:
            self._asked[name] = now
            self._bus.publish_nowait(f"{VOTES}.{name}", vote_request(term + 1))
        if due:
            log.warning("elections_brought_forward", gone=sorted(gone), groups=len(due))

    async def _answers(
        self, subject: str, asked: Mapping[str, Any], *, enough: int
    ) -> list[dict[str, Any]]:
        return await answers_of_all(
            self._bus, subject, asked, first_s=ANSWERS_S, quiet_s=QUIET_S, enough=enough
        )
