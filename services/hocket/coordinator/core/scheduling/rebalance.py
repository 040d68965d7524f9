"""Which coordinator should own which partition: a rule that every coordinator applies to what it knows.

Who applies it to the same view comes to the same shares, so that nobody has to lead. Shares differ by at
most one partition, and as few partitions move as that allows. A partition changes hands in two steps:
its owner lets go of it, and then the coordinator whose share it belongs to takes it; one whose owner is
gone is taken at once. Views may differ for a moment, and two may want the same partition: a lease is
given to one (its key is written on the condition that nobody wrote it since), and the epoch in
Postgres keeps whoever is wrong from writing.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """What a coordinator knows: who lives, who of them leaves, and the owner by partition (absent: free,
    or owned by one that does not live)."""

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
    """Return what `me` should take (nobody owns it) and let go of (it is another's share)."""
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
    """Return whose each partition should be; empty where nobody stays."""
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
