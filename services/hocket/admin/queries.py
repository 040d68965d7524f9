"""What all queries of the API share: the type of the pool and their time limit."""

from typing import TypeAlias

import asyncpg

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

QUERY_TIMEOUT_S = 10.0
"""How long one query may take; long reports belong into a BI tool on schema `report`."""
