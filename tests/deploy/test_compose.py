"""What docker-compose.yml gives its containers: settings, memory, time, and what outlives them."""

import re
from typing import Any

import pytest
import yaml

from hocket.cli.doctor.server_settings import MIN_LOCKS
from hocket.kit.embedded.postgres import SETTINGS
from hocket.kit.process.lifecycle import STOP_TIMEOUT_S
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
    (told,) = re.findall(r"^- \*\*Certificates\*\*: (.+?)^-", page, re.MULTILINE | re.DOTALL)
    told = " ".join(told.split())
    assert f"{days} days" in told
    assert f"last {seconds.partition(' ')[0]} days" in told
    assert f"{int(years) // 365} years" in told
    assert "docker compose restart nats postgres" in told
