"""A real Triton Inference Server for tests: from PyPI, on the CPU, with the models in `triton_models/`.

`nvidia-pytriton` contains the server with its Python backend, which loads the system's libpython and
needs NumPy 1. Therefore it gets its own virtual environment, made once from /usr/bin/python3 and kept
in the user's cache (`HOCKET_TEST_CACHE` names another folder). If the platform cannot run it, or the
packages cannot be installed, `TritonMissing` says why.
"""

import asyncio
import fcntl
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from hocket.kit.child_processes.supervisor import launched
from hocket.kit.embedded.ports import new_port

SYSTEM_PYTHON = Path("/usr/bin/python3")
PACKAGES = {"nvidia-pytriton": "0.7.0", "numpy": "1.26.4"}
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MODELS = Path(__file__).parent / "triton_models"
SHARED_MEMORY = Path("/dev/shm")
INSTALL_TIMEOUT_S = 300
START_TIMEOUT_S = 60


class TritonMissing(Exception):
    """Why there is no Triton on this machine."""


def cached_environment() -> Path:
    """Return the virtual environment with the server, creating it if necessary; raises TritonMissing."""
    version = _checked_platform()
    cache = Path(os.environ.get("HOCKET_TEST_CACHE", "~/.cache/hocket-tests")).expanduser()
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"triton-{PACKAGES['nvidia-pytriton']}-python{version}"
    with (cache / "triton.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _install(folder, version)
            (folder / "complete").touch()
    return folder


def _checked_platform() -> str:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise TritonMissing("the wheel of Triton is for Linux on x86_64")
    if not SYSTEM_PYTHON.exists():
        raise TritonMissing(f"{SYSTEM_PYTHON} is missing, whose libpython Triton loads")
    asked = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run(
        [SYSTEM_PYTHON, "-c", asked], capture_output=True, text=True, timeout=30, check=False
    )
    version = found.stdout.strip()
    if found.returncode or version not in PYTHONS:
        raise TritonMissing(f"{SYSTEM_PYTHON} cannot make an environment (Python {version or '?'})")
    return version


def _install(folder: Path, version: str) -> None:
    wanted = [f"{name}=={number}" for name, number in PACKAGES.items()]
    for command in (
        [SYSTEM_PYTHON, "-m", "venv", folder],
        [folder / "bin" / "pip", "install", "--quiet", "--no-deps", "--no-compile", *wanted],
    ):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise TritonMissing(f"its packages could not be installed: {last}")
    server = _server(folder)
    stub = "triton_python_backend_stub"
    shutil.copy(server / "python_backend_stubs" / version / stub, server / "backends" / "python")


def _server(folder: Path) -> Path:
    return next((folder / "lib").glob("python3*/site-packages")) / "pytriton" / "tritonserver"


class TritonServer:
    """One server process, over a copy of the models."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.repository = folder / "models"
        shutil.copytree(MODELS, self.repository, ignore=shutil.ignore_patterns("__pycache__"))
        self._environment = environment
        self._folder = folder
        self._ports = [new_port(folder / name) for name in ("http", "grpc")]
        self._shared_memory = f"hocket-test-{self._ports[0]}-"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def grpc_url(self) -> str:
        return f"grpc://127.0.0.1:{self._ports[1]}"

    async def start(self) -> None:
        """Start it and wait until it is ready, with all models."""
        server = _server(self._environment)
        libraries = server.parents[1] / "nvidia_pytriton.libs"
        command = [
            str(server / "bin" / "tritonserver"),
            f"--model-repository={self.repository}",
            f"--backend-directory={server / 'backends'}",
            f"--cache-directory={server / 'caches'}",
            "--http-address=127.0.0.1",
            f"--http-port={self._ports[0]}",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={self._ports[1]}",
            "--allow-metrics=false",
            "--model-control-mode=explicit",
            "--load-model=*",
            "--disable-auto-complete-config",
            f"--backend-config=python,shm-region-prefix-name={self._shared_memory}",
            "--exit-timeout-secs=1",
        ]
        env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(libraries),
            "PATH": f"{self._environment / 'bin'}:{os.environ['PATH']}",
        }
        with (self._folder / "triton.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *launched(command, signal.SIGKILL, None, None), env=env, stdout=log, stderr=log
            )
        async with aiohttp.ClientSession() as session:
            await self._ready(session)

    async def _ready(self, session: aiohttp.ClientSession) -> None:
        assert self._process is not None
        async with asyncio.timeout(START_TIMEOUT_S):
            while self._process.returncode is None:
                try:
                    async with session.get(f"{self.http_url}/v2/health/ready") as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)
        log = (self._folder / "triton.log").read_text(errors="replace")
        raise TritonMissing(f"it does not start: {log[-500:]}")

    async def kill(self) -> None:
        """Kill it and its models' processes, and remove the shared memory that they leave behind.

        A model's process that was started late also holds the server's sockets: while one lives, a
        caller of the dead server gets a connection and never an answer.
        """
        if self._process is None:
            return
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._remove_shared_memory()

    def _remove_shared_memory(self) -> None:
        for left in SHARED_MEMORY.glob(f"{self._shared_memory}*"):
            left.unlink(missing_ok=True)


@asynccontextmanager
async def running_triton_server(folder: Path) -> AsyncIterator[TritonServer]:
    """Run a server inside the block; raises TritonMissing."""
    server = TritonServer(await asyncio.to_thread(cached_environment), folder)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()
