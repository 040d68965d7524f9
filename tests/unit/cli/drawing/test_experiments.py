"""`hocket gateway experiments` says for whom an arm is off."""

from pathlib import Path
from typing import Any

from support.shared.commands import run_hocket
from support.shared.scripted_api import as_json, scripted_api

ARM = {
    "arm": "new", "model": "large", "weight": 1, "control": False, "off": False, "reason": "",
    "since_ms": None, "by": "", "calls": 20, "errors": [0, 20], "slow": [0, 20], "outcomes": [0, 0],
}  # fmt: skip
SOME = {"reason": "for tenant `acme`: 10 of 10 calls failed", "by": "g1"}


def state(home: Path, **arm: Any) -> str:
    trial = {"experiment": "sizes", "judged": True, "arms": [ARM | arm]}
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "COLUMNS": "300", "HOCKET_API_KEY": "hk_a_b"}
    with scripted_api(lambda *_: as_json(200, {"experiments": [trial]})) as api:
        done = run_hocket("--api", api.url, "gateway", "experiments", env=env)
    return done.stdout.splitlines()[-1].split("0 of 0")[1].strip()


def test_an_arm_may_be_off_for_some_tenants(tmp_path: Path) -> None:
    assert state(tmp_path) == "on"
    assert state(tmp_path, **SOME) == "off for tenant `acme`: 10 of 10 calls failed, by g1"
    assert state(tmp_path, **SOME, off=True).startswith("off: for tenant `acme`")
