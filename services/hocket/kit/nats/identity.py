"""The identity of a connection to NATS: a process of ours, the bearer of a key, or another known user.

It follows from the address: `nats://coordinator:PASSWORD@host` is a process of ours, and
`nats://hk_..._...@host` the bearer of a key, as is any user whose password is a key. What each may
do is defined in `schemas/access/nats_table.py`. Everybody else is treated as the owner, who may do
everything in the streams' account, as was the case before there were keys.
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
    """Whose connection it is. `inbox` is the prefix of its inboxes."""

    kind: Literal["owner", "service", "guest"] = "owner"
    inbox: str = INBOX_PREFIX.rstrip(".")

    @property
    def is_guest(self) -> bool:
        """Whether it is the bearer of a key, who may use only the subjects that lead to the platform."""
        return self.kind == "guest"

    @property
    def takes_bundles(self) -> bool:
        """Whether it may get several steps in one message: a guest could not hand a single one back."""
        return not self.is_guest

    @property
    def key_id(self) -> str:
        """The id of a guest's key."""
        return self.inbox.rpartition(".")[2]

    def result_subject(self, partition: int, kind: str) -> str:
        """Return the subject for results: a partition's log, or a guest's subject from which a
        coordinator moves them to the log."""
        return (
            subjects.guest_result(self.key_id) if self.is_guest else subjects.log(partition, kind)
        )

    def letter_subject(self, subject: str) -> str:
        """Return the subject for a step's dead letter, which is `subject` unless a guest posts it."""
        return subjects.guest_letter(self.key_id) if self.is_guest else subject

    @property
    def makes_consumers(self) -> bool:
        """Whether it creates consumers itself; otherwise it asks a coordinator to create those of its
        steps."""
        return self.kind == "owner"


def with_key(url: str, key: str) -> str:
    """Return a `NATS_URL` in which every server without an account gets a key."""
    return ",".join(_with(part.strip(), key) for part in url.split(","))


def _with(server: str, key: str) -> str:
    scheme, mark, place = server.rpartition("://")
    return server if "@" in place else f"{scheme}{mark or 'nats://'}{key}@{place}"


def identity_of(url: str) -> Identity:
    """Return the identity that a `NATS_URL` connects as; with several servers, the first decides."""
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
