"""`make podman-test`: deploy/kubernetes, played by `podman play kube` beside three NATS servers and
Postgres.

Every pod must become ready according to its manifest's probe, run as nobody with nothing that it can
write to, and work again after its process was killed while tasks arrive; each accepted run must
succeed.

podman is no cluster. What a cluster's controllers do is done here: pods are made from the templates of
the deployments and of the migration's job. podman 4.3 shares an `emptyDir` among all pods that use the
same name for it, so each pod's volumes get a name of their own; and it binds every port of a container
on the host, so each pod gets its own address there. podman skips services, policies, budgets and
priorities."""

import argparse
import copy
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from deploy.containers.engine import PROGRAMS as DOCKERS
from deploy.containers.engine import base_images, build, engine, install, run
from deploy.containers.podman import PROGRAMS, Podman, podman
from deploy.containers.rest_load import BACK_S, PIPELINE, Failed, Load, Rest
from support.places import ROOT

BASE = ROOT / "deploy" / "kubernetes"
SERVERS = Path(__file__).with_name("servers.yaml")
IMAGES = ("hocket:0.1.0", "hocket-worker:0.1.0", "nats:2.15-alpine", "pgvector/pgvector:pg17")
NATS = ("nats", "nats-b", "nats-c")
HEALTH_PORT, REST_PORT = 9090, 8080
USER = 10001
LOOK_S = 0.3


class Platform:
    """The pods of the base."""

    def __init__(self, podman: Podman, folder: Path) -> None:
        command = [str(ROOT / ".venv-deploy" / "bin" / "kubectl"), "kustomize", str(BASE)]
        self._documents = [one for one in yaml.safe_load_all(run(*command).stdout) if one]
        self._podman = podman
        self._folder = folder
        self._addresses: dict[str, str] = {}

    def start(self) -> None:
        """Play the servers, the migration, and then the base."""
        self._podman.play(self._written("servers", _servers()))
        for secret in self._of("Secret"):
            self._podman.secret(secret["metadata"]["name"], secret["stringData"])
        (job,) = self._of("Job")
        migration = _pod("migrate", job["spec"]["template"])
        self._podman.play(self._written("migration", [*self._of("ConfigMap"), migration]))
        self._wait_migrated()
        pods = self.pods()
        others = [
            one
            for one in self._documents
            if one["kind"] not in ("Secret", "ConfigMap", "Deployment", "Job")
        ]
        base = [*self._of("ConfigMap"), *others, *pods.values()]
        self._podman.play(self._written("base", base))
        self._addresses = {pod: self._podman.address(pod) for pod in pods}

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the manifest of each required pod by its name."""
        names = {
            f"{one['metadata']['name']}-{number}": one["spec"]["template"]
            for one in self._of("Deployment")
            for number in range(one["spec"]["replicas"])
        }
        found = {name: _pod(name, template) for name, template in names.items()}
        for number, pod in enumerate(found.values(), 1):
            for port in pod["spec"]["containers"][0]["ports"]:
                port |= {"hostPort": port["containerPort"], "hostIP": f"127.0.97.{number}"}
        return found

    def rest(self) -> list[str]:
        """Return the addresses of the REST service."""
        return [
            f"http://{address}:{REST_PORT}"
            for pod, address in self._addresses.items()
            if pod.startswith("admin-")
        ]

    def first_key(self) -> str:
        """Create an administrator's key as described in docs/reference/access.md."""
        command = ("keys", "create", "play", "--role", "admin", "--all-tenants", "--in-database")
        said = self._podman("exec", "admin-0-admin", "hocket", *command, "--json")
        return str(yaml.safe_load(said)["key"])

    def wait_ready(self) -> float:
        """Wait until each pod's readiness probe succeeds; return how long that took."""
        began, left = time.monotonic(), dict.fromkeys(self.pods())
        while left:
            for pod in list(left):
                (container,) = self.pods()[pod]["spec"]["containers"]
                path = container["readinessProbe"]["httpGet"]["path"]
                if _answers(f"http://{self._addresses[pod]}:{HEALTH_PORT}{path}"):
                    del left[pod]
            if time.monotonic() - began > BACK_S:
                raise Failed(f"not ready after {BACK_S:g} s: {', '.join(left)}{self._logs(left)}")
            time.sleep(LOOK_S)
        return time.monotonic() - began

    def check_walls(self) -> int:
        """Check every container of ours: a read-only root, a user other than root, and no capabilities.
        Returns the number of containers."""
        ours = self._ours()
        if len(ours) != len(self.pods()):
            raise Failed(f"{len(ours)} containers for {len(self.pods())} pods")
        for one in ours:
            written = self._podman("exec", one["Name"], "touch", "/x", check=False)
            status = Path(f"/proc/{one['State']['Pid']}/status").read_text().splitlines()
            process = dict(line.split(":\t", 1) for line in status if ":\t" in line)
            walls = {
                "its root is read-only": one["HostConfig"]["ReadonlyRootfs"],
                "its root cannot be written to": not written,
                "its process is the user": set(process["Uid"].split()) == {str(USER)},
                "it has no capabilities": int(process["CapBnd"], 16) == 0,
                "it gets no new rights": process["NoNewPrivs"] == "1",
                "its system calls are filtered": process["Seccomp"] == "2",
                "it has a limit of memory": one["HostConfig"]["Memory"] > 0,
            }
            if bad := [claim for claim, holds in walls.items() if not holds]:
                raise Failed(f"{one['Name']}: not so: {', '.join(bad)}")
        return len(ours)

    def crash(self, pod: str) -> None:
        """Kill a pod's process as a crash does, and wait until podman has restarted it."""
        (one,) = (one for one in self._ours() if one["Name"].startswith(f"{pod}-"))
        os.kill(one["State"]["Pid"], signal.SIGKILL)
        until = time.monotonic() + BACK_S
        while True:
            (now,) = (found for found in self._ours() if found["Id"] == one["Id"])
            if now["State"]["Running"] and now["State"]["Pid"] != one["State"]["Pid"]:
                return
            if time.monotonic() > until:
                raise Failed(f"{pod} is not started again")
            time.sleep(LOOK_S)

    def _ours(self) -> list[dict[str, Any]]:
        names = tuple(f"{pod}-" for pod in self.pods())
        return [one for one in self._podman.containers() if one["Name"].startswith(names)]

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self._documents if one["kind"] == kind]

    def _wait_migrated(self) -> None:
        until = time.monotonic() + BACK_S
        while True:
            (one,) = (c for c in self._podman.containers() if c["Name"] == "migrate-migrate")
            if one["State"]["Status"] == "exited" and one["State"]["ExitCode"] == 0:
                return
            if time.monotonic() > until:
                raise Failed(f"the migration does not end well{self._logs(['migrate'])}")
            time.sleep(LOOK_S)

    def _written(self, name: str, documents: list[Any]) -> Path:
        path = self._folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump_all([one for one in documents if one]))
        return path

    def _logs(self, pods: Any) -> str:
        found = [one for one in self._podman.containers() if one["Name"].startswith(tuple(pods))]
        logs = [self._podman("logs", "--tail", "15", one["Name"], check=False) for one in found]
        return "\n" + "\n".join(logs)


def _servers() -> list[dict[str, Any]]:
    """Return the manifests of the servers: that of `nats` once under each of its names."""
    found = list(yaml.safe_load_all(SERVERS.read_text()))
    (nats,) = (one for one in found if one["metadata"]["name"] == NATS[0])
    return [one for one in found if one is not nats] + [_pod(name, nats) for name in NATS]


def _pod(name: str, template: dict[str, Any]) -> dict[str, Any]:
    """Return a pod made from a template, with empty folders that no other pod shares."""
    spec = copy.deepcopy(template["spec"])
    own = {one["name"]: f"{name}-{one['name']}" for one in spec["volumes"] if "emptyDir" in one}
    mounts = [mount for container in spec["containers"] for mount in container["volumeMounts"]]
    for one in (*spec["volumes"], *mounts):
        one["name"] = own.get(one["name"], one["name"])
    metadata = {**template["metadata"], "name": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=3) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def play(platform: Platform) -> None:
    began = time.monotonic()
    platform.start()
    platform.wait_ready()
    print(f"{len(platform.pods())} pods ready after {time.monotonic() - began:.1f} s", flush=True)
    print(f"{platform.check_walls()} containers: read-only, not root, no rights", flush=True)
    rest = Rest(platform.rest, platform.first_key)
    rest.ask("POST", "/v1/pipelines", PIPELINE)
    load = Load(rest)
    load.start()
    load.wait_for(5)
    for pod in (name for name in platform.pods() if name.endswith("-0")):
        platform.crash(pod)
        back_s = platform.wait_ready()
        load.wait_for(5)
        print(f"{pod} killed: all ready {back_s:.1f} s after it was started again", flush=True)
    load.end()
    load.check()
    print(f"{len(load.accepted)} runs accepted, all succeeded", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make podman-test")
    parser.add_argument("--folder", type=Path, help="kept for the next time: images, Debian trees")
    folder = parser.parse_args().folder
    temporary = folder is None
    folder = folder or Path(tempfile.mkdtemp(prefix="hocket-podman-"))
    folder.mkdir(parents=True, exist_ok=True)
    install({**DOCKERS, **PROGRAMS})
    archive, code = folder / "images.tar", 0
    with engine(folder):
        base_images(folder)
        build()
        archive.unlink(missing_ok=True)
        run("docker", "save", "-o", str(archive), *IMAGES, timeout_s=600)
    try:
        with podman(archive) as pods:
            play(Platform(pods, folder))
    except Failed as error:
        print(f"FAILED: {error}", flush=True)
        code = 1
    if temporary:
        shutil.rmtree(folder, ignore_errors=True)
    print("FAILED" if code else "passed", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
