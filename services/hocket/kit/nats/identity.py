"""Whom a connection to NATS is: a process of ours, the bearer of a key, or somebody that the server
knows.

The address says it: `nats://coordinator:PASSWORD@host` is a process of ours,
`nats://hk_..._...@host` the bearer of a key, as is any user whose password is a key. What each may
do: `schemas/access/nats_table.py`. Everybody else is taken for one that may do everything beside
the streams, as before there were keys.
"""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from hocket.schemas import subjects
from hocket.schemas.access.keys import parts_of
from hocket.schemas.access.nats_table import ACCESS_USER, SERVICES, inbox_of_key, inbox_of_service
from hocket.schemas.subjects import INBOX_PREFIX


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose connection it is. `inbox` is what its inboxes begin with."""

    kind: Literal["owner", "service", "guest"] = "owner"
    inbox: str = INBOX_PREFIX.rstrip(".")

    @property
    def is_guest(self) -> bool:
        """Whether it is the bearer of a key, to whom only what leads to the platform is open."""
        return self.kind == "guest"

    @property
    def takes_bundles(self) -> bool:
        """Whether it may get several steps in one message: a guest could not give one of them back."""
        return not self.is_guest

    @property
    def key_id(self) -> str:
        """The id of a guest's key."""
        return self.inbox.rpartition(".")[2]

    def result_subject(self, partition: int, kind: str) -> str:
        """Return where results are posted: in a log, or where a coordinator takes them to it."""
        return (
            subjects.guest_result(self.key_id) if self.is_guest else subjects.log(partition, kind)
        )

    def letter_subject(self, subject: str) -> str:
        """Return where a dead letter of a step is posted."""
        return subjects.guest_letter(self.key_id) if self.is_guest else subject

    @property
    def makes_consumers(self) -> bool:
        """Whether it makes consumers itself; otherwise it asks a coordinator for those of its
        steps."""
        return self.kind == "owner"


def with_key(url: str, key: str) -> str:
    """Return a `NATS_URL` with a key for each server that is named without an account."""
    return ",".join(_with(part.strip(), key) for part in url.split(","))


def _with(server: str, key: str) -> str:
    scheme, mark, place = server.rpartition("://")
    return server if "@" in place else f"{scheme}{mark or 'nats://'}{key}@{place}"


def identity_of(url: str) -> Identity:
    """Return whom a `NATS_URL` connects as; of several servers the first says it."""
    account, at, _ = url.partition(",")[0].strip().rpartition("://")[2].rpartition("@")
    if not at:
        return Identity()
    user, colon, password = account.partition(":")
    key = parts_of(unquote(password if colon else user))
    if key is not None:
        return Identity("guest", inbox_of_key(key[0]))
    if colon and (user in SERVICES or user == ACCESS_USER):
        return Identity("service", inbox_of_service(user))
    return Identity()
