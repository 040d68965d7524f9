"""Real servers for tests: one NATS and one Postgres per test process, and a fresh database per test.

Under pytest-xdist every worker is a process and therefore has its own servers. A test may kill or stop
a server through `servers`, but must wait until the server is back before it ends.
"""

import gc
import itertools
import os
import re
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import nats
import pytest
from hypothesis import HealthCheck, settings
from nats.aio.client import Client

from hocket.kit.compiled import check_compiled
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection.cancellable_client import CancellableClient, let_go
from hocket.kit.nats.streams import ensure_streams
from support.shared.clusters import copy_clusters
from support.shared.platform_processes import fork_platform_processes
from support.shared.processes import FORKED

# modules are compiled once, not by each of the hundreds of processes that tests start
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# a third of the time to collect six thousand tests was spent in garbage collection
gc.disable()

GIB = 1024**3
MEMORY_DISK = Path("/dev/shm")
MEMORY_DISK_MIN_FREE_BYTES = 8 * GIB
"""A full run of the tests takes about 1 GiB. More must be free because the servers claim disk space in
proportion to what they find, and complain if it is little."""


def _keep_files_in_memory() -> None:
    """Put temporary folders on the memory disk if it has room and TMPDIR names no other place: servers
    sync every write, which takes a tenth of a second on a shared disk."""
    if "TMPDIR" in os.environ or not MEMORY_DISK.is_dir():
        return
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    available_bytes = {name: int(kib) * 1024 for name, kib, *_ in lines}["MemAvailable:"]
    free_bytes = min(available_bytes, shutil.disk_usage(MEMORY_DISK).free)
    if free_bytes >= MEMORY_DISK_MIN_FREE_BYTES:
        os.environ["TMPDIR"] = str(MEMORY_DISK)  # also for the processes that tests start
        tempfile.tempdir = None


def _keep_folders_apart() -> None:
    """Give the tests of each checkout their own root for pytest's folders.

    Whenever a session begins, pytest makes the root that holds the folders of all its sessions
    inaccessible to other users, including Postgres's."""
    name = f"hocket-tests-{zlib.crc32(str(Path(__file__).parent).encode()):08x}"
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(mode=0o711, exist_ok=True)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))


_keep_files_in_memory()
_keep_folders_apart()

# a shared machine is slow at times, not wrong
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

MIGRATIONS_MODULE = "hocket.kit.postgres.migrations"
TEMPLATE = "test_template"
TOMORROW = "SELECT hocket.cover_usage(now() + interval '1 day', 1)"
"""Creates the partition for tomorrow's calls as well: a session may run past midnight."""
SERVER_TIMEOUT_S = 10.0
FIRST_WORKER = "gw0"
FIRST_COLLECTS_S = 180.0

SIMULATION = Path(__file__).parent / "simulation"
UNIT = Path(__file__).parent / "unit"

_database_numbers = itertools.count(1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """If nothing is compiled yet, let the first process collect before the others: otherwise each would
    compile everything at the same time. (`unit/kit` is among the last to be compiled.)"""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or any(Path(__file__).parent.glob("unit/kit/**/*-pytest-*.pyc")):
        return (yield)
    collected = Path(os.environ["PYTEST_DEBUG_TEMPROOT"]) / os.environ["PYTEST_XDIST_TESTRUNUID"]
    if worker == FIRST_WORKER:
        try:
            return (yield)
        finally:
            collected.touch()
    until_s = time.monotonic() + FIRST_COLLECTS_S
    while not collected.exists() and time.monotonic() < until_s:
        time.sleep(0.1)  # these processes share nothing but a folder
    return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest file first, so that the processes of a full run end together. The others already
    come in descending order of duration (chaos, ..., integration, unit)."""
    items.sort(key=lambda item: not item.path.is_relative_to(SIMULATION))
    if not os.environ.get("HOCKET_TEST_LONG"):
        _skip(items, "long", "it takes long: `make long-test`")
    if os.environ.get("HOCKET_TEST_COMPILED"):
        if not check_compiled():
            pytest.exit("nothing is compiled here: `make compiled-test` needs a C compiler", 1)
        _skip(items, "plain", "it is of the plain code")
        for item in items:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{OLD_THROW}:DeprecationWarning"))


OLD_THROW = r"the \(type, exc, tb\) signature of throw\(\) is deprecated"
"""What Python 3.12 and later say when mypyc's code hands an exception on to what it awaits."""
STUB = re.compile(
    r"hocket\.\S+ object expected; got "
    r"(None|types\.SimpleNamespace|unittest\.mock\.\S+|tests\.\S+)"
    r"|'\w+' object attribute '\w+' is read-only"
)
"""What compiled code says to a test that puts something in the place of one of its objects."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Skip a unit test whose stub a compiled part does not take."""
    try:
        return (yield)
    except (TypeError, AttributeError) as error:
        is_compiled = os.environ.get("HOCKET_TEST_COMPILED") and item.path.is_relative_to(UNIT)
        if not is_compiled or not STUB.fullmatch(str(error)):
            raise
    pytest.skip("it gives a stub to a compiled part")


def _skip(items: list[pytest.Item], marker: str, reason: str) -> None:
    skipped = pytest.mark.skip(reason=reason)
    for item in items:
        if item.get_closest_marker(marker) is not None:
            item.add_marker(skipped)


def pytest_collection_finish() -> None:
    """Keep what was collected out of the garbage collector: neither the collector nor a test that
    counts objects looks at it again. It looks for cycles less often, which takes a twelfth off the
    unit tests."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _processes_that_are_forked() -> Iterator[None]:
    """Let the platforms of tests fork their processes from one that has imported everything, and start
    from a copy of a cluster: starting them took a third of a run. With HOCKET_TEST_FORKED=0 they are
    started as usual."""
    with pytest.MonkeyPatch.context() as patch:
        if FORKED:
            fork_platform_processes(patch)
            copy_clusters(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def _clients_that_let_go() -> Iterator[None]:
    """Make the plain nats-py clients of tests close as completely as the platform's do."""
    close = Client._close

    async def close_all(self: Client, status: int, do_cbs: bool = True) -> None:
        is_plain = not isinstance(self, CancellableClient) and not self.is_closed
        try:
            await close(self, status, do_cbs)
        finally:
            if is_plain:
                let_go(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "_close", close_all)
        yield


@pytest.fixture(scope="session")
async def servers() -> AsyncIterator[EmbeddedServers]:
    """The embedded servers of this test process, in a temporary folder with a short path."""
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    try:
        async with EmbeddedServers(folder) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture
async def nats_url(servers: EmbeddedServers) -> AsyncIterator[str]:
    """The URL of a NATS server without streams; what a test leaves behind is deleted afterwards."""
    yield servers.nats_url
    connection = await nats.connect(servers.nats_url, connect_timeout=SERVER_TIMEOUT_S)
    try:
        jetstream = connection.jetstream(timeout=SERVER_TIMEOUT_S)
        while streams := await jetstream.streams_info():
            for stream in streams:
                assert stream.config.name is not None
                await jetstream.delete_stream(stream.config.name)
    finally:
        await connection.close()


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    """A connection to that server, with the platform's streams."""
    bus = await Bus.connect(nats_url, name="test")
    await ensure_streams(bus)
    yield bus
    await bus.close()


@pytest.fixture
async def database_url(servers: EmbeddedServers, database_template: str) -> AsyncIterator[str]:
    """The URL of a fresh, migrated database that only this test uses."""
    async with _fresh_database(servers, database_template) as url:
        yield url


@pytest.fixture(scope="module")
async def module_database_url(
    servers: EmbeddedServers, database_template: str
) -> AsyncIterator[str]:
    """The same for all tests of a module, for tests that read data that is expensive to write."""
    async with _fresh_database(servers, database_template) as url:
        yield url


@asynccontextmanager
async def _fresh_database(servers: EmbeddedServers, template: str) -> AsyncIterator[str]:
    name = f"test_{next(_database_numbers)}"
    await _execute(servers, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    yield servers.postgres.url_of(name)
    await _execute(servers, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
async def database_template(servers: EmbeddedServers) -> str:
    """The name of a migrated database from which each test's database is copied."""
    await _execute(servers, f"CREATE DATABASE {TEMPLATE}")
    if find_spec(MIGRATIONS_MODULE) is not None:
        url = servers.postgres.url_of(TEMPLATE)
        await import_module(MIGRATIONS_MODULE).migrate(url)
        await _execute(servers, TOMORROW, url=url)
    return TEMPLATE


async def _execute(servers: EmbeddedServers, statement: str, *, url: str | None = None) -> None:
    connection = await asyncpg.connect(
        url or servers.database_url, timeout=SERVER_TIMEOUT_S, command_timeout=SERVER_TIMEOUT_S
    )
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
