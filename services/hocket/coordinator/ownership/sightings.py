"""What one look at the bucket shows: the coordinators that are there, and the owner of each
partition."""

from dataclasses import dataclass, field

from hocket.coordinator.core.scheduling.lease_records import (
    Lease,
    Sign,
    lease_of,
    member_in,
    partition_in,
    sign_of,
)
from hocket.kit.nats.kv.entry import Entry, Leases
from hocket.kit.nats.membership import Contents


@dataclass(frozen=True, slots=True)
class Member:
    """A coordinator, according to its last sign of life."""

    incarnation: str
    leaving: bool
    full: bool
    tenants: frozenset[str]
    """See `Sign.tenants`."""
    heard_at_s: float


@dataclass(slots=True)
class Sighting:
    """The members and leases of one look."""

    members: dict[str, Member] = field(default_factory=dict)
    owners: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Partition -> (name, incarnation) of the lease."""
    leased_at_s: dict[str, float] = field(default_factory=dict)


class Sightings:
    """Reads a bucket with the leases of `partitions` partitions."""

    def __init__(self, leases: Leases, partitions: int) -> None:
        self._leases = leases
        self._partitions = partitions
        self._contents = Contents(leases, _content)

    def look(self) -> Sighting:
        """Return what the bucket holds now."""
        seen = Sighting()
        for key, entry in self._leases.entries.items():
            name, number = member_in(key), partition_in(key, self._partitions)
            if name is None and number is None:
                continue
            content = self._contents.of(entry)
            if name is not None and isinstance(content, Sign):
                seen.members[name] = Member(
                    content.incarnation,
                    content.state == "leaving",
                    content.state == "full",
                    content.tenants,
                    entry.written_at_s,
                )
            elif number is not None and isinstance(content, Lease) and content.owner:
                seen.owners[number] = (content.owner, content.incarnation)
                seen.leased_at_s[content.owner] = entry.written_at_s
        return seen


def _content(entry: Entry) -> Sign | Lease | None:
    read = lease_of if member_in(entry.key) is None else sign_of
    return read(entry.value)
