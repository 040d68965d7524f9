"""What nodes share in a worker process; made at its start, closed at its end."""

from concurrent.futures import Executor
from dataclasses import dataclass


@dataclass(frozen=True)
class Resources:
    """Threads for sync functions, and the modules that `python` nodes may use."""

    threads: Executor
    modules: tuple[str, ...] = ()
