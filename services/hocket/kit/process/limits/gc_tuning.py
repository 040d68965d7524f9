"""Tunes Python's cyclic garbage collector for processes that live long and hold many objects.

Objects that exist when a process has started (modules, classes, compiled schemas) live as long as it
does and need not be examined again. Later objects are mostly freed by reference counting: runs break
their cycles when they leave memory. With Python's defaults, the young generation is examined after every
700 new objects and, under load, all objects every few seconds. That took a tenth of the coordinator's
CPU and a seventh of a worker's, and each pass stopped the process.
"""

import gc

THRESHOLDS = (50_000, 4, 50)
"""New objects before the youngest generation is examined, and how often each generation is
examined before the next older one is."""


def settle() -> None:
    """Exempt all existing objects from collection, and examine new ones less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
