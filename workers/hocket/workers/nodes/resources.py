"""What nodes share in a worker process; made at its start, closed at its end."""

from concurrent.futures import Executor
from dataclasses import dataclass

import asyncpg

from hocket.workers.sql.targets import Targets


@dataclass(frozen=True)
class Resources:
    """Threads for sync functions, the modules that `python` nodes may use, the databases of `sql`
    and `planning` nodes, and the pool of the index, where `retrieval` nodes run."""

    threads: Executor
    targets: Targets
    modules: tuple[str, ...] = ()
    index: asyncpg.Pool | None = None
