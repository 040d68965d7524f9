"""Preconditions of writes (RFC 9110): `If-Match` with the ETag that the caller has seen, so that
concurrent writers do not silently overwrite each other's changes."""

from typing import Annotated

from fastapi import Header

from hocket.schemas.errors import ErrorClass, HocketError

ETAG = "ETag"
WEAK = "W/"
"""What a proxy puts before the ETag of an answer that it compresses. It is still the same revision."""
ANY = "*"
MAX_ETAG_CHARS = 64

IfMatch = Annotated[
    str | None,
    Header(
        max_length=MAX_ETAG_CHARS,
        description="ETag of the version to change; if the current ETag differs, the request fails with "
        "412. A leading `W/`, which proxies add when they compress, does not count.",
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(
        max_length=MAX_ETAG_CHARS,
        description="`*`: only create, never replace. If the current ETag matches, the request fails "
        "with 412.",
    ),
]


class PreconditionFailed(HocketError):
    """It was changed in the meantime: its ETag is now `{etag}`. Read it again, and repeat the change
    on that."""

    code = "precondition_failed"
    error_class = ErrorClass.INVALID


class NothingToMatch(PreconditionFailed):
    """There is nothing here whose ETag could match `If-Match`: it was never created, or it has been
    deleted. Leave out `If-Match` to create it."""


def etag(revision: int) -> str:
    """Return the ETag of a revision."""
    return f'"{revision}"'


def check_match(wanted: str | None, revision: int | None) -> None:
    """Raise PreconditionFailed if `If-Match` names another revision, and NothingToMatch if `revision` is
    None, because the resource does not exist."""
    if wanted is None:
        return
    if revision is None:
        raise NothingToMatch(field="If-Match")
    if wanted != ANY and wanted.removeprefix(WEAK) != etag(revision):
        raise PreconditionFailed(etag=etag(revision))


def check_none_match(unwanted: str | None, revision: int | None) -> None:
    """Raise PreconditionFailed if `If-None-Match` names this revision, or any."""
    if revision is None or unwanted is None:
        return
    if unwanted == ANY or unwanted.removeprefix(WEAK) == etag(revision):
        raise PreconditionFailed(etag=etag(revision))
