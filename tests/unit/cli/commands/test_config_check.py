"""`hocket config check` says all that is wrong with a configuration file, at once."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.schemas.errors import InvalidInput
from support.places import ROOT

WRONG = """
model: {x: 1}
models:
  planner: {backends: [{url: 7}]}
workers: {ack_wait_s: 0}
node_types: {python: {modules: [os]}}
databases: {shop: {url: "nosql://x"}, fine: {url: "postgresql://h/d"}, other: {tables: 3}}
http_services:
  crm: {url: "ftp://x"}
  keyed: {url: "https://x.org", headers: {a: os.environ/NOT_SET_HERE}}
mcp_servers:
  docs: {url: "stdio://x"}
nats_services:
  prices: {servers: ["http://x"], subject: prices}
  keyed: {servers: "nats://x", subject: a, token: os.environ/NOT_SET_HERE}
  twice: {servers: "nats://x", subject: a, token: x, user: y, password: z}
budgets: {tenants: 5}
"""
FIELDS = {
    "model": "Is `models` meant?",
    "models.planner.backends[0].url": "there is no such field",
    "budgets.tenants": "it is not a mapping",
    "workers.ack_wait_s": "out of bounds",
    "node_types.python.modules": "Python's standard library",
    "databases.shop": "nosql",
    "databases.other": "url",
    "http_services.crm.url": "write it as https://host/path",
    "mcp_servers.docs.url": "write it as https://host/path",
    "nats_services.prices.servers": "write each as nats://host:4222",
    "nats_services.keyed.token": "NOT_SET_HERE is not set",
    "nats_services.twice.entry": "`token`, or `credentials`",
    "http_services.keyed.headers.a": "NOT_SET_HERE is not set",
}


def test_all_faults_are_told_with_field_and_cure(tmp_path: Path) -> None:
    file = tmp_path / "hocket.yaml"
    file.write_text(WRONG)
    told = CliRunner().invoke(app, ["config", "check", "--json", str(file)])
    assert told.exit_code == 2, told.output
    found = json.loads(told.output)["faults"]
    faults = {one["field"]: f"{one['reason']}. {one['cure']}" for one in found}
    assert set(faults) == set(FIELDS)
    for field, part in FIELDS.items():
        assert part in faults[field]
    shown = CliRunner().invoke(app, ["config", "check", str(file)])
    assert shown.exit_code == 2
    assert "model: no process reads this section. Is `models` meant?" in shown.output


def test_the_first_fault_of_models_does_not_hide_experiments_and_hooks(tmp_path: Path) -> None:
    file = tmp_path / "hocket.yaml"
    file.write_text("experiments: 5\nhooks: 6\n")
    told = CliRunner().invoke(app, ["config", "check", "--json", str(file)])
    assert {one["field"] for one in json.loads(told.output)["faults"]} >= {"experiments", "hooks"}


def test_what_is_deployed_has_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["config", "check", str(ROOT / "deploy" / "hocket.yaml")])
    assert told.exit_code == 0, told.output
    assert "No errors found." in told.output
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    assert CliRunner().invoke(app, ["config", "check", str(empty)]).exit_code == 0


def test_what_cannot_be_read_is_bad_input(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("models: [")
    told = CliRunner().invoke(app, ["config", "check", str(broken)])
    assert isinstance(told.exception, InvalidInput)  # exit code 2, by the command's main
    assert str(broken) in str(told.exception)
    missing = CliRunner().invoke(app, ["config", "check", str(tmp_path / "none.yaml")])
    assert (missing.exit_code, "does not exist" in missing.output) == (2, True)
