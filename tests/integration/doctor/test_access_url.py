"""`hocket doctor` and the user `access`, without whom servers tell nothing of themselves."""

import json
from pathlib import Path

from support.shared.commands import run_hocket

NOWHERE = "nats://access:a@127.0.0.1:1"


def test_an_access_url_that_leads_nowhere_costs_no_other_finding(
    tmp_path: Path, nats_url: str
) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    env |= {"NATS_URL": nats_url, "HOCKET_NATS_ACCESS_URL": NOWHERE}
    done = run_hocket("doctor", "--json", env=env)
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 1
    assert "127.0.0.1:1" in found["meta leader"]["found"]
    assert {"nats", "jetstream", "streams", "gateway", "workers"} <= found.keys()
