"""The Helm chart and the kustomize base.

helm renders the chart with the values of each example; the result is checked against the schemas of
Kubernetes and KEDA with unknown fields refused, and must equal the kustomize base. `make manifests`
installs the tools; the tests are skipped without them."""

import subprocess
from pathlib import Path

import pytest
import yaml

from hocket.kit.process.lifecycle import STOP_TIMEOUT_S
from hocket.workers.configuration import STOP_S
from support.access.network_policies import ASKS, INTERNET, MODELS, SERVICES, NetworkPolicies, asks
from support.places import ROOT

CHART = ROOT / "deploy" / "chart"
BASE = ROOT / "deploy" / "kubernetes"
TOOLS = ROOT / ".venv-deploy" / "bin"
DOORS = ("admin", "gateway")
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))

pytestmark = pytest.mark.skipif(
    not (TOOLS / "helm").exists(), reason="helm and the schemas are not installed: `make manifests`"
)


def rendered(*arguments: str | Path) -> str:
    command = [TOOLS / "helm", "template", "hocket", CHART, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def validated(path: Path) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).with_name("validate.py")
    command = [TOOLS / "python", script, path]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_the_chart_renders_what_kubernetes_and_keda_accept(values: Path, tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 6
    (tmp_path / "all.yaml").write_text(rendered("--values", values))
    done = validated(tmp_path / "all.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("kind", "field"), [("Deployment", "spec"), ("NetworkPolicy", "spec"), ("ScaledObject", "spec")]
)
def test_an_unknown_field_is_refused(kind: str, field: str, tmp_path: Path) -> None:
    text = rendered("--values", CHART / "examples" / "keda.yaml")
    documents = [document for document in yaml.safe_load_all(text) if document]
    one = next(document for document in documents if document["kind"] == kind)
    one[field]["replicaz"] = 1
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(documents))
    done = validated(tmp_path / "all.yaml")
    assert done.returncode == 1
    assert "replicaz" in done.stdout


def test_each_service_connects_to_nats_as_a_user_of_its_own() -> None:
    text = rendered("--values", CHART / "examples" / "tls.yaml")
    found = {}
    for one in filter(None, yaml.safe_load_all(text)):
        if one["kind"] in ("Deployment", "StatefulSet"):
            container = one["spec"]["template"]["spec"]["containers"][0]
            names = [
                source["secretRef"]["name"]
                for source in container["envFrom"]
                if "secretRef" in source
            ]
            found[one["metadata"]["name"].partition("-")[0]] = names
    services = ("coordinator", "gateway", "ledger", "admin", "worker")
    assert set(found) == set(services)
    for name in services:  # after the secret with the common URL, which it replaces
        assert found[name].index(f"hocket-nats-{name}") > found[name].index("hocket-urls")


def test_a_pool_has_time_to_drain_before_its_pod_is_killed() -> None:
    text = rendered("--values", CHART / "examples" / "gpu.yaml")
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in filter(None, yaml.safe_load_all(text))
        if one["kind"] == "Deployment" and one["metadata"]["name"].startswith("worker-")
    }
    drains = {}
    for name, pod in pods.items():
        (container,) = pod["containers"]
        drains[name] = float(container["args"][container["args"].index("--drain-s") + 1])
        assert pod["terminationGracePeriodSeconds"] > drains[name] + STOP_S
    assert drains == {"worker-cpu": 10, "worker-gpu": 600, "worker-mig": 10}


@pytest.mark.parametrize("delay_s", [0, 5, 20])
def test_a_door_stays_open_while_proxies_learn_that_its_process_is_leaving(delay_s: int) -> None:
    text = rendered(*(f"--set=services.{name}.drainDelaySeconds={delay_s}" for name in DOORS))
    for one in filter(None, yaml.safe_load_all(text)):
        if one["kind"] != "Deployment":
            continue
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        given = {item["name"]: item.get("value") for item in container.get("env", ())}
        delayed = delay_s if one["metadata"]["name"] in DOORS else 0
        assert float(given.get("HOCKET_DRAIN_DELAY_S", 0)) == delayed
        assert pod["terminationGracePeriodSeconds"] > STOP_TIMEOUT_S + delayed


def test_the_operators_monitor_finds_every_pod_as_the_job_that_the_rules_name() -> None:
    assert "PodMonitor" not in rendered(), "clusters without the operator refuse it"
    label = "podMonitor.labels.release=prometheus"
    text = rendered("--set", "podMonitor.enabled=true", "--set", label)
    monitor = one_of(text, "PodMonitor", "hocket")
    assert monitor["metadata"]["labels"] == {"release": "prometheus"}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    for one in filter(None, yaml.safe_load_all(text)):
        if one["kind"] == "Deployment":
            template = one["spec"]["template"]
            labels = template["metadata"]["labels"]
            assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
            assert labels[monitor["spec"]["jobLabel"]] == "hocket"
            (container,) = template["spec"]["containers"]
            assert endpoint["port"] in {port["name"] for port in container["ports"]}


def test_the_pods_can_be_without_annotations_for_another_job() -> None:
    assert "prometheus.io/scrape" in rendered()
    assert "prometheus.io" not in rendered("--set", "scrapeAnnotations=false")


def one_of(text: str, kind: str, name: str) -> dict:
    found = filter(None, yaml.safe_load_all(text))
    (one,) = (
        one for one in found if one["kind"] == kind and one["metadata"]["name"].startswith(name)
    )
    return one


@pytest.mark.parametrize(
    ("service", "setting"), [("admin", "HOCKET_API_PORT"), ("gateway", "HOCKET_GATEWAY_PORT")]
)
def test_a_service_listens_on_the_port_that_the_values_name(service: str, setting: str) -> None:
    text = rendered("--set", f"services.{service}.port=9000")
    (container,) = one_of(text, "Deployment", service)["spec"]["template"]["spec"]["containers"]
    assert {one["name"]: one.get("value") for one in container["env"]}[setting] == "9000"
    assert {"name": "http", "containerPort": 9000} in container["ports"]


def test_a_migration_with_another_pod_is_another_job() -> None:
    before = one_of(rendered(), "Job", "hocket-migrate")
    for change in ("image.services=registry.example.com/hocket:0.1.0", "secrets.tls=hocket-tls"):
        after = one_of(rendered("--set", change), "Job", "hocket-migrate")
        assert after["spec"] != before["spec"]
        assert after["metadata"]["name"] != before["metadata"]["name"]
    same = one_of(rendered("--set", "services.admin.replicas=3"), "Job", "hocket-migrate")
    assert same == before


@pytest.mark.parametrize("service", SERVICES)
def test_places_inside_the_cluster_are_open_to_whom_settings_send_there(service: str) -> None:
    text = rendered("--values", CHART / "examples" / "restricted.yaml")
    policies = NetworkPolicies(filter(None, yaml.safe_load_all(text)))
    assert policies.may_speak(service, 4318, {}, "monitoring") == asks(
        service, ASKS["otlp_endpoint"]
    )
    assert policies.may_speak(service, 8443, {}, "identity") == asks(service, ASKS["oidc_issuer"])
    assert policies.may_speak(service, 8000, {}, "models") == asks(service, MODELS)
    assert policies.may_speak(service, 3306, {}, INTERNET) == (service == "worker-default")
    assert not policies.may_speak(service, 443, {}, INTERNET)


def test_the_kustomize_base_is_the_chart_with_its_defaults() -> None:
    file = BASE / "hocket.yaml"
    assert file.read_text().partition("\n")[2] == rendered(), "run `make manifests`"
    command = [TOOLS / "kubectl", "kustomize", BASE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

    def names(text: str) -> list[tuple[str, str]]:
        found = [document for document in yaml.safe_load_all(text) if document]
        return sorted((one["kind"], one["metadata"]["name"]) for one in found)

    assert names(done.stdout) == names(rendered())
