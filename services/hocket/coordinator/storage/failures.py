"""What Postgres' failures mean: it is away, or it refuses what it was given.

AWAY is of Postgres and passes: connections, resources, locks. Everything else a commit raises is about
what was to be written, or a mistake of ours; writing it again would be refused again. SUSPECT is what
an overloaded server and one value that is too large raise alike.
"""

from collections.abc import Awaitable, Callable

import asyncpg

from hocket.kit.postgres.errors import is_short_of_memory

AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what is left of a connection whose server was killed
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
SUSPECT = (asyncpg.OutOfMemoryError, asyncpg.ProtocolViolationError)


def is_refusal(error: Exception) -> bool:
    """Tell whether a batch may be refused for something in it, so that a part of it could be written."""
    if is_short_of_memory(error):
        return False
    return not isinstance(error, AWAY) or isinstance(error, SUSPECT)


async def is_of_the_question(error: Exception, ask: Callable[[], Awaitable[object]]) -> bool:
    """Tell whether something failed for what was asked, so that other questions are answered: `ask` is
    one. False where Postgres refuses everything (a missing migration or right): that passes."""
    if isinstance(error, AWAY):
        return False
    if not isinstance(error, asyncpg.PostgresError):
        return True
    try:
        await ask()
    except Exception:
        return False
    return True
