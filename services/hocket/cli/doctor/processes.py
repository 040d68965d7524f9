"""The checks by `hocket doctor` of the platform in this machine's data folder: does it exist, and are
its processes healthy?"""

import asyncio
import json
from pathlib import Path

from hocket.cli.doctor.findings import Finding, Verdict
from hocket.cli.local.processes import get, health_url
from hocket.cli.remote.target import Target
from hocket.kit.embedded.ports import port_is_free
from hocket.kit.process.platform_facts import LeftFacts, left_facts

MAX_FOUND_CHARS = 500
API_PORT = 8080


def platform(target: Target) -> Finding:
    """Check that there is a platform to talk to or, if there is none, that one could start."""
    if target.facts is not None:
        return Finding("platform", Verdict.OK, f"`hocket up` runs as process {target.facts.pid}")
    if target.named_nats or target.named_api:
        return Finding("platform", Verdict.OK, "named by options or environment")
    if target.context is not None:
        return Finding("platform", Verdict.OK, f"that of the context: {target.context.api_url}")
    left = left_facts(target.data_dir)
    if left is not None and left.was_here is not None:
        return _left(left)
    if not port_is_free(API_PORT):
        found, cure = f"none is running; port {API_PORT} is taken", "`hocket up` uses another port."
        return Finding("platform", Verdict.NOTE, found, cure)
    return Finding("platform", Verdict.NOTE, "none is running on this folder", "Start: hocket up")


def _left(left: LeftFacts) -> Finding:
    """Return the finding for a platform that was not stopped."""
    if left.was_here:
        found = f"`hocket up`, process {left.pid}, ended without being stopped; runs wait for it"
        return Finding("platform", Verdict.FAILED, found, "Start it again: hocket up")
    found = (
        f"`hocket up` ran as process {left.pid} on another machine, in another container, or before this"
        " machine restarted; whether it still runs cannot be told from here"
    )
    cure = f"If it has ended, start it again: hocket up. If it has moved, remove {left.file}."
    return Finding("platform", Verdict.NOTE, found, cure)


async def processes(target: Target) -> list[Finding]:
    """Ask each process started by `hocket up` whether it is ready and healthy."""
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
        return Finding(f"process {name}", Verdict.FAILED, "it is not running", cure)
    status, body = await get(url, "/readyz")
    if status == 200:
        unwell = _unwell(body)
        return (
            Finding(f"process {name}", Verdict.FAILED, unwell, cure)
            if unwell
            else Finding(f"process {name}", Verdict.OK, f"ready, {url}")
        )
    found = body.decode("utf-8", "replace")[:200].strip() or "it does not respond"
    return Finding(f"process {name}", Verdict.FAILED, found, cure)


def _unwell(body: bytes) -> str:
    """Return the problems reported by components of a ready process, such as a refused reload."""
    try:
        components = json.loads(body)["components"]
        found = [f"{n}: {part['detail']}" for n, part in components.items() if part.get("degraded")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return "; ".join(found)[:MAX_FOUND_CHARS]


def _restarted(run_dir: Path, name: str) -> str | None:
    """Return the health URL of a process that was restarted since the platform began."""
    for path in run_dir.glob(f"{name.partition('-')[0]}*-*.json"):
        pid = int(path.stem.rpartition("-")[2])
        if Path(f"/proc/{pid}").exists():
            return health_url(run_dir, pid)
    return None
