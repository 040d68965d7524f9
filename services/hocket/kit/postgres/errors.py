"""What the failure of a statement means: Postgres is away, the values are at fault, or either may be so.

*Away* passes by itself or by an operator's hand (no connection, starting, full, locked, a standby): the
same statement is tried again. A *row fault* is in the values: the same statement fails again for ever,
so the writer of a batch splits it and sets the guilty row aside. Everything else is *unclear*: what an
overloaded server and one value that is too large raise alike, a missing table or right, an error of a
trigger. A writer that can take its batch back tries it in parts; the others try again.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum

import asyncpg

AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what is left of a connection whose server was killed
    asyncpg.OperatorInterventionError,
    asyncpg.ReadOnlySQLTransactionError,  # it is a standby, or was made one
    asyncpg.InsufficientResourcesError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
"""What is raised while Postgres cannot answer; for statements that read, all of it passes."""

ROW_FAULT_CLASSES = frozenset({"21", "22", "23", "44", "54"})
"""SQLSTATE classes: cardinality, data, integrity, WITH CHECK OPTION, and program limits (an index entry
that is too long, a value beyond 1 GB). https://www.postgresql.org/docs/current/errcodes-appendix.html"""

STATEMENT_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ValueError,
    OverflowError,
    TypeError,
    MemoryError,
)
"""Everything that a statement can raise; `meaning_of` tells the kinds apart."""

_OF_ONE_VALUE_OR_OF_ALL = (asyncpg.OutOfMemoryError, asyncpg.ProtocolViolationError)


class Meaning(StrEnum):
    """What a failed statement tells."""

    AWAY = "away"
    ROW_FAULT = "row fault"
    UNCLEAR = "unclear"


def meaning_of(error: BaseException) -> Meaning:
    """Return what the failure of a statement that writes means."""
    # this process had no memory: no fault of the values, even where asyncpg could not encode one
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        return Meaning.AWAY
    if is_of_pooler(error):
        return Meaning.AWAY
    if isinstance(error, _OF_ONE_VALUE_OR_OF_ALL):
        return Meaning.UNCLEAR
    if isinstance(error, AWAY):
        return Meaning.AWAY
    if isinstance(error, asyncpg.PostgresError):
        of_the_row = (error.sqlstate or "")[:2] in ROW_FAULT_CLASSES
    else:
        of_the_row = isinstance(error, ValueError | OverflowError | TypeError)
    return Meaning.ROW_FAULT if of_the_row else Meaning.UNCLEAR


def is_of_pooler(error: BaseException) -> bool:
    """Return whether a pooler said that it has no server for us, or lost it: pgbouncer does so with the
    code of a violated protocol. Postgres says with each error where in its source it was raised."""
    said_where = getattr(error, "server_source_function", None)
    return isinstance(error, asyncpg.ProtocolViolationError) and not said_where


def is_row_fault(error: BaseException) -> bool:
    """Return whether the values of a statement made it fail, so that trying again cannot help."""
    return meaning_of(error) is Meaning.ROW_FAULT


def may_be_row_fault(error: BaseException) -> bool:
    """Return whether a batch may be refused for something in it, so that a part could be written."""
    return meaning_of(error) is not Meaning.AWAY


async def fails_alone(error: Exception, probe: Callable[[], Awaitable[object]]) -> bool:
    """Return whether an operation failed for a reason of its own while Postgres answers others: `probe`
    is such another one. False where Postgres refuses everything (a missing migration or right): that
    passes."""
    if isinstance(error, AWAY):
        return False
    if not isinstance(error, asyncpg.PostgresError):
        return True
    try:
        await probe()
    except Exception:
        return False
    return True
