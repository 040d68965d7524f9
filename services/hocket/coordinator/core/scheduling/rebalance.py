"""Which coordinator should own which partition: a rule that every coordinator applies to its own
view.

Coordinators with the same view compute the same shares, so that no leader is needed. Shares differ
by at most one partition, and no more partitions move than that requires. A partition changes hands
in two steps: its owner lets go of it, then the coordinator whose share it belongs to takes it; a
partition whose owner is gone is taken at once. Views may differ for a moment, so that two
coordinators want the same partition: only one gets the lease (its key is written on the condition
that nobody has written it since), and the epoch in Postgres keeps the other from writing.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """What a coordinator knows: who is alive, who of them is leaving, and each partition's owner
    (absent if it is free, or its owner is not alive)."""

    partitions: int
    live: frozenset[str]
    leaving: frozenset[str]
    owners: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a coordinator should do now."""

    take: tuple[int, ...] = ()
    release: tuple[int, ...] = ()


def plan(me: str, view: View) -> Plan:
    """Return which partitions `me` should take (nobody owns them) and let go of (they are another's
    share)."""
    wanted = shares(view)
    mine = {number for number, owner in view.owners.items() if owner == me}
    return Plan(
        take=tuple(
            number
            for number in range(view.partitions)
            if wanted.get(number) == me and view.owners.get(number) not in view.live
        ),
        release=tuple(sorted(number for number in mine if wanted.get(number) != me)),
    )


def shares(view: View) -> dict[int, str]:
    """Return who should own each partition; empty if every coordinator is leaving."""
    staying = sorted(view.live - view.leaving)
    if not staying:
        return {}
    held: dict[str, list[int]] = {name: [] for name in staying}
    free: list[int] = []
    for number in range(view.partitions):
        held.get(view.owners.get(number, ""), free).append(number)
    least, more = divmod(view.partitions, len(staying))
    wanted: dict[int, str] = {}
    for rank, name in enumerate(sorted(staying, key=lambda name: (-len(held[name]), name))):
        size = least + (rank < more)
        kept = held[name][:size]
        free += held[name][size:]
        held[name] = kept
        wanted.update(dict.fromkeys(kept, name))
    for number in sorted(free):
        name = min(staying, key=lambda name: (len(held[name]), name))
        held[name].append(number)
        wanted[number] = name
    return wanted
