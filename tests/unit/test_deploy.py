"""What can be known of the deployment files without running them."""

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry

from hocket.admin.app import ROUTERS
from hocket.cli.__main__ import main
from hocket.cli.local.service_modules import MODULES
from hocket.coordinator.core.scheduling.type_queue import Load
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.kit.access.account_files import kept_accounts
from hocket.kit.access.nats_accounts import USERS
from hocket.kit.embedded.nats import nats_program
from hocket.kit.process.lifecycle import STOP_TIMEOUT_S
from hocket.kit.process.process_secrets import FILE, OWN, PIPE, read_files
from hocket.kit.process.settings import Settings
from hocket.schemas.access.keys import sent_key
from hocket.schemas.errors import InvalidInput
from hocket.workers.configuration import parse
from support.places import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"


def settings_names() -> set[str]:
    names = {f"HOCKET_{name.upper()}" for name in Settings.model_fields}
    return names | {"NATS_URL", "DATABASE_URL"}


def canonical(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def documents(path: Path) -> list[dict]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


BASE = documents(KUBERNETES / "hocket.yaml")
"""The manifests: what the chart renders with its default values (tests/deploy/test_manifests.py)."""


def of_kind(kind: str) -> dict[str, dict]:
    return {one["metadata"]["name"]: one for one in BASE if one["kind"] == kind}


def containers() -> list[dict]:
    pods = [one["spec"]["template"]["spec"] for one in BASE if "template" in one.get("spec", {})]
    return [container for pod in pods for container in pod["containers"]]


def test_pods_are_replaced_where_a_setting_changes() -> None:
    """A pod keeps the environment that it was started with: without this, `helm upgrade` with another
    setting changes a map that nobody reads."""
    settings = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())["settings"]
    told = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    expected = hashlib.sha256(told.encode()).hexdigest()[:16]
    pods = {name: one["spec"]["template"] for name, one in of_kind("Deployment").items()}
    marks = {name: pod["metadata"]["annotations"]["hocket/settings"] for name, pod in pods.items()}
    assert marks == dict.fromkeys(pods, expected)


COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
OURS = {name: one for name, one in SERVICES.items() if "hocket" in one["image"] and name != "init"}
COMMANDS = [c["args"] for c in containers()] + [one["command"] for one in OURS.values()]


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_read_only_and_has_no_rights_and_limits(name: str) -> None:
    one = SERVICES[name]
    assert one["read_only"] is True
    assert one["user"] == "10001:10001"
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert one["pids_limit"]
    assert one["mem_limit"]
    assert not any(port.split(":")[0] != "127.0.0.1" for port in one.get("ports", ()))


@pytest.mark.parametrize("image", ["services", "worker"])
def test_an_image_leaves_out_packages_that_the_lock_has(image: str) -> None:
    folder = ROOT / "deploy" / "image"
    command = [sys.executable, folder / "lock_without.py", folder / f"not_in_{image}.txt"]
    lock = (ROOT / "requirements.lock").read_text()
    done = subprocess.run(
        command, input=lock, capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr
    assert 0 < len(done.stdout) < len(lock)


@pytest.mark.parametrize("image", ["services", "worker"])
def test_an_image_leaves_out_nothing_that_its_processes_import(image: str) -> None:
    names = (ROOT / "deploy" / "image" / f"not_in_{image}.txt").read_text().splitlines()
    left_out = {name.partition("#")[0].strip() for name in names} - {""}
    modules = {
        module
        for module, packages in packages_distributions().items()
        if {canonical(package) for package in packages} & left_out
    }
    imports = (
        "import sys, importlib, pkgutil\n"
        f"sys.modules.update(dict.fromkeys({sorted(modules)!r}))\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
    )
    wanted = ["hocket.workers.process", "hocket.workers.mcp.server"]
    if image == "services":
        others = set(MODULES.values()) - {"hocket.workers"}
        wanted += [f"{module}.service" for module in others if module != "hocket.admin"]
        wanted += ["hocket.admin.app", "alembic.command"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", imports, *wanted, "hocket.cli.app"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def streamed_paths() -> list[str]:
    """The paths of REST's streams, and those of the console, which are in no document."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    found = [one.path_format for one in routes if one.response_class is StreamingResponse]
    assert len(found) >= 3
    return [
        *found,
        "/console/live/runs",
        "/console/live/runs/{run_id}",
        "/console/playground/calls",
    ]


@pytest.mark.parametrize("path", streamed_paths())
def test_envoy_cuts_off_no_stream(path: str) -> None:
    known = {one.path_format for router in ROUTERS for one in router.routes}  # type: ignore[attr-defined]
    assert path in known
    config = yaml.safe_load((ROOT / "deploy" / "envoy" / "envoy.yaml").read_text())
    rest = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]
    (host,) = rest["typed_config"]["route_config"]["virtual_hosts"]
    first = host["routes"][0]
    assert first["route"]["timeout"] == "0s"
    pattern = first["match"]["safe_regex"]["regex"]
    assert re.fullmatch(pattern, path.replace("{run_id}", "r" + 24 * "0")), path


def test_envoy_spreads_calls_by_the_key_in_whichever_header_it_is() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "envoy" / "envoy.yaml").read_text())
    models = config["static_resources"]["listeners"][1]["filter_chains"][0]["filters"][0]
    (host,) = models["typed_config"]["route_config"]["virtual_hosts"]
    policy = [one for one in host["routes"][0]["route"]["hash_policy"] if "header" in one]
    for name in (one["header"]["header_name"] for one in policy[-2:]):
        key = f"hk_{'0' * 12}_{'0' * 64}"
        assert sent_key({name: f"Bearer {key}" if name == "authorization" else key}) == key


def test_a_service_becomes_its_process_with_secrets_out_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_text("nats://user:secret@nowhere:4222\n")
    monkeypatch.setenv("NATS_URL", "")
    monkeypatch.setenv("NATS_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setattr(sys, "argv", ["hocket", "serve", "worker", "--", "--types", "llm"])
    seen: dict = {}

    def execve(program: str, command: list[str], environment: dict[str, str]) -> None:
        seen.update(command=command[1:], environment=environment)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execve)
    with pytest.raises(SystemExit):
        main()
    assert seen["command"] == ["-m", "hocket.workers", "--types", "llm"]
    assert "user:secret" not in str(seen["environment"])
    with os.fdopen(int(seen["environment"][PIPE])) as pipe:
        assert json.load(pipe)["NATS_URL"] == "nats://user:secret@nowhere:4222"


@pytest.mark.parametrize(
    ("content", "given", "reason"),
    [("", "", "empty"), ("x", "nats://a", "is set as well"), (None, "", "No such file")],
)
def test_a_file_of_a_secret_that_cannot_be_used_is_named(
    tmp_path: Path, content: str | None, given: str, reason: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    environment = {"NATS_URL_FILE": str(file), "NATS_URL": given}
    with pytest.raises(InvalidInput, match=f"NATS_URL_FILE.*{reason}"):
        read_files(environment)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_names_something_that_is_there(command: list[str]) -> None:
    if command[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(f"{command[2]}.__main__") is not None
    elif command[0] == "serve":
        assert command[1] in MODULES
        assert command[2:] in ([], ["--", "--drain-s", "10"])
    else:
        assert command[-1] == "migrate" or command[0] == "demo"


def test_every_variable_is_a_setting_that_the_processes_read() -> None:
    given = {name for one in OURS.values() for name in one["environment"]}
    given = {name.removesuffix(FILE) if name.removesuffix(FILE) in OWN else name for name in given}
    given -= {"PGSSLMODE", "PGSSLROOTCERT"}  # asyncpg's
    given -= {"HOCKET_API_URL", "HOCKET_API_KEY"}  # the command line's
    given |= set(of_kind("ConfigMap")["hocket"]["data"])
    given |= {name for secret in of_kind("Secret").values() for name in secret["stringData"]}
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    given |= set(re.findall(r"\b(HOCKET_[A-Z_]+)=", dockerfile))
    given -= {"HOCKET_COMPILE"}  # a switch of the build
    assert given <= settings_names()


def test_all_but_workers_have_the_key_by_which_messages_are_believed() -> None:
    keyed = {"coordinator", "gateway", "ledger", "admin"}
    name = "HOCKET_CAPABILITY_KEY"
    assert {one for one, ours in OURS.items() if name + FILE in ours["environment"]} == keyed
    mounts = {
        one: [text.partition(":")[0] for text in ours["volumes"]] for one, ours in OURS.items()
    }
    assert {one for one, names in mounts.items() if "keys" in names} == keyed
    (secret,) = (one for one, found in of_kind("Secret").items() if name in found["stringData"])
    given = set()
    for one, deployment in deployments().items():
        (container,) = deployment["template"]["spec"]["containers"]
        refs = [source.get("secretRef", {}).get("name") for source in container["envFrom"]]
        given |= {one} if secret in refs else set()
    assert given == keyed


def test_workers_in_several_containers_share_large_values() -> None:
    config = of_kind("ConfigMap")["hocket-config"]
    for text in (config["data"]["hocket.yaml"], (ROOT / "deploy" / "hocket.yaml").read_text()):
        assert parse(yaml.safe_load(text)).blobs.store == "postgres"


def test_what_an_image_says_of_its_own_functions_counts() -> None:
    for one in OURS.values():
        assert one["environment"]["HOCKET_HANDLERS"] is None, "taken from the shell where it is set"
    assert "HOCKET_HANDLERS" not in of_kind("ConfigMap")["hocket"]["data"]


def test_every_service_finds_the_configuration_file() -> None:
    folder, _, name = of_kind("ConfigMap")["hocket"]["data"]["HOCKET_CONFIG"].rpartition("/")
    assert name in of_kind("ConfigMap")["hocket-config"]["data"]
    for container in containers():
        if "livenessProbe" in container:
            assert folder in {mount["mountPath"] for mount in container["volumeMounts"]}
    for one in OURS.values():
        target = Path(one["environment"]["HOCKET_CONFIG"])
        assert str(target.parent) in [volume.split(":")[1] for volume in one["volumes"]]


def test_probes_ask_the_port_that_the_image_serves_health_on() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    port = int(re.search(r"HOCKET_HEALTH_PORT=(\d+)", dockerfile)[1])  # type: ignore[index]
    for container in containers():
        if "livenessProbe" in container:
            ports = {p["name"]: p["containerPort"] for p in container["ports"]}
            assert ports[container["readinessProbe"]["httpGet"]["port"]] == port
    ready = (ROOT / "deploy" / "image" / "ready.py").read_text()
    assert f'"HOCKET_HEALTH_PORT", "{port}"' in ready
    assert "/readyz" in ready


def test_the_kustomization_names_files_that_are_there() -> None:
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    assert all((KUBERNETES / name).exists() for name in kustomization["resources"])


def deployments() -> dict[str, dict]:
    return {name: one["spec"] for name, one in of_kind("Deployment").items()}


def test_every_service_goes_on_while_one_of_its_processes_is_replaced() -> None:
    budgets = {name: one["spec"] for name, one in of_kind("PodDisruptionBudget").items()}
    assert budgets.keys() == deployments().keys()
    for name, deployment in deployments().items():
        assert deployment["replicas"] >= 2
        assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 1
        labels = deployment["template"]["metadata"]["labels"]
        for selector in (budgets[name]["selector"], deployment["selector"]):
            assert selector["matchLabels"].items() <= labels.items()
            assert selector["matchLabels"]["service"] == name
        assert budgets[name]["maxUnavailable"] == 1
        for spread in deployment["template"]["spec"]["topologySpreadConstraints"]:
            assert spread["labelSelector"]["matchLabels"].items() <= labels.items()


def test_coordinators_have_names_of_their_own_and_no_fewer_partitions_than_there_are() -> None:
    settings = of_kind("ConfigMap")["hocket"]["data"]
    coordinator = deployments()["coordinator"]
    assert coordinator["replicas"] <= int(settings["HOCKET_PARTITIONS"])
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


def test_a_pod_of_ours_may_do_nothing_that_it_need_not() -> None:
    for one in (*of_kind("Deployment").values(), *of_kind("Job").values()):
        pod = one["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["priorityClassName"] in of_kind("PriorityClass")
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            walls = container["securityContext"]
            assert walls["readOnlyRootFilesystem"] is True
            assert walls["allowPrivilegeEscalation"] is False
            assert walls["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            written = {mount["mountPath"] for mount in container["volumeMounts"]}
            assert {"/home/hocket/data", "/tmp"} <= written


def test_keda_asks_for_metrics_that_coordinators_have() -> None:
    template = (ROOT / "deploy" / "chart" / "templates" / "pools.yaml").read_text()
    metrics = CoordinatorMetrics(registry := CollectorRegistry())
    metrics.dispatching(
        {"llm": Load(held=3, out=4, slots=4, window=6, rate_per_s=1.0)}, {"llm": 4.5}
    )
    (query,) = re.findall(r"query: (.*)", template)
    asked = set(re.findall(r"\bhocket_\w+", query))
    assert asked == {"hocket_worker_slots_wanted"}
    for name in asked:
        assert registry.get_sample_value(name, {"type": "llm"}) is not None


def test_all_servers_are_images_of_one_version_everywhere() -> None:
    built = (ROOT / "deploy" / "stand-ins" / "build.sh").read_text()
    for one in (SERVICES["nats"], SERVICES["postgres"]):
        assert f"image {one['image']} " in built
    base = re.search(r"PYTHON=(\S+)", (ROOT / "deploy" / "Dockerfile").read_text())
    assert base is not None
    assert f"image {base[1]} " in built


def test_the_nats_server_accepts_its_configuration(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "nats" / "nats.conf").read_text().replace("/data", str(tmp_path))
    config = tmp_path / "nats.conf"
    config.write_text(text)
    server = Path(sys.executable).parent / "nats-server"
    done = subprocess.run(
        [server, "-t", "-c", config], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr


def test_each_process_of_the_compose_file_is_a_user_of_nats_of_its_own(tmp_path: Path) -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    users = {
        name: services[name]["environment"]["NATS_URL_FILE"].rpartition("nats_url_")[2]
        for name in ("coordinator", "gateway", "ledger", "admin", "worker")
    }
    assert users == {name: name for name in users}
    assert "/srv/keys" not in str(services["worker"]["volumes"])
    assert "/srv/admin" not in str(services["worker"]["volumes"])
    assert set(users) < set(USERS)
    written = {
        path.name for path in kept_accounts(tmp_path / "n", "tls://nats:4222?ca=/tls/ca.crt")
    }
    assert written == {"accounts.conf", "access.seed", *(f"{user}.url" for user in USERS)}


def test_the_accounts_that_are_written_are_a_servers_configuration(tmp_path: Path) -> None:
    folder, server = tmp_path / "n", "tls://a:4222,tls://b:4222?ca=/tls/ca.crt"
    kept_accounts(folder, server)
    before = {path.name: path.read_text() for path in folder.iterdir()}
    kept_accounts(folder, server)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before
    password = before["ledger.password"].strip()
    account = f"ledger:{password}"
    assert before["ledger.url"].strip() == (
        f"tls://{account}@a:4222,tls://{account}@b:4222?ca=/tls/ca.crt"
    )
    (folder / "nats.conf").write_text(
        f"jetstream {{ store_dir: {folder}/s }}\ninclude accounts.conf\n"
    )
    checked = subprocess.run(
        [nats_program(), "-t", "-c", folder / "nats.conf"], capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert not any((folder / name).stat().st_mode & 0o077 for name in before)
