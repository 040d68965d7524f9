"""`make compose-test`: build the images, bring everything up and wait for the demo; kill each container
in turn under load; take everything down, start it again with the data, and count. Exits with 1 if
anything is wrong."""

import argparse
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from deploy.containers.engine import base_images, build, engine, install, run
from deploy.containers.rest_load import BACK_S, PIPELINE, Failed, Load, Rest

PROJECT = "hocket-compose-test"
SERVERS = ("nats", "postgres", "coordinator", "worker", "gateway", "ledger", "admin")
ONE_SHOT = ("init", "migrate", "demo")
USER = "10001"
API = "http://127.0.0.1:8080"
UP_MUST_S = 60.0
LOG_LINES = "40"


def compose(*arguments: str, timeout_s: float = 600) -> str:
    return run("docker-compose", "-p", PROJECT, *arguments, timeout_s=timeout_s).stdout


def inspect(service: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(run("docker", "inspect", container(service)).stdout)
    return found[0]


def container(service: str) -> str:
    return f"{PROJECT}_{service}_1"


REST = Rest(lambda: [API], lambda: compose("exec", "-T", "admin", "cat", "/srv/admin/key").strip())


def wait_well(services: tuple[str, ...] = SERVERS) -> float:
    """Wait until all containers are healthy; return how long that took."""
    began = time.monotonic()
    while True:
        states = {service: inspect(service)["State"] for service in services}
        bad = [name for name, s in states.items() if s.get("Health", {}).get("Status") != "healthy"]
        if not bad:
            return time.monotonic() - began
        if time.monotonic() - began > BACK_S:
            logs = run("docker", "logs", "--tail", "20", container(bad[0]))
            raise Failed(f"not healthy after {BACK_S:g} s: {bad}\n{logs.stdout}{logs.stderr}")
        time.sleep(0.2)


def up() -> float:
    """Bring everything up until the demo has ended; return how long that took."""
    began = time.monotonic()
    compose("up", "-d", "--no-build")
    code = run("docker", "wait", container("demo"), timeout_s=300).stdout.strip()
    took_s = time.monotonic() - began
    if code != "0":
        raise Failed(run("docker", "logs", container("demo"), check=False).stdout[-3_000:])
    return took_s


def check_walls() -> None:
    """Check every container: a read-only root, a user other than root, and no capabilities."""
    for service in (*SERVERS, *ONE_SHOT):
        found = inspect(service)
        host, config = found["HostConfig"], found["Config"]
        walls = {
            "its root is read-only": host["ReadonlyRootfs"],
            "its user is not root": config["User"].startswith(USER),
            "it has no capabilities": host["CapDrop"] == ["ALL"] and not host["CapAdd"],
            "it has a limit of memory": host["Memory"] > 0,
            "it has a limit of processes": 0 < host["PidsLimit"] < 10_000,
        }
        if service in SERVERS:
            walls["it runs as that user"] = _uids(found["State"]["Pid"]) == {USER}
            written = run("docker", "exec", container(service), "touch", "/x", check=False)
            walls["its root cannot be written to"] = "Read-only" in written.stderr
        if bad := [claim for claim, holds in walls.items() if not holds]:
            raise Failed(f"{service}: not so: {', '.join(bad)}")
    for image in ("hocket:0.1.0", "hocket-worker:0.1.0"):
        tools = "command -v pip gcc cc make apt-get >/dev/null && command -v pip gcc cc make"
        asked = run("docker", "run", "--rm", "--entrypoint", "sh", image, "-c", tools, check=False)
        if asked.stdout.strip():
            raise Failed(f"{image} holds build tools: {asked.stdout.split()}")


def _uids(pid: int) -> set[str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return set(next(line for line in lines if line.startswith("Uid:")).split()[1:])


def crash(service: str) -> None:
    """Kill a container's first process from outside, as a crash does: one that an operator kills is not
    restarted."""
    os.kill(inspect(service)["State"]["Pid"], signal.SIGKILL)


def last_words() -> str:
    """Return the ends of all containers' logs."""
    texts = []
    for service in SERVERS:
        logs = run("docker", "logs", "--tail", LOG_LINES, container(service), check=False)
        texts.append(f"---- {service}\n{logs.stdout}{logs.stderr}")
    return "\n".join(texts)


def play(load: Load) -> None:
    took_s = up()
    print(f"up to a finished demo run: {took_s:.1f} s", flush=True)
    check_walls()
    print("every container is read-only and not root", flush=True)
    REST.ask("POST", "/v1/pipelines", PIPELINE)
    load.start()
    for service in SERVERS:
        crash(service)
        time.sleep(1)
        back_s = wait_well()
        load.wait_for(5)
        print(f"{service} killed: all healthy after {back_s + 1:.1f} s", flush=True)
    load.end()
    load.check()
    print(f"{len(load.accepted)} runs accepted, all succeeded", flush=True)
    compose("down", "-t", "40")
    again_s = up()
    wait_well()
    load.check()
    print(f"down, and up again: demo after {again_s:.1f} s, all runs are there", flush=True)
    if took_s > UP_MUST_S:
        raise Failed(f"{took_s:.1f} s from up to a finished demo run; {UP_MUST_S:g} are the limit")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make compose-test")
    parser.add_argument("--folder", type=Path, help="kept for the next time: images, Debian trees")
    parser.add_argument("--compile", action="store_true", help="images with compiled parts")
    asked = parser.parse_args()
    folder = asked.folder
    temporary = folder is None
    folder = folder or Path(tempfile.mkdtemp(prefix="hocket-compose-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(
        POSTGRES_PASSWORD=f"p@ss/w:rd %{secrets.token_hex(8)}", COMPOSE_HTTP_TIMEOUT="300"
    )
    install()
    code = 0
    with engine(folder):
        began = time.monotonic()
        base_images(folder)
        build(is_compiled=asked.compile)
        print(f"images built in {time.monotonic() - began:.0f} s", flush=True)
        load = Load(REST)
        try:
            play(load)
        except Failed as error:
            print(f"FAILED: {error}", flush=True)
            print(last_words(), flush=True)
            code = 1
        finally:
            compose("down", "-v", "-t", "10")
    if temporary:
        shutil.rmtree(folder, ignore_errors=True)
    print("FAILED" if code else "passed", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
