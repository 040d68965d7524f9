"""What can be known of the deployment files without running them."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from hocket.coordinator.core.scheduling.type_queue import Load
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.kit.process.lifecycle import STOP_TIMEOUT_S
from hocket.kit.process.settings import Settings
from hocket.workers.configuration import parse
from hocket.workers.runtime.transport.consumers import consumer_name
from support.places import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"


def settings_names() -> set[str]:
    names = {f"HOCKET_{name.upper()}" for name in Settings.model_fields}
    return names | {"NATS_URL", "DATABASE_URL"}


def documents(path: Path) -> list[dict]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def containers() -> list[dict]:
    found = []
    for file in ("services.yaml", "migrate.yaml"):
        for document in documents(KUBERNETES / file):
            pod = document.get("spec", {}).get("template", {}).get("spec", {})
            found += pod.get("containers", ())
    return found


COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
COMMANDS = [c["command"] for c in containers()] + [
    service["command"] for service in COMPOSE["services"].values() if "hocket" in service["image"]
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_names_something_that_is_there(command: list[str]) -> None:
    if command[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(f"{command[2]}.__main__") is not None
    else:
        assert (Path(sys.executable).parent / command[0]).exists()
        assert command[1:] == ["migrate"]


def test_every_variable_is_a_setting_that_the_processes_read() -> None:
    given = set(COMPOSE["x-hocket"]["environment"]) | set(COMPOSE["x-keyed"]["environment"])
    for document in documents(KUBERNETES / "settings.yaml"):
        given |= set(document.get("data") or document.get("stringData") or {})
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    given |= set(re.findall(r"\b(HOCKET_[A-Z_]+)=", dockerfile))
    assert given <= settings_names()


def test_all_but_workers_have_the_key_by_which_messages_are_believed() -> None:
    keyed = {"coordinator", "gateway", "ledger", "admin"}
    name = "HOCKET_CAPABILITY_KEY"
    services = COMPOSE["services"].items()
    assert {one for one, service in services if name in service.get("environment", {})} == keyed
    (secret,) = (
        document["metadata"]["name"]
        for document in documents(KUBERNETES / "settings.yaml")
        if name in document.get("stringData", {})
    )
    given = set()
    for one, deployment in deployments().items():
        (container,) = deployment["template"]["spec"]["containers"]
        refs = [source.get("secretRef", {}).get("name") for source in container["envFrom"]]
        given |= {one} if secret in refs else set()
    assert given == keyed


def test_workers_in_several_containers_share_large_values() -> None:
    (config,) = documents(KUBERNETES / "config.yaml")
    for text in (config["data"]["hocket.yaml"], (ROOT / "deploy" / "hocket.yaml").read_text()):
        assert parse(yaml.safe_load(text)).blobs.store == "postgres"


def test_every_service_finds_the_configuration_file() -> None:
    settings, *_secrets = documents(KUBERNETES / "settings.yaml")
    folder, _, name = settings["data"]["HOCKET_CONFIG"].rpartition("/")
    (config,) = documents(KUBERNETES / "config.yaml")
    assert name in config["data"]
    for container in containers():
        if "livenessProbe" in container:
            assert folder in {mount["mountPath"] for mount in container["volumeMounts"]}
    target = COMPOSE["x-hocket"]["environment"]["HOCKET_CONFIG"]
    mounted = [volume.split(":")[1] for volume in COMPOSE["x-hocket"]["volumes"]]
    assert mounted == [target]


def test_probes_ask_the_port_that_the_image_serves_health_on() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    port = int(re.search(r"HOCKET_HEALTH_PORT=(\d+)", dockerfile)[1])  # type: ignore[index]
    for container in containers():
        if "livenessProbe" in container:
            ports = {p["name"]: p["containerPort"] for p in container["ports"]}
            assert ports[container["readinessProbe"]["httpGet"]["port"]] == port
    assert f":{port}/readyz" in " ".join(COMPOSE["x-hocket"]["healthcheck"]["test"])


def test_the_kustomization_names_files_that_are_there() -> None:
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    assert all((KUBERNETES / name).exists() for name in kustomization["resources"])


def deployments() -> dict[str, dict]:
    found = documents(KUBERNETES / "services.yaml")
    return {d["metadata"]["name"]: d["spec"] for d in found if d["kind"] == "Deployment"}


def test_every_service_goes_on_while_one_of_its_processes_is_replaced() -> None:
    budgets = {d["metadata"]["name"]: d["spec"] for d in documents(KUBERNETES / "disruption.yaml")}
    assert budgets.keys() == deployments().keys()
    for name, deployment in deployments().items():
        assert deployment["replicas"] >= 2
        assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 1
        labels = deployment["template"]["metadata"]["labels"]
        assert budgets[name]["selector"]["matchLabels"] == labels
        assert deployment["selector"]["matchLabels"] == labels
        assert budgets[name]["maxUnavailable"] == 1
        (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"] == labels


def test_coordinators_have_names_of_their_own_and_no_fewer_partitions_than_there_are() -> None:
    settings, *_secrets = documents(KUBERNETES / "settings.yaml")
    coordinator = deployments()["coordinator"]
    assert coordinator["replicas"] <= int(settings["data"]["HOCKET_PARTITIONS"])
    (container,) = coordinator["template"]["spec"]["containers"]
    named = {one["name"]: one["valueFrom"] for one in container["env"]}
    assert named == {"HOCKET_INSTANCE": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert named.keys() <= settings_names()


def test_a_process_is_restarted_when_it_hangs_and_not_when_a_server_is_away() -> None:
    for deployment in deployments().values():
        (container,) = deployment["template"]["spec"]["containers"]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_a_process_has_time_to_end_by_itself() -> None:
    for deployment in deployments().values():
        assert deployment["template"]["spec"]["terminationGracePeriodSeconds"] > STOP_TIMEOUT_S


def test_keda_watches_a_consumer_that_workers_make_and_metrics_that_coordinators_have() -> None:
    (scaled,) = documents(KUBERNETES / "keda.yaml")
    metered, streamed = (trigger["metadata"] for trigger in scaled["spec"]["triggers"])
    assert streamed["consumer"] == consumer_name("llm", "normal")
    metrics = CoordinatorMetrics(registry := CollectorRegistry())
    metrics.dispatching({"llm": Load(held=3, out=4, slots=4, window=6, rate_per_s=1.0)})
    for sample in re.findall(r"sum\((.*?){(.*?)=\"(.*?)\"}\)", metered["query"]):
        name, label, value = sample
        assert registry.get_sample_value(name, {label: value}) is not None
    assert "held" in metered["query"]


def test_the_nats_server_accepts_its_configuration(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "nats" / "nats.conf").read_text().replace("/data", str(tmp_path))
    config = tmp_path / "nats.conf"
    config.write_text(text)
    server = Path(sys.executable).parent / "nats-server"
    done = subprocess.run(
        [server, "-t", "-c", config], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr
