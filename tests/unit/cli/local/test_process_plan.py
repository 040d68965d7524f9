"""Which process of `hocket up` gets which secret."""

from pathlib import Path

import pytest

from hocket.cli.local.backing_servers import BackingServers
from hocket.cli.local.process_plan import ProcessPlan
from hocket.cli.local.service_modules import MODULES

OF_REST = {
    "HOCKET_ADMIN_KEY": f"hk_{'0' * 12}_{'0' * 64}",
    "HOCKET_OIDC_CLIENT_SECRET": "secret",
    "HOCKET_NATS_ACCESS_SEED": "seed",
}


@pytest.mark.parametrize("inline_gateway", [False, True])
def test_what_only_the_rest_service_needs_reaches_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, inline_gateway: bool
) -> None:
    for name, secret in OF_REST.items():
        monkeypatch.setenv(name, secret)
    plan = ProcessPlan(
        services=tuple(MODULES),
        numbers={},
        worker_types=(),
        handlers=(),
        extra_env={},
        inline_gateway=inline_gateway,
        config=None,
        log_level="info",
    )
    servers = BackingServers(
        tmp_path, nats_url="nats://n", database_url="postgresql://d", nats_port=0, replicas=None
    )
    planned = plan.processes(tmp_path, servers, host="127.0.0.1", api_port=0, gateway_port=0)
    with_secret = {(one.name, name) for one in planned for name in OF_REST if name in one.env}
    assert with_secret == {("admin", name) for name in OF_REST}
