"""Whether a statement failed because of what was written, or because of the state of the world.

A *row fault* is in the values: the same statement fails again for ever, so whoever wrote a batch splits
it and sets the guilty row aside. Everything else (Postgres is away, starting, full, locked, out of
connections, migrated) ends by itself or by an operator's hand: the same statement is tried again.
"""

import asyncpg

ROW_FAULT_CLASSES = frozenset({"21", "22", "23", "44", "54"})
"""SQLSTATE classes: cardinality, data, integrity, WITH CHECK OPTION, and program limits (an index entry
that is too long, a value beyond 1 GB). https://www.postgresql.org/docs/current/errcodes-appendix.html"""

STATEMENT_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what is left of a connection whose server was killed
    ValueError,
    OverflowError,
    TypeError,
    MemoryError,
)
"""Everything that a statement can raise; `is_row_fault` tells the two kinds apart."""


def is_short_of_memory(error: BaseException) -> bool:
    """Return whether this process had no memory for a statement: that is no fault of its values, even
    where asyncpg says that it could not encode one."""
    return isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError)


def is_row_fault(error: BaseException) -> bool:
    """Return whether the values of a statement made it fail, so that trying again cannot help."""
    if is_short_of_memory(error):
        return False
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "")[:2] in ROW_FAULT_CLASSES
    if isinstance(error, OSError | TimeoutError | asyncpg.InternalClientError):
        return False
    # asyncpg's own: a value that cannot be encoded for its column (its DataError is a ValueError)
    return isinstance(error, ValueError | OverflowError | TypeError)
