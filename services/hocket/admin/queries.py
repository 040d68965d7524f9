"""What all queries of the API share: the pool type and the time limit."""

from typing import TypeAlias

import asyncpg

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

QUERY_TIMEOUT_S = 10.0
"""How long one query may take; long reports belong in a BI tool on the schema `report`."""
