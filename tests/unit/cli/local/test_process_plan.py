"""Which process of `hocket up` gets which secret, and how long it may take to stop."""

from pathlib import Path

import pytest

from hocket.cli.local.backing_servers import BackingServers
from hocket.cli.local.process_plan import PlannedProcess, ProcessPlan
from hocket.cli.local.service_modules import MODULES
from hocket.gateway.service import DRAIN_MS, FLUSH_MS
from hocket.kit.process.lifecycle import STOP_TIMEOUT_S

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
    planned = planned_in(tmp_path, inline_gateway=inline_gateway)
    with_secret = {(one.name, name) for one in planned for name in OF_REST if name in one.env}
    assert with_secret == {("admin", name) for name in OF_REST}


def planned_in(
    folder: Path, *, inline_gateway: bool = False, config: Path | None = None
) -> list[PlannedProcess]:
    plan = plan_of(inline_gateway=inline_gateway, config=config)
    servers = BackingServers(
        folder, nats_url="nats://n", database_url="postgresql://d", nats_port=0, replicas=None
    )
    return list(plan.processes(folder, servers, host="127.0.0.1", api_port=0, gateway_port=0))


def plan_of(*, inline_gateway: bool = False, config: Path | None = None) -> ProcessPlan:
    return ProcessPlan(
        services=tuple(MODULES),
        numbers={},
        worker_types=(),
        handlers=(),
        extra_env={},
        inline_gateway=inline_gateway,
        config=config,
        log_level="info",
    )


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("workers: {drain_s: 5}", "blobs"),
        ("blobs: {folder: DATA/large}", "large"),
        ("blobs: {store: postgres}", None),
        ("blobs: {store: none}", None),
    ],
)
def test_workers_of_others_are_told_the_folder_of_large_values_that_the_configuration_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, folder: str | None
) -> None:
    config = tmp_path / "hocket.yaml"
    config.write_text(text.replace("DATA", str(tmp_path)))
    expected = None if folder is None else tmp_path / folder
    assert plan_of(config=config).blobs_folder(tmp_path) == expected
    monkeypatch.setenv("HOCKET_CONFIG", str(config))
    assert plan_of().blobs_folder(tmp_path) == expected


def test_each_process_may_take_as_long_to_stop_as_it_needs(tmp_path: Path) -> None:
    """A gateway that is killed before its calls have ended does not record what they cost."""
    for one in planned_in(tmp_path):
        assert one.stop_timeout_s > STOP_TIMEOUT_S
        assert one.stop_timeout_s > (DRAIN_MS + FLUSH_MS) / 1000


@pytest.mark.parametrize(
    ("text", "takes_s"), [("workers: {drain_s: 600}", 620), ("workers: 1", 30)]
)
def test_a_worker_may_take_its_time_to_drain_that_the_configuration_names(
    tmp_path: Path, text: str, takes_s: float
) -> None:
    config = tmp_path / "hocket.yaml"
    config.write_text(text)
    [worker] = [one for one in planned_in(tmp_path, config=config) if one.name == "worker"]
    assert worker.stop_timeout_s == takes_s
