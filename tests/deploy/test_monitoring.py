"""Prometheus' rules and Grafana's dashboards: they use metrics that the code declares, every alert has
a runbook and a cause that is played, and the dashboards match their table."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from prometheus_client import Metric

from support.places import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
RULES = yaml.safe_load((MONITORING / "rules.yaml").read_text())
ALL_RULES = [rule for group in RULES["groups"] for rule in group["rules"]]
ALERTS = [rule["alert"] for rule in ALL_RULES if "alert" in rule]
RECORDED = {rule["record"] for rule in ALL_RULES if "record" in rule}
FOREIGN = {"pg_stat_activity_count", "pg_settings_max_connections", "pg_stat_database_xact_commit"}
FOREIGN |= {"pg_database_size_bytes", "up"}
"""Metrics of Prometheus itself and of its exporter for Postgres."""
MISSING = "promtool is not installed: apt prometheus"
PATIENCE_S = 300.0
"""The rules of two days take promtool 10 s of a core, which it may have to share."""
SUFFIXES = ("_total", "_bucket", "_count", "_sum", "")


def queries() -> dict[str, str]:
    """Return all queries, by where they are used."""
    found = {rule.get("alert", rule.get("record")): rule["expr"] for rule in ALL_RULES}
    for file in sorted((MONITORING / "dashboards").glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                found[f"{file.stem}: {panel['title']}"] = target["expr"]
    return found


def declared() -> set[str]:
    """Return the metrics that our code declares."""
    texts = [
        file.read_text()
        for folder in ("services", "workers", "deploy/monitoring")
        for file in (ROOT / folder).rglob("*.py")
    ]
    kinds = "Counter|Gauge|Histogram|MetricFamily|Tally|Distribution"
    made = rf'(?:{kinds})\(\s*f?"(hocket_\w+?)(?:\{{name\}})?"'
    names = {name for text in texts for name in re.findall(made, text)}
    exporter = (MONITORING / "nats_exporter.py").read_text()
    server = re.search(r"SERVER = (\{.*?\})", exporter, re.DOTALL)
    assert server is not None
    names |= {f"hocket_nats_{name}" for name in re.findall(r'"(\w+)":', server[1])}
    return names


def metrics_in(query: str) -> set[str]:
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|by \([^)]*\)', "", query)
    return set(re.findall(r"\b(?:hocket[\w:]*|pg_\w+|up)\b", bare))


@pytest.mark.parametrize(("place", "query"), queries().items(), ids=queries())
def test_a_query_names_metrics_that_processes_have(place: str, query: str) -> None:
    names = metrics_in(query)
    assert names, place
    known = {name + suffix for name in declared() for suffix in SUFFIXES} | FOREIGN | RECORDED
    known |= {name.removesuffix("_total") + "_total" for name in declared()}
    assert names <= known


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.get("alert", rule.get("record")))
def test_a_rule_adds_up_no_installations(rule: dict[str, Any]) -> None:
    without = re.findall(
        r"\b(?:sum|min|max|avg|count|group)\b(?! by \(namespace\b).*", rule["expr"]
    )
    assert without == [], "one installation hides another, or is counted with it"


def test_every_alert_has_its_runbook_and_a_play_in_which_it_fires() -> None:
    runbooks = (ROOT / "docs" / "how-to" / "runbooks.md").read_text()
    assert re.findall(r"^## (\w+)$", runbooks, re.MULTILINE) == ALERTS
    played = yaml.safe_load((MONITORING / "rules.test.yaml").read_text())["tests"]
    firing = {
        rule["alertname"]
        for test in played
        for rule in test["alert_rule_test"]
        if rule["exp_alerts"]
    }
    assert firing == set(ALERTS)


@pytest.mark.skipif(not shutil.which("promtool"), reason=MISSING)
@pytest.mark.parametrize(
    "arguments", [("check", "rules", "rules.yaml"), ("test", "rules", "rules.test.yaml")]
)
def test_promtool_accepts_the_rules_and_each_alert_fires(arguments: tuple[str, ...]) -> None:
    command = ["promtool", *arguments]
    done = subprocess.run(
        command, cwd=MONITORING, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def in_each(namespaces: tuple[str, ...], test: dict[str, Any]) -> dict[str, Any]:
    """Return a test of promtool in which so many installations have the same series at once."""

    def named(series: str, namespace: str) -> str:
        name, _, labels = series.partition("{")
        return f'{name}{{namespace="{namespace}"{"," if labels else ""}{labels or "}"}'

    return {
        **test,
        "input_series": [
            {**one, "series": named(one["series"], namespace)}
            for one in test["input_series"]
            for namespace in namespaces
        ],
        "alert_rule_test": [
            {
                **asked,
                "exp_alerts": [
                    {**one, "exp_labels": {**one["exp_labels"], "namespace": namespace}}
                    for one in asked["exp_alerts"]
                    for namespace in namespaces
                ],
            }
            for asked in test["alert_rule_test"]
        ],
    }


@pytest.mark.skipif(not shutil.which("promtool"), reason=MISSING)
def test_each_alert_fires_for_each_installation_with_its_own_values(tmp_path: Path) -> None:
    plays = yaml.safe_load((MONITORING / "rules.test.yaml").read_text())
    plays["rule_files"] = [str(MONITORING / "rules.yaml")]
    plays["tests"] = [
        in_each(("prod", "staging"), test)
        for test in plays["tests"]
        if not any("namespace=" in one["series"] for one in test["input_series"])
    ]
    (tmp_path / "two.test.yaml").write_text(yaml.safe_dump(plays))
    command = ["promtool", "test", "rules", tmp_path / "two.test.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


KUBERNETES = yaml.safe_load((MONITORING / "prometheus.kubernetes.yml").read_text())
PODS = [
    document
    for document in yaml.safe_load_all((ROOT / "deploy/kubernetes/hocket.yaml").read_text())
    if document and document["kind"] in ("Deployment", "Job")
]


def discovered() -> list[dict]:
    """Return what Kubernetes would tell Prometheus of the base's pods, of one that was evicted, and of a
    stranger."""
    found = []
    for document in PODS:
        template = document["spec"]["template"]
        labels = template["metadata"]["labels"]
        (container,) = template["spec"]["containers"]
        for port in container.get("ports", [{"name": "", "containerPort": 80}]):
            meta = {
                "namespace": "hocket",
                "pod_name": f"{document['metadata']['name']}-0",
                "pod_phase": "Running" if document["kind"] == "Deployment" else "Succeeded",
                "pod_container_port_name": port["name"],
                **{f"pod_label_{name}": value for name, value in labels.items()},
            }
            found.append((f"10.0.0.{len(found)}:{port['containerPort']}", meta))
    address, meta = next(one for one in found if one[1]["pod_container_port_name"] == "health")
    found += [(address, {**meta, "pod_phase": "Failed"})]
    found += [("10.1.0.1:9090", {**meta, "pod_label_app": "another"})]
    return [
        {
            "targets": [address],
            "labels": {f"__meta_kubernetes_{name}": value for name, value in meta.items()},
        }
        for address, meta in found
    ]


def test_prometheus_finds_the_pods_of_kubernetes_as_the_job_that_the_rules_name() -> None:
    (job,) = KUBERNETES["scrape_configs"]
    assert job["kubernetes_sd_configs"] == [{"role": "pod"}]
    (down,) = (rule["expr"] for rule in ALL_RULES if rule.get("alert") == "HocketProcessDown")
    assert f'up{{job="{job["job_name"]}"}}' in down
    docker = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    assert job["job_name"] in {one["job_name"] for one in docker}


@pytest.mark.skipif(not shutil.which("promtool"), reason=MISSING)
def test_promtool_takes_each_pod_once_by_its_health_port(tmp_path: Path) -> None:
    (job,) = KUBERNETES["scrape_configs"]
    del job["kubernetes_sd_configs"]  # Debian's promtool does not have it
    job["file_sd_configs"] = [{"files": [str(tmp_path / "pods.json")]}]
    (tmp_path / "pods.json").write_text(json.dumps(discovered()))
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    command = ["promtool", "check", "service-discovery", "--timeout=5s"]
    done = subprocess.run(
        [*command, tmp_path / "prometheus.yml", "hocket"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    targets = [one["labels"] for one in json.loads(done.stdout) if one.get("labels")]
    assert {one["job"] for one in targets} == {"hocket"}
    assert {one["service"] for one in targets} == {
        one["metadata"]["name"] for one in PODS if one["kind"] == "Deployment"
    }
    assert len(targets) == 5
    assert {one["instance"].rpartition(":")[2] for one in targets} == {"9090"}


def loaded(name: str) -> ModuleType:
    """Return a script of deploy/monitoring as a module."""
    spec = importlib.util.spec_from_file_location(name, MONITORING / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_dashboards_are_what_their_table_says() -> None:
    made = loaded("make_dashboards")
    folder: Path = made.FOLDER
    assert {file.name: file.read_text() for file in folder.glob("*.json")} == made.files()


@pytest.mark.parametrize(
    "file", sorted((MONITORING / "dashboards").glob("*.json")), ids=lambda file: file.stem
)
def test_a_dashboard_shows_the_installations_that_are_chosen(file: Path) -> None:
    board = json.loads(file.read_text())
    (choice,) = (one for one in board["templating"]["list"] if one["name"] == "namespace")
    assert choice["includeAll"]
    assert re.fullmatch(choice["allValue"], ""), "series without the label are there, too"
    for panel in board["panels"]:
        for target in panel["targets"]:
            for name in re.findall(r"\bhocket(?!_nats_)[\w:]+.{0,25}", target["expr"]):
                assert '{namespace=~"$namespace"}' in name
            for metric in re.findall(r"hocket_nats_stream|pg_stat\w+", target["expr"]):
                assert "{{namespace}}" in target["legendFormat"], (
                    f"{metric}: of which installation?"
                )
                assert "by (namespace" in target["expr"]


STATE = {"messages": 1, "bytes": 2, "consumer_count": 3}


def exported(*accounts: dict[str, Any]) -> list[Metric]:
    """Return what the exporter tells of a server with these accounts."""
    answers = {
        "/varz": {"server_name": "one"},
        "/jsz?streams=1&config=1": {"account_details": accounts},
    }
    collector = loaded("nats_exporter").NatsCollector("http://nats:8222")
    collector._asked = answers.__getitem__
    return list(collector.collect())


@pytest.mark.parametrize(
    ("cluster", "leads"),
    [
        (None, 1.0),
        ({"leader": "one"}, 1.0),
        ({"leader": "two"}, 0.0),
        ({}, 1.0),
        ({"name": "c"}, 0.0),
    ],
)
def test_of_a_cluster_only_the_leader_of_a_stream_says_that_it_leads(
    cluster: dict[str, str] | None, leads: float
) -> None:
    stream = {"name": "LOG", "state": STATE, "config": {}, "cluster": cluster}
    (told,) = [
        one
        for one in exported({"id": "HOCKET", "stream_detail": [stream]})
        if one.name == "hocket_nats_stream_leader"
    ]
    assert [sample.value for sample in told.samples] == [leads]


def test_streams_of_the_same_name_in_two_accounts_are_two_series() -> None:
    def of(account: str, size: int) -> dict[str, Any]:
        stream = {"name": "TASKS", "state": {**STATE, "bytes": size}, "config": {"max_bytes": 9}}
        return {"id": account, "stream_detail": [stream]}

    found = [
        (sample.name, *sorted(sample.labels.items()))
        for one in exported(of("PROD", 8), of("STAGING", 0))
        for sample in one.samples
    ]
    assert len(set(found)) == len(found), "Prometheus keeps one of several equal series"
    assert ("hocket_nats_stream_bytes", ("account", "PROD"), ("stream", "TASKS")) in found
