"""A process that has started does not look through its modules for garbage again and again."""

import subprocess
import sys

SCRIPT = """
import gc
import hocket.coordinator.service
from hocket.kit.process.limits import gc_tuning

before = len(gc.get_objects())
gc_tuning.settle()
aside, left = gc.get_freeze_count(), len(gc.get_objects())
looked = []
gc.callbacks.append(lambda phase, info: looked.append(info["generation"]))
kept = [[] for _ in range(5_000)]
assert not looked, "5,000 objects are no reason to look"


class Cycle:
    pass


def make():
    one, other = Cycle(), Cycle()
    one.other, other.other = other, one


for _ in range(100_000):
    make()
cycles = sum(isinstance(o, Cycle) for o in gc.get_objects())
print(before, aside, left, cycles)
"""


def test_what_was_there_at_the_start_is_put_aside_and_cycles_are_still_freed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    before, aside, left, cycles = (int(word) for word in done.stdout.split())
    assert aside > 0.9 * before > 50_000
    assert left < 0.1 * before
    assert cycles < 100_000, "of 200,000 objects in cycles, half are still there"
