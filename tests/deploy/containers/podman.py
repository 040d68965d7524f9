"""podman on a network of pods that know each other by name, with images of Docker's engine, all in one
folder.

No firewall is started: network policies are tested as data, not here."""

import json
import os
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.containers.engine import run

PROGRAMS = {
    "podman": "podman",
    "runc": "runc",
    "catatonit": "catatonit",
    "dnsmasq": "dnsmasq-base",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "/usr/lib/cni/dnsname": "golang-github-containernetworking-plugin-dnsname",
}
NETWORK = "hocket"
SUBNET = "10.97.0.0/24"
SETTINGS = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[network]
network_backend = "cni"
network_config_dir = "{folder}/net.d"
"""
PLUGINS: list[dict[str, Any]] = [
    {
        "type": "bridge",
        "bridge": "hocket-pods",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": SUBNET}]]},
    },
    {"type": "dnsname", "domainName": "hocket.test", "capabilities": {"aliases": True}},
]


class Podman:
    """Plays manifests, and reports on pods and their containers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._options = ("--root", str(folder / "root"), "--runroot", str(folder / "run"))

    def __call__(self, *arguments: str, check: bool = True, timeout_s: float = 120) -> str:
        """Run podman and return its output."""
        return run(
            "podman", *self._options, *arguments, check=check, timeout_s=timeout_s
        ).stdout.strip()

    def play(self, manifest: Path) -> None:
        """Play the documents of a file."""
        self("play", "kube", "--network", NETWORK, str(manifest), timeout_s=300)

    def secret(self, name: str, values: Mapping[str, str]) -> None:
        """Create a secret that manifests may refer to. podman 4.3 reads secrets for variables as JSON,
        but cannot read the format in which it stores a Secret that it plays."""
        encoded = {key: b64encode(value.encode()).decode() for key, value in values.items()}
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps(encoded))
        self("secret", "create", name, str(path))

    def containers(self) -> list[dict[str, Any]]:
        """Return the details of all containers except those that only hold a pod together."""
        names = self("ps", "--all", "--quiet").split()
        found: list[dict[str, Any]] = json.loads(self("inspect", *names)) if names else []
        return [one for one in found if not one["IsInfra"]]

    def address(self, pod: str) -> str:
        """Return a pod's address."""
        infra = json.loads(self("pod", "inspect", pod))["InfraContainerID"]
        networks = json.loads(self("inspect", infra))[0]["NetworkSettings"]["Networks"]
        return str(networks[NETWORK]["IPAddress"])


@contextmanager
def podman(images: Path) -> Iterator[Podman]:
    """Provide a podman with the images of an archive; everything it runs ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="hkp", dir="/tmp"))  # paths of sockets must be short
    (folder / "net.d").mkdir()
    (folder / "containers.conf").write_text(SETTINGS.format(folder=folder))
    network = {"cniVersion": "0.4.0", "name": NETWORK, "plugins": PLUGINS}
    (folder / "net.d" / "hocket.conflist").write_text(json.dumps(network))
    # podman's health timers do not work here: the player evaluates the probes of the manifests itself
    os.environ.update(CONTAINERS_CONF=str(folder / "containers.conf"), DISABLE_HC_SYSTEMD="true")
    engine = Podman(folder)
    try:
        engine("load", "-q", "-i", str(images), timeout_s=600)
        yield engine
    finally:
        engine("pod", "rm", "--all", "--force", "--time", "2", check=False)
        engine("network", "rm", "--force", NETWORK, check=False)
        engine("system", "reset", "--force", check=False)
        shutil.rmtree(folder, ignore_errors=True)
