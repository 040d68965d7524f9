"""What docker-compose.yml gives its containers: settings, memory, time, and what outlives them."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from hocket.cli.doctor.server_settings import MIN_LOCKS
from hocket.kit.embedded.postgres import SETTINGS
from hocket.kit.process.config import load
from hocket.kit.process.lifecycle import STOP_TIMEOUT_S
from hocket.schemas.errors import InvalidInput
from support.places import ROOT

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DATA = "/home/hocket/data"


def test_postgres_has_the_settings_that_reports_need() -> None:
    given = dict(
        one.removeprefix("-c").split("=", 1)
        for one in SERVICES["postgres"]["command"]
        if one.startswith("-c")
    )
    for name in ("max_locks_per_transaction", "work_mem"):
        assert given[name] == SETTINGS[name], "as `hocket up`"
    assert int(given["max_locks_per_transaction"]) >= MIN_LOCKS


@pytest.mark.parametrize("service", ["worker", "gateway"])
def test_what_a_process_keeps_in_its_data_folder_outlives_its_container(service: str) -> None:
    mounts = dict(volume.split(":")[:2][::-1] for volume in SERVICES[service]["volumes"])
    assert mounts[DATA] == f"{service}-data"
    assert f"{service}-data" in COMPOSE["volumes"]
    assert not any(DATA in one for one in SERVICES[service]["tmpfs"]), "it would hide the volume"


@pytest.mark.parametrize("service", ["coordinator", "worker", "gateway", "ledger", "admin"])
def test_a_container_has_time_to_end_by_itself(service: str) -> None:
    one = SERVICES[service]
    delay_s = float(one["environment"].get("HOCKET_DRAIN_DELAY_S", 0))
    assert (delay_s > 0) == (service in ("gateway", "admin")), "those with a door for clients"
    grace_s = float(one["stop_grace_period"].removesuffix("s"))
    assert grace_s > STOP_TIMEOUT_S + delay_s


def test_a_coordinator_has_room_for_what_it_may_hold() -> None:
    values = yaml.safe_load((ROOT / "deploy" / "chart" / "values.yaml").read_text())
    limit = values["services"]["coordinator"]["resources"]["limits"]["memory"]
    assert (SERVICES["coordinator"]["mem_limit"], limit) == ("1g", "1Gi")


def test_the_pages_say_how_long_certificates_are_valid_and_what_renews_them() -> None:
    init = (ROOT / "deploy" / "compose" / "init.py").read_text()
    (numbers,) = re.findall(r"^CA_DAYS, DAYS, RENEW_S = (.+)$", init, re.MULTILINE)
    years, days, seconds = numbers.replace("_", "").split(", ")
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    point = re.compile(r"^- \*\*Certificates\*\*: (.+?)(?=^-|^#)", re.MULTILINE | re.DOTALL)
    (told,) = point.findall(page)
    told = " ".join(told.split())
    assert f"{days} days" in told
    assert f"last {seconds.partition(' ')[0]} days" in told
    assert f"{int(years) // 365} years" in told
    assert "docker compose restart nats postgres" in told


@pytest.fixture
def init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script of the container `init`, which keeps the demo's password here."""
    spec = importlib.util.spec_from_file_location("init", ROOT / "deploy" / "compose" / "init.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    (tmp_path / "access").mkdir()
    monkeypatch.setattr(script, "ACCESS", tmp_path / "access")
    return script


@pytest.mark.parametrize(
    "text",
    [
        "",
        "models: {}\ndatabases:\nnode_types:\n",
        "databases: {shop: {url: u}}\nnode_types: {python: {modules: [a.b], concurrency: 3}}",
        "experiments: {until: 2026-12-01T00:00:00Z, day: 2026-12-01, 'on': yes}",
    ],
    ids=["empty", "sections without entries", "sections with entries", "dates"],
)
def test_the_processes_read_what_the_file_says_and_the_demo(
    init: ModuleType, tmp_path: Path, text: str
) -> None:
    given, written = tmp_path / "given.yaml", tmp_path / "written.yaml"
    given.write_text(text)
    written.write_text(yaml.safe_dump(init.configured(given, demo=False)))
    assert load(written) == load(given)
    written.write_text(yaml.safe_dump(init.configured(given, demo=True)))
    found, before = load(written), load(given)
    assert "demo_reader" in found["databases"].pop("demo")["url"]
    assert found.pop("databases") == (before.pop("databases", None) or {})
    python = found.pop("node_types")["python"]
    own = (before.pop("node_types", None) or {}).get("python", {})
    assert python == {**own, "modules": [*own.get("modules", ()), init.VERIFIER]}
    assert found == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("models: {a: 1}\nmodels: {b: 1}\n", "used twice"),
        ("[a]", "not a mapping"),
        ("databases: [a]", "databases"),
        ("node_types: {python: {modules: a.b}}", "modules"),
        ("node_types: {python: }", "node_types"),
    ],
    ids=["a section twice", "a list", "a list of databases", "text for a list", "no node type"],
)
def test_a_file_that_is_no_yaml_or_whose_form_workers_refuse_stops_init(
    init: ModuleType, tmp_path: Path, text: str, reason: str
) -> None:
    given = tmp_path / "given.yaml"
    given.write_text(text)
    with pytest.raises(InvalidInput, match=reason):
        init.configured(given, demo=True)


def test_a_file_that_is_not_there_is_called_by_its_name_outside_the_container(
    init: ModuleType, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=r"Check deploy/hocket\.yaml\."):
        init.configured(tmp_path / "none.yaml", demo=False)
