"""Brings forward the elections of JetStream's leaders when a server of a cluster has gone.

Followers of a server that went silent campaign after 4 to 9 s, which each draws and nobody can set.
But whoever has the newer log campaigns within 0.8 s when somebody with an older one asks for its vote.
So, when a server left MISSED questions unanswered that the others answered, or comes back as another
process, its groups are looked at; each that nobody leads is asked for a vote for a candidate with an
empty log. Nobody gives it, and somebody with a whole log is elected, by the servers' own rules: what is
asked here can elect nobody and lose nothing. Asked of a group whose leader is well after all, it would
cost that leader its office for a moment.

Neither the questions nor the form of the request (`server/raft.go`: processVoteRequest) are a promise
of the servers, so this is done with KNOWN versions only. Without it elections take as long as they do.
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
"""Servers are asked so often whether they are there; an answer takes about a millisecond."""
MISSED = 3
LOOKED_AT = 30
"""Rounds in which groups are looked at after a server has gone or has come back: 12 s. Then its groups
have elected by themselves."""
FORGOTTEN = 300
"""Questions without an answer after which a server is no business of ours: 2 minutes."""
ANSWERS_S = 1.0
QUIET_S = 0.25
"""How long the first answer is waited for, and each further one, where one is missing: a busy machine
answers late."""
AGAIN_S = 1.5
"""A group is asked again after so long: longer than it takes until somebody campaigns (0.8 s)."""
PING = "$SYS.REQ.SERVER.PING"
GROUPS = "$SYS.REQ.SERVER.PING.RAFTZ"
VOTES = "$NRG.V"
NOBODY = b"nobody00"
"""A candidate's name has 8 bytes; those of servers are hashes."""

log = structlog.get_logger(__name__)


def vote_request(term: int) -> bytes:
    """Return the request for a vote in a term for a candidate whose log is empty."""
    return struct.pack("<QQQ", term, 0, 0) + NOBODY


@dataclass(slots=True)
class Servers:
    """Which servers there are, and how many questions in a row each has left unanswered."""

    missed: dict[str, int] = field(default_factory=dict)
    versions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    processes: dict[str, str] = field(default_factory=dict)
    looked_at: int = 0
    """For so many rounds from now on groups are to be looked at."""

    def heard(self, answers: Iterable[Mapping[str, Any]]) -> None:
        """Take in the answers of a round. One that less than half of the servers answered says nothing
        of the others: it was we who were away."""
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
        """Whether all are of a version that this was tried with."""
        return all(version in KNOWN for version in self.versions.values())

    @property
    def gone(self) -> set[str]:
        """Servers that do not answer any more."""
        return {name for name, missed in self.missed.items() if missed >= MISSED}


def leaderless(answers: Iterable[Mapping[str, Any]], gone: Collection[str]) -> dict[str, int]:
    """Return the groups that nobody leads, and that those who are left may elect somebody for: by name,
    with the last term of each. Who leads a group by what its followers know must have gone, or say
    itself that it does not."""
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
        and any(group["pindex"] > 0 for group in groups)  # else an empty log would win
        and heard.issuperset(_leaders(groups))
    }


def _leaders(groups: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return the servers that lead a group by what its members know."""
    for group in groups:
        if group.get("leader"):
            yield (group.get("peers") or {}).get(group["leader"], {}).get("name", "")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


class Elections:
    """Watches the servers, from a connection in their own account."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.servers = Servers()
        self._asked: dict[str, float] = {}

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Do it until the block ends."""
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
            except Exception as error:  # whatever it is, the next round comes
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
