"""The Helm chart and the kustomize base.

helm renders the chart with the values of each example; the result is checked against the schemas of
Kubernetes and KEDA with unknown fields refused, and must equal the kustomize base. `make manifests`
installs the tools; the tests are skipped without them."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from hocket.kit.process.lifecycle import STOP_TIMEOUT_S
from hocket.kit.process.settings import Settings
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


def of_values(folder: Path, values: str) -> str:
    """Return the chart rendered with a values file of this text."""
    (folder / "values.yaml").write_text(values)
    return rendered("--values", folder / "values.yaml")


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


def test_a_pool_can_do_without_time_to_drain(tmp_path: Path) -> None:
    text = of_values(
        tmp_path,
        """pools:
- {name: a, drainSeconds: 0}
- {name: b, drainSeconds: }
- {name: c, drainSeconds: ""}
- {name: d}
""",
    )
    drains = {}
    for name in ("worker-a", "worker-b", "worker-c", "worker-d"):
        pod = one_of(text, "Deployment", name)["spec"]["template"]["spec"]
        arguments = pod["containers"][0]["args"]
        drains[name] = arguments[arguments.index("--drain-s") + 1]
        assert pod["terminationGracePeriodSeconds"] == 20 + int(drains[name])
    assert drains.pop("worker-a") == "0"
    assert set(drains.values()) == {"10"}


def test_a_setting_reaches_processes_as_they_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = of_values(
        tmp_path,
        """settings:
  HOCKET_MAX_TASK_BYTES: 1000000
  HOCKET_OIDC_CLIENT_ID: 123456789012
  HOCKET_TRACE_RATIO: 0.25
  HOCKET_DISPATCH_GATE: false
  HOCKET_TENANT_WEIGHTS: {acme: 3}
  HOCKET_WEBHOOK_PRIVATE_HOSTS: [localhost, hooks.internal]
  HOCKET_HANDLERS:
  HOCKET_KEEP_USAGE_DAYS: "30"
priorityClasses: {services: {value: 2000000}}
services: {admin: {port: 18080}}
""",
    )
    (given,) = (
        one["data"]
        for one in filter(None, yaml.safe_load_all(text))
        if (one["kind"], one["metadata"]["name"]) == ("ConfigMap", "hocket")
    )
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.max_task_bytes == 1_000_000
    assert settings.oidc_client_id == "123456789012"
    assert settings.trace_ratio == 0.25
    assert not settings.dispatch_gate
    assert settings.tenant_weights == {"acme": 3}
    assert settings.webhook_private_hosts == ("localhost", "hooks.internal")
    assert settings.keep_usage_days == 30
    assert settings.handlers == "", "what images name does not count"
    assert "value: 2000000\n" in text
    assert 'value: "18080"' in text


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            "settings: {HOCKET_OIDC_CLIENT_ID: 12345678901234567}",
            "settings.HOCKET_OIDC_CLIENT_ID: Helm cannot read so large a number exactly",
        ),
        (
            "settings: {HOCKET_HANDLERS: ['acme, other', third]}",
            "settings.HOCKET_HANDLERS: commas separate the entries, and `acme, other` contains one",
        ),
        (
            "pools: [{name: crm, secrets: crm}]",
            "`secrets` of the pool crm is not a list",
        ),
    ],
    ids=["a large number", "a comma in a list", "a text for secrets"],
)
def test_a_value_that_would_become_another_is_refused(
    tmp_path: Path, values: str, reason: str
) -> None:
    (tmp_path / "values.yaml").write_text(values)
    command = [TOOLS / "helm", "template", "x", CHART, "--values", tmp_path / "values.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert reason in done.stderr


def test_no_condition_relies_on_one_before_it() -> None:
    """Helm before 3.10 evaluates all conditions of an `and`, also those for another kind of value."""
    for file in (CHART / "templates").iterdir():
        assert not re.search(r"\band \(kindIs", file.read_text()), f"{file.name}: nest them"


def test_a_large_number_in_quotes_is_kept(tmp_path: Path) -> None:
    quoted = "settings: {HOCKET_OIDC_CLIENT_ID: '12345678901234567'}"
    assert 'HOCKET_OIDC_CLIENT_ID: "12345678901234567"' in of_values(tmp_path, quoted)


def test_a_pool_has_secrets_that_no_other_process_has(tmp_path: Path) -> None:
    text = of_values(tmp_path, "pools: [{name: crm, secrets: [crm-token, '7']}, {name: other}]")
    for one in filter(None, yaml.safe_load_all(text)):
        if one["kind"] in ("Deployment", "Job"):
            (container,) = one["spec"]["template"]["spec"]["containers"]
            given = {source.get("secretRef", {}).get("name") for source in container["envFrom"]}
            has = one["metadata"]["name"] == "worker-crm"
            assert given & {"crm-token", "7"} == ({"crm-token", "7"} if has else set())
    (tmp_path / "all.yaml").write_text(text)
    assert validated(tmp_path / "all.yaml").returncode == 0


@pytest.mark.parametrize(
    "options",
    [("--namespace", "prod"), ("--namespace", "gpu", "--set", "keda.namespace=prod")],
    ids=["with coordinators", "of pools alone"],
)
def test_keda_counts_what_this_installation_wants(options: tuple[str, ...]) -> None:
    text = rendered(*options, "--values", CHART / "examples" / "keda.yaml")
    for name in ("worker-default", "worker-llm"):
        (trigger,) = one_of(text, "ScaledObject", name)["spec"]["triggers"]
        (found,) = re.findall(r'namespace=~"([^"]*)"', trigger["metadata"]["query"])
        assert re.fullmatch(found, "prod")
        assert re.fullmatch(found, ""), "Prometheus may not have this label"
        assert not re.fullmatch(found, "staging")
        assert not re.fullmatch(found, "gpu")


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
