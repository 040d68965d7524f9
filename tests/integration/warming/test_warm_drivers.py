"""Drivers against what they drive: commands, an HTTP server; and the booked time in Postgres."""

import asyncio
import json
import os
import resource
import select
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from aiohttp import web

from hocket.gateway.config.backend_pool import ServedBackend, serve
from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.config.table import BackendSpec, ModelSpec, RoutingTable
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.warming.drivers import Driver, StartFailed, build_driver
from hocket.ledger.prices import KnownPrices
from hocket.ledger.records.record import record_of
from hocket.ledger.store import insert
from hocket.schemas.messages import WarmRecord

BOUND_MS = 20_000.0


class Fleet:
    """A server that starts models, and says of itself what a test wants."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.status = 200
        self.not_ready = 0
        self.loading = 503
        self.location = ""

    async def act(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.path} {request.headers.get('Authorization', '')}".strip())
        if self.location:
            return web.Response(status=307, headers={"Location": self.location})
        return web.Response(status=self.status, text="said so")

    async def ready(self, request: web.Request) -> web.Response:
        if self.location:
            return web.Response(status=302, headers={"Location": self.location})
        self.not_ready -= 1
        return web.Response(status=self.loading if self.not_ready >= 0 else 200)


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    app = web.Application()
    app.router.add_get("/health", fleet.ready)
    app.router.add_post("/{tail:.*}", fleet.act)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fleet.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield fleet
    await runner.cleanup()


def spec_of(warm: dict[str, Any], url: str = "http://127.0.0.1:9") -> BackendSpec:
    backend = {"name": "gpu", "base_url": f"{url}/v1", "model": "qwen", "warm": warm}
    (spec,) = parse({"writer": {"backends": [backend]}}, {}).backends_of("writer")
    return spec


async def driver_of(spec: BackendSpec) -> tuple[Driver, ServedBackend]:
    served = await serve(RoutingTable({"writer": ModelSpec((spec,))}), {}, lambda: 0.0)
    return build_driver(spec, served[spec.key]), served[spec.key]


async def test_a_webhook_gets_a_post_for_each_action_that_it_has(fleet: Fleet) -> None:
    hook = {"load": "{url}/up/{model}/{backend}", "unload": "{url}/down", "token": "s3"}
    driver, served = await driver_of(spec_of({"webhook": hook}, fleet.url))
    for action in ("provision", "load", "unload", "release"):
        await driver.do(action, timeout_ms=BOUND_MS)
    assert fleet.asked == ["/up/qwen/gpu Bearer s3", "/down Bearer s3"]
    assert await driver.ready() is None
    await driver.close()
    await served.retire()


async def test_a_webhook_that_only_accepts_is_done_when_the_model_is_ready(fleet: Fleet) -> None:
    fleet.status, fleet.not_ready = 202, 3
    hook = {"load": "{url}/up", "ready": "{url}/health"}
    driver, served = await driver_of(spec_of({"webhook": hook}, fleet.url))
    await driver.do("load", timeout_ms=BOUND_MS)
    assert fleet.not_ready == -1
    assert await driver.ready() is True
    await driver.close()
    await served.retire()


@pytest.mark.parametrize("loading", [202, 204, 302])
async def test_only_200_says_that_a_model_is_ready(fleet: Fleet, loading: int) -> None:
    fleet.status, fleet.not_ready, fleet.loading = 202, 2, loading
    hook = {"load": "{url}/up", "ready": "{url}/health"}
    driver, served = await driver_of(spec_of({"webhook": hook}, fleet.url))
    assert await driver.ready() is False
    await driver.do("load", timeout_ms=BOUND_MS)
    assert fleet.not_ready == -1
    await driver.close()
    await served.retire()


async def test_a_webhook_that_refuses_is_told_with_what_it_said(fleet: Fleet) -> None:
    fleet.status = 500
    driver, served = await driver_of(spec_of({"webhook": {"load": "{url}/up"}}, fleet.url))
    with pytest.raises(StartFailed, match="status 500: said so"):
        await driver.do("load", timeout_ms=BOUND_MS)
    await driver.close()
    await served.retire()


async def test_a_command_runs_for_an_action_and_its_failure_is_told(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2]);"
        "sys.exit('no luck' if sys.argv[2] == 'down' else 0)"
    )
    made = tmp_path / "made"
    run = [sys.executable, "-c", code, str(made)]
    warm = {"exec": {"load": [*run, "up {model}"], "unload": [*run, "down"]}}
    driver, served = await driver_of(spec_of(warm))
    await driver.do("load", timeout_ms=BOUND_MS)
    assert made.read_text() == "up qwen"
    with pytest.raises(StartFailed, match="ended with 1: no luck"):
        await driver.do("unload", timeout_ms=BOUND_MS)
    await served.retire()


async def test_a_command_that_takes_too_long_is_killed() -> None:
    hangs = [sys.executable, "-c", "import signal; signal.pause()"]
    driver, served = await driver_of(spec_of({"exec": {"load": hangs}}))
    with pytest.raises(StartFailed, match="not done within"):
        await driver.do("load", timeout_ms=300.0)
    await served.retire()


async def test_a_command_that_takes_too_long_is_killed_with_what_it_started(tmp_path: Path) -> None:
    """What it started has its stderr, which would be waited for until that ends, too."""
    names = tmp_path / "names"
    script = f"sleep 3000 & echo $! > {names}; wait"
    driver, served = await driver_of(spec_of({"exec": {"load": ["sh", "-c", script]}}))
    with pytest.raises(StartFailed, match="not done within"):
        await driver.do("load", timeout_ms=1_000.0)
    await served.retire()
    with suppress(ProcessLookupError):
        ends = os.pidfd_open(int(names.read_text()))
        ended = await asyncio.to_thread(select.select, [ends], [], [], BOUND_MS / 1000)
        os.close(ends)
        assert ended[0]


async def test_what_a_command_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    names = tmp_path / "names"
    script = f"sleep 3000 & echo $! > {names}; echo begun >&2"
    load, unload = ["sh", "-c", script], ["sh", "-c", f"{script}; exit 3"]
    driver, served = await driver_of(spec_of({"exec": {"load": load, "unload": unload}}))
    await driver.do("load", timeout_ms=BOUND_MS)
    first = int(names.read_text())
    os.kill(first, 0)  # it is there
    with pytest.raises(StartFailed, match="ended with 3: begun"):
        await driver.do("unload", timeout_ms=BOUND_MS)
    for process in (first, int(names.read_text())):
        os.kill(process, signal.SIGKILL)
    await served.retire()


async def test_of_what_a_command_says_the_end_is_held() -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flood = ["sh", "-c", "head -c 600000000 /dev/zero >&2; echo full >&2; exit 1"]
    driver, served = await driver_of(spec_of({"exec": {"load": flood}}))
    with pytest.raises(StartFailed, match="full"):
        await driver.do("load", timeout_ms=3 * BOUND_MS)
    await served.retire()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 200 * 1024


async def test_a_command_that_cannot_be_one_does_not_start() -> None:
    driver, served = await driver_of(spec_of({"exec": {"load": ["echo", "a\0b"]}}))
    with pytest.raises(StartFailed, match="no start"):
        await driver.do("load", timeout_ms=BOUND_MS)
    await served.retire()


@pytest.mark.parametrize(
    ("warm", "field"),
    [
        ({}, "warm"),
        ({"webhook": {"unload": "http://x/y"}}, "warm.webhook.load"),
        ({"webhook": {"load": "ftp://x"}}, "warm.webhook.load"),
        ({"webhook": {"load": "http://x/{who}"}}, "warm.webhook.load"),
        ({"webhook": {"load": "http://x/{model:>99999}"}}, "warm.webhook.load"),
        ({"webhook": {"load": "http://x/{model.__class__}"}}, "warm.webhook.load"),
        ({"webhook": {"load": "http://x/{"}}, "warm.webhook.load"),
        ({"exec": {"load": "start.sh"}}, "warm.exec.load"),
        ({"exec": {"load": ["x"]}, "webhook": {"load": "http://x"}}, "warm.exec"),
        ({"exec": {"load": ["x"]}, "idle": 3}, "warm.idle"),
        ({"exec": {"load": ["x"]}, "tier": "lukewarm"}, "warm.tier"),
        (
            {"exec": {"load": ["x"]}, "schedules": [{"cron": "soon", "for_s": 1}]},
            "schedules[0].cron",
        ),
        (
            {
                "exec": {"load": ["x"]},
                "schedules": [
                    {"cron": "* 2 25-31 3 */7", "for_s": 1, "time_zone": "Europe/Berlin"}
                ],
            },
            "schedules[0].cron",
        ),
        ({"exec": {"load": ["x"]}, "schedules": [{"cron": "0 8 * * *"}]}, "schedules[0].for_s"),
        (
            {
                "exec": {"load": ["x"]},
                "schedules": [{"cron": "0 8 * * *", "for_s": 1, "time_zone": "Mars"}],
            },
            "schedules[0].time_zone",
        ),
        (
            {
                "exec": {"load": ["x"]},
                "schedules": [{"cron": "0 8 * * *", "for_s": 1, "timezone": "Mars"}],
            },
            "schedules[0].timezone",
        ),
        (
            {
                "exec": {"load": ["x"]},
                "schedules": [
                    {"cron": "0 8 * * *", "for_s": 1, "timezone": "UTC", "time_zone": "UTC"}
                ],
            },
            "schedules[0].timezone",
        ),
    ],
)
def test_a_warm_section_with_a_mistake_is_refused_with_its_field(
    warm: dict[str, Any], field: str
) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        spec_of(warm)
    assert refused.value.fields["field"].endswith(field)
    assert refused.value.fields["cure"]


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        ({}, "UTC"),
        ({"time_zone": "Asia/Tokyo"}, "Asia/Tokyo"),
        ({"timezone": "Asia/Tokyo"}, "Asia/Tokyo"),
    ],
)
def test_the_zone_of_a_schedule_is_also_read_under_its_old_name(
    zone: dict[str, str], name: str
) -> None:
    schedule = {"cron": "0 8 * * *", "for_s": 1, **zone}
    rule = spec_of({"exec": {"load": ["x"]}, "schedules": [schedule]}).warm
    assert rule is not None
    assert [one.zone for one in rule.schedules] == [name]


async def test_the_time_of_a_replica_is_in_the_report_once_however_often_it_is_told(
    database_url: str,
) -> None:
    record = WarmRecord(
        call_id="warm:gpu:1",
        backend="gpu",
        model="writer",
        reason="forecast",
        from_at_ms=datetime(2026, 11, 20, 8, tzinfo=UTC).timestamp() * 1000,
        to_at_ms=datetime(2026, 11, 20, 9, tzinfo=UTC).timestamp() * 1000,
        starting_ms=600_000.0,
        busy_ms=1_800_000.0,
        idle_ms=900_000.0,
        provisioned_ms=300_000.0,
        usd_per_hour=Decimal("4.00"),
        cost_usd=Decimal("4.00"),
        wasted_usd=Decimal("1.333333333"),
    )
    kept = record_of(record.model_dump_json().encode())
    pool = await asyncpg.create_pool(database_url, min_size=1, max_size=1)
    async with pool:
        assert await insert(pool, [kept], KnownPrices()) == 0
        assert await insert(pool, [kept], KnownPrices()) == 0
        row = await pool.fetchrow("SELECT * FROM report.warm_by_model_day")
    found = json.loads(json.dumps(dict(row), default=str))
    assert found == {
        "model": "writer",
        "backend": "gpu",
        "day": "2026-11-20",
        "starting_s": 600.0,
        "busy_s": 1_800.0,
        "idle_s": 900.0,
        "provisioned_s": 300.0,
        "held_s": 3_600.0,
        "wasted_s": 1_200.0,
        "cost_usd": "4.00",
        "wasted_usd": "1.333333333",
    }


async def test_a_redirect_is_not_followed(fleet: Fleet) -> None:
    fleet.location = f"{fleet.url}/internal"
    hook = {"load": "{url}/up", "ready": "{url}/health", "token": "s3"}
    driver, served = await driver_of(spec_of({"webhook": hook}, fleet.url))
    with pytest.raises(StartFailed, match="307"):
        await driver.do("load", timeout_ms=BOUND_MS)
    assert await driver.ready() is False
    assert fleet.asked == ["/up Bearer s3"]
    await driver.close()
    await served.retire()
