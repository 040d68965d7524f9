"""A process that has no memory ends; one allocation that was too large ends nothing. In processes of
their own, with a limit of their own."""

import subprocess
import sys

import pytest

from hocket.kit.process.limits import memory

BOUND_S = 60
LIMITED = """
import resource, sys, time
from pathlib import Path
from hocket.kit.process.limits import memory

MIB = 1024 * 1024

def hog():
    held = []
    while True:
        held.append(bytearray(MIB))

def limit(spare_mib):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + spare_mib * MIB
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sets a limit as Linux has it")


def played(code: str) -> tuple[int, str, str]:
    """Run code in a process that can limit its memory; return its exit code and what it said."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + code],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("line", ["structlog.get_logger().exception", "logging.exception"])
def test_a_process_without_memory_ends_where_that_is_logged_and_says_so(line: str) -> None:
    code, _, said = played(f"""
import logging, structlog
from hocket.kit.process.settings import Settings
from hocket.kit.logs.telemetry import setup
setup("x", Settings())
limit(1)
try: bytearray(64 * MIB)
except MemoryError: {line}("failed")
print('went on')
""")
    assert code == memory.EXIT_CODE
    assert '"event":"out_of_memory"' in said


def test_it_ends_at_once_where_something_failed_for_it() -> None:
    code, said, _ = played(
        "limit(1)\n"
        "try: bytearray(64 * MIB)\n"
        "except MemoryError as error: memory.end_if_short(error)\n"
        "print('went on')"
    )
    assert (code, said) == (memory.EXIT_CODE, "")


def test_it_ends_where_a_callback_failed_for_it() -> None:
    code, said, _ = played("""
import asyncio
async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(memory.note)
    loop.call_soon(bytearray, 64 * MIB)
    await asyncio.sleep(1)
limit(1)
asyncio.run(main())
print('went on')
""")
    assert (code, said) == (memory.EXIT_CODE, "")


def test_a_connection_that_broke_for_it_ends_nothing_for_its_client_makes_it_anew() -> None:
    code, said, _ = played("""
import asyncio, logging
async def main():
    context = {"message": "Fatal error on transport", "transport": None}
    memory.note(asyncio.get_running_loop(), {**context, "exception": MemoryError()})
handler = logging.StreamHandler()
handler.addFilter(memory.Ending())
logging.basicConfig(handlers=[handler])
limit(1)
asyncio.run(main())
try: bytearray(64 * MIB)
except MemoryError as error: logging.getLogger("nats.aio.client").error("x", exc_info=error)
print('went on')
""")
    assert (code, said) == (0, "went on\n")


@pytest.mark.parametrize("cause", ["hog()", "bytearray(2**62)"])
def test_what_took_too_much_alone_ends_nothing(cause: str) -> None:
    code, said, _ = played(
        "limit(64)\n"
        f"try: {cause}\n"
        "except MemoryError as error: memory.end_if_short(error)\n"
        "print('went on')"
    )
    assert (code, said) == (0, "went on\n")


def test_other_errors_and_a_process_with_memory_go_on() -> None:
    memory.end_if_short(ValueError("x"))
    memory.end_if_short(MemoryError())
    assert not memory.is_short()
