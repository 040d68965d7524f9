"""`make new-user-test`: follow docs/how-to/three-servers.md to the letter on a clean machine.

The machine is a container of Debian 13 with its Python and nothing else: its packages and Hocket are
installed by the page's own commands, from Hocket's source as of the last commit. It must finish within
BOUND_S. The shell's output is printed, and with --write it is saved beside the page, without apt's
messages about packages."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deploy.containers.engine import PROGRAMS, engine, install, run
from deploy.page_play import PAGE, commands, unsaid
from support.places import ROOT

IMAGE = "hocket-clean-debian:13"
NAME = "hocket-new-user"
HOME = "/root"
BOUND_S = 1_800.0
PYTHON = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
TRANSCRIPT = PAGE.with_name("three-servers-transcript.md")
INDEX = ("/etc/pip.conf", "/root/.config/pip/pip.conf")
"""Files that configure the package index on this machine; the container gets those that exist."""
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
AUTHORITIES_THERE = "/opt/authorities.crt"
"""A separate path, because the page installs Debian's own file."""
OF_KEYS = re.compile(r"^[.+*-]+$")
OF_INDEX = re.compile(r"^WARNING: Location ")
HEAD = """\
# Three NATS servers: the transcript

What the shell printed when `make new-user-test` followed [the page](three-servers.md) to the letter
on a clean machine: a container of Debian 13 with Python {python} and nothing else. From nothing to the
last line it took **{took}** on {cores} cores {loaded}; 30 minutes are allowed.
Left out: what apt tells of each package, and the dots of openssl.

```text
"""


def debian(folder: Path) -> None:
    """Create the image of a Debian 13 with Python, unless it exists."""
    if run("docker", "image", "inspect", IMAGE, check=False).returncode == 0:
        return
    tree = folder / "clean.tar"
    if not tree.exists():
        mirror = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
        command = (
            "mmdebstrap",
            "--quiet",
            "--format=tar",
            "--variant=minbase",
            "--include=python3",
        )
        run(*command, "trixie", f"{tree}.part", mirror, timeout_s=900)
        Path(f"{tree}.part").rename(tree)
    run("docker", "import", str(tree), IMAGE, timeout_s=300)


def begin() -> None:
    """Start the machine, with Hocket's source in its home directory."""
    run("docker", "rm", "--force", NAME, check=False)
    given = [f"--env={name}" for name in os.environ if name.startswith("PIP_")]
    if os.path.exists(AUTHORITIES):
        given += [f"--env=PIP_CERT={AUTHORITIES_THERE}"]
        given += [f"--volume={AUTHORITIES}:{AUTHORITIES_THERE}:ro"]
    links = os.environ.get("PIP_FIND_LINKS")
    folders = [
        path for path in (links, "/opt/pypi", "/opt/pypi-more") if path and Path(path).exists()
    ]
    mounts = [f"--volume={path}:{path}:ro" for path in (*folders, *filter(os.path.exists, INDEX))]
    command = ("docker", "run", "--detach", "--init", "--network=host", f"--name={NAME}")
    run(*command, *given, *mounts, f"--workdir={HOME}", IMAGE, "sleep", "infinity")
    source = subprocess.run(
        ["git", "archive", "--prefix=hocket/", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    command = ("docker", "exec", "--interactive", NAME, "tar", "-x", "-C", HOME)
    subprocess.run(command, input=source.stdout, check=True)


def in_machine(*command: str) -> str:
    return run("docker", "exec", NAME, *command, check=False).stdout.strip()


def follow() -> tuple[int, str]:
    """Follow the whole page; return the shell's exit code and output."""
    command = ("docker", "exec", "--env", f"HOME={HOME}", NAME, "bash", "-euv", "-c", commands())
    with tempfile.TemporaryFile(
        "w+"
    ) as printed:  # the processes that the page leaves running would keep a pipe open
        done = subprocess.run(command, stdout=printed, stderr=printed, timeout=BOUND_S, check=False)
        printed.seek(0)
        return done.returncode, printed.read()


def shown(printed: str) -> str:
    """Return the output without messages about packages and their sources, and without the dots of key
    generation."""
    lines = [
        re.sub(r"^\(.*?\r|\x1b\[[0-9;]*m|\r", "", line).rstrip() for line in printed.splitlines()
    ]
    kept, before = [], None
    installing = False
    for line in lines:
        if line.startswith("apt-get "):
            installing = True
        elif line.startswith("python3 -m venv"):
            installing = False
        elif installing or OF_KEYS.match(line) or OF_INDEX.match(line):
            continue
        if line or before:
            kept.append(line)
        before = line
    return "\n".join(kept).strip("\n")


def written(printed: str, took_s: float) -> None:
    """Save the transcript beside the page."""
    load = os.getloadavg()[1]
    cores = os.cpu_count() or 1
    loaded = "with nothing else to do" if load < cores else f"at a load of {load:.0f} by other work"
    head = HEAD.format(
        python=in_machine("python3", "-c", PYTHON),
        took=f"{took_s // 60:.0f} min {took_s % 60:.0f} s",
        cores=cores,
        loaded=loaded,
    )
    TRANSCRIPT.write_text(f"{head}{shown(printed)}\n```\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make new-user-test")
    parser.add_argument("--folder", type=Path, help="kept for the next time: the Debian tree")
    parser.add_argument("--write", action="store_true", help=f"write {TRANSCRIPT.name}")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="hocket-new-user-"))
    folder.mkdir(parents=True, exist_ok=True)
    install(PROGRAMS)
    try:
        with engine(folder):
            debian(folder)
            begin()
            try:
                began = time.monotonic()
                code, printed = follow()
                took_s = time.monotonic() - began
                print(printed)
                print(f"from nothing in {took_s / 60:.1f} minutes", flush=True)
                if code or (missing := unsaid(printed)):
                    print(in_machine("sh", "-c", "tail -n 15 cluster/*.log"))
                    sys.exit(
                        f"FAILED: exit code {code}" if code else f"FAILED: not said: {missing}"
                    )
                if asked.write:
                    written(printed, took_s)
            finally:
                run("docker", "rm", "--force", NAME, check=False)
    finally:
        if asked.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
