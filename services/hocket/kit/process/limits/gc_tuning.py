"""Python's collector of reference cycles, set for processes that live long and keep much.

What is there when a process has started (modules, classes, compiled schemas) lives as long as it does
and need not be looked at again. What comes after is mostly freed by its reference counts: runs cut their
cycles when they leave the memory. Python's defaults look at everything young after 700 new objects, and
every few seconds of load at everything there is. That was a tenth of the coordinator's CPU and a seventh
of a worker's, and stopped each of them for as long as it took.
"""

import gc

THRESHOLDS = (10_000, 20, 50)
"""New objects before the young are looked at (2 ms), and how often the younger generation is before
the next older one."""


def settle() -> None:
    """Put aside all that has been made until now, and look less often at what comes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
