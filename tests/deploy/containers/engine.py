"""A Docker engine for tests: the one that is running, or one started for as long as it is needed."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.places import ROOT

PROGRAMS = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "docker-compose": "docker-compose",
    "mmdebstrap": "mmdebstrap",
    "busybox": "busybox-static",
    "openssl": "openssl",
}
BASES = ("python:3.13-slim-trixie", "nats:2.15-alpine", "pgvector/pgvector:pg17")
START_S = 60
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
"""The folders of Debian's programs: PATH may first name a client without an engine."""


def install(programs: Mapping[str, str] = PROGRAMS) -> None:
    """Install what is missing with apt, or exit and say what it is."""
    os.environ["PATH"] = f"{SYSTEM}:{os.environ['PATH']}"
    missing = sorted({package for name, package in programs.items() if not shutil.which(name)})
    if not missing:
        return
    if os.geteuid() or not shutil.which("apt-get"):
        sys.exit(f"this test needs {', '.join(missing)}: install them, or run it as root")
    print(f"installing {', '.join(missing)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        command = ["apt-get", "-qq", *arguments]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


@contextmanager
def engine(folder: Path) -> Iterator[None]:
    """Provide an engine that `docker` can reach: the one that is running, or a new one."""
    if run("docker", "info", check=False).returncode == 0:
        yield
        return
    if os.geteuid():
        sys.exit("this test needs a Docker engine that runs, or root to start one")
    run_folder = tempfile.mkdtemp(prefix="hk", dir="/tmp")  # a socket's path must be short
    os.environ["DOCKER_HOST"] = f"unix://{run_folder}/docker.sock"
    with (folder / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen(
            [
                *("dockerd", "--iptables=false", "--ip-forward=false", "--host"),
                *(os.environ["DOCKER_HOST"], "--data-root", str(folder / "docker")),
                *("--exec-root", f"{run_folder}/exec", "--pidfile", f"{run_folder}/pid"),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        until = time.monotonic() + START_S
        while run("docker", "info", check=False).returncode:
            if daemon.poll() is not None or time.monotonic() > until:
                sys.exit((folder / "dockerd.log").read_text()[-2_000:])
            time.sleep(0.2)
        yield
    finally:
        daemon.terminate()
        daemon.wait(60)
        shutil.rmtree(run_folder, ignore_errors=True)


def base_images(folder: Path) -> None:
    """Pull the base images; if that is impossible, build stand-ins."""
    lacking = [
        name for name in BASES if run("docker", "image", "inspect", name, check=False).returncode
    ]
    if not lacking:
        return
    if all(run("docker", "pull", "-q", name, check=False).returncode == 0 for name in lacking):
        return
    print("base images cannot be pulled: stand-ins are built from Debian's packages", flush=True)
    trees = str(folder / "trees")
    subprocess.run([ROOT / "deploy" / "stand-ins" / "build.sh", trees], check=True)


def build(*, is_compiled: bool = False) -> None:
    """Build both images of this checkout on the host's network: the engine's own may have no way out."""
    for target, name in (("services", "hocket:0.1.0"), ("worker", "hocket-worker:0.1.0")):
        dockerfile = ("-f", "deploy/Dockerfile", "--target", target)
        run(
            "docker",
            "build",
            "-q",
            "--network",
            "host",
            "--build-arg",
            f"COMPILE={int(is_compiled)}",
            *dockerfile,
            "-t",
            name,
            ".",
            timeout_s=1_800,
        )


def run(
    *command: str, check: bool = True, timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a command in the root of the checkout and return its result."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=ROOT
    )
    if check and done.returncode:
        sys.exit(f"{' '.join(command[:6])} failed: {done.stdout[-1_000:]}{done.stderr[-3_000:]}")
    return done
