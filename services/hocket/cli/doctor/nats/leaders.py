"""Shows which server of a NATS cluster leads which stream, and spreads the leaders over all servers.

The leader of a stream receives everything published there and replicates it to the others. After an
outage of some servers, the remaining ones lead all streams. `spread` asks leaders to hand over, one by
one; messages published meanwhile wait for a moment, and nothing is lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError

from hocket.cli.doctor.nats.connection import ask
from hocket.cli.doctor.nats.streams import ON_THE_WAY, Streams, read_streams
from hocket.schemas.errors import ErrorClass, HocketError

HANDS_OVER_S = 10.0
LOOK_S = 0.1


class LeadersUnknown(HocketError):
    """NATS does not report which servers lead its streams: {reason} {cure}"""

    code = "leaders_unknown"
    error_class = ErrorClass.UNAVAILABLE


class NotHandedOver(HocketError):
    """The server {server} did not become the leader of {stream} within 10 s: {reason}. Check with
    `hocket doctor` that all servers are up, then try again."""

    code = "not_handed_over"
    error_class = ErrorClass.UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Led:
    """The leader of a stream, and the servers with an up-to-date replica, including the leader."""

    leader: str
    servers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Move:
    """A stream that should get another leader."""

    stream: str
    before: str
    after: str


def led_by(streams: Streams) -> dict[str, Led]:
    """Return the replicated streams that have a leader."""
    found = {}
    for info in streams:
        cluster: Mapping[str, Any] = info.get("cluster") or {}
        leader = cluster.get("leader")
        others = cluster.get("replicas") or ()
        if leader and others:
            current = (one["name"] for one in others if one["current"] and not one.get("offline"))
            found[info["config"]["name"]] = Led(leader, frozenset({leader, *current}))
    return found


def moves(led: Mapping[str, Led]) -> list[Move]:
    """Return the fewest moves that spread the leaders evenly over the servers: first those of the
    streams on the path of runs, then all of them."""
    leaders = {stream: one.leader for stream, one in led.items()}
    first = [stream for stream in ON_THE_WAY if stream in led]
    rest = sorted(led.keys() - set(first))
    planned = [*_evened(first, first, led, leaders), *_evened(rest, [*first, *rest], led, leaders)]
    return list(planned)


def _evened(
    movable: Sequence[str],
    counted: Collection[str],
    led: Mapping[str, Led],
    leaders: dict[str, str],
) -> Iterator[Move]:
    """Move `movable` streams from the server that leads most of the `counted` ones to the server that
    leads fewest, as long as that evens them out."""
    servers = sorted({server for stream in counted for server in led[stream].servers})
    while True:
        counts = Counter(dict.fromkeys(servers, 0))
        counts.update(leaders[stream] for stream in counted)
        move = _best(movable, counts, led, leaders)
        if move is None:
            return
        leaders[move.stream] = move.after
        yield move


def _best(
    movable: Sequence[str],
    counts: Mapping[str, int],
    led: Mapping[str, Led],
    leaders: Mapping[str, str],
) -> Move | None:
    """Return the move from the busiest possible server to the idlest, or None if no move helps."""
    gains = [
        (counts[leaders[stream]] - counts[server], stream, server)
        for stream in movable
        for server in sorted(led[stream].servers - {leaders[stream]})
    ]
    most = max(gains, key=lambda one: one[0], default=None)
    if most is None or most[0] < 2:
        return None
    return Move(most[1], leaders[most[1]], most[2])


async def spread(connection: Client) -> AsyncIterator[Move]:
    """Make the moves, yielding each one made. Raises LeadersUnknown and NotHandedOver."""
    streams = await read_streams(connection)
    if not isinstance(streams, Streams):
        raise LeadersUnknown(reason=streams.found, cure=streams.cure)
    for move in moves(led_by(streams)):
        await _make(connection, move)
        yield move


async def _make(connection: Client, move: Move) -> None:
    said = ""
    try:
        async with asyncio.timeout(HANDS_OVER_S):
            while await _leader(connection, move.stream) != move.after:
                preferred = {"placement": {"preferred": move.after}}
                answer = await ask(connection, f"STREAM.LEADER.STEPDOWN.{move.stream}", preferred)
                said = answer.error
                await asyncio.sleep(LOOK_S)
    except (NatsError, TimeoutError) as error:
        reason = said or str(error) or "it is not elected"
        raise NotHandedOver(server=move.after, stream=move.stream, reason=reason) from error


async def _leader(connection: Client, stream: str) -> str:
    info = await ask(connection, f"STREAM.INFO.{stream}")
    return str((info.body.get("cluster") or {}).get("leader") or "")
