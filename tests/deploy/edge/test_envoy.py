"""deploy/envoy/envoy.yaml in a real Envoy, which `make manifests` installs; skipped without it."""

import asyncio
import json
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import yaml
from aiohttp import web

from deploy.edge.envoy import CONFIG, PROGRAM, TLS, Upstream, envoy, put_certificate, upstream
from hocket.cli.local.platform import Platform
from hocket.kit.embedded.ports import LOOPBACK
from hocket.kit.nats.bus import Bus
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.openai.failures import failure
from support.gateway.gateway_process import running_gateway

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(), reason="Envoy is not installed: `make manifests`"
)

SAY = {
    "pipeline": "say",
    "slo_ms": 60_000,
    "input": {"type": "object"},
    "nodes": {
        "one": {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"n": 1}}
    },
    "output": {"n": "{{ nodes.one.output.n }}"},
}


async def fine(_request: web.Request) -> web.StreamResponse:
    return web.json_response({})


async def overloaded(_request: web.Request) -> web.StreamResponse:
    """Answer as a gateway does whose model is down."""
    error = ErrorInfo(
        code="model_unavailable",
        message="No replica of `m` answers.",
        error_class=ErrorClass.UNAVAILABLE,
        retryable=True,
    )
    told = failure(error, 0)
    return web.json_response(told.body, status=told.status, headers=told.headers)


def routes() -> dict[str, dict[str, Any]]:
    config = yaml.safe_load(CONFIG.read_text())
    found = {}
    for listener in config["static_resources"]["listeners"]:
        (manager,) = listener["filter_chains"][0]["filters"]
        for host in manager["typed_config"]["route_config"]["virtual_hosts"]:
            found |= {one["name"]: one for one in host["routes"] if "name" in one}
    return found


def test_envoy_accepts_the_file_as_it_is(tmp_path: Path) -> None:
    put_certificate(tmp_path)
    (tmp_path / "envoy.yaml").write_text(CONFIG.read_text().replace(TLS, str(tmp_path)))
    command = [PROGRAM, "--mode", "validate", "--config-path", tmp_path / "envoy.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_no_answer_that_takes_long_is_cut_off() -> None:
    assert {name: one["route"]["timeout"] for name, one in routes().items()} == {
        "streams": "0s",
        "calls": "0s",
        "runs": "660s",
        "sign_in": "30s",
        "rest": "60s",
    }


async def test_a_typed_error_takes_no_gateway_out_and_is_not_asked_for_again(
    tmp_path: Path,
) -> None:
    async with (
        upstream(fine) as admin,
        upstream(overloaded) as one,
        upstream(overloaded) as other,
        envoy(tmp_path, [admin], [one, other]) as edge,
    ):
        for number in range(40):
            headers = {"x-session-id": f"s{number}"}
            status, body = await edge.ask("models", "/v1/chat/completions", headers=headers)
            assert status == 503
            assert "model_unavailable" in body
        assert len(one.heard) + len(other.heard) == 40
        assert min(len(one.heard), len(other.heard)) > 5
        assert await edge.metric("outlier_detection_ejections_active", "gateway") == 0


async def test_a_gateway_that_is_gone_costs_no_call_and_is_taken_out(tmp_path: Path) -> None:
    async with (
        upstream(fine) as admin,
        upstream(fine) as one,
        upstream(fine) as other,
        envoy(tmp_path, [admin], [one, other]) as edge,
    ):
        await other.lose()  # its process still passes its health checks
        for number in range(40):
            headers = {"x-session-id": f"s{number}"}
            assert (await edge.ask("models", "/v1/models", headers=headers))[0] == 200
        await edge.until("outlier_detection_ejections_active", "gateway", 1)
        assert len(one.heard) == 40


async def test_a_gateway_that_is_leaving_is_taken_out_before_its_door_closes(
    bus: Bus, nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_DRAIN_DELAY_S", "60")
    (tmp_path / "gateway").mkdir()
    async with (
        upstream(fine) as admin,
        upstream(fine) as other,
        running_gateway(nats_url, tmp_path / "gateway", None) as real,
    ):
        (fact,) = (tmp_path / "gateway" / "run").glob("gateway-*.json")
        ports = [
            urlsplit(url).port for url in (real.url, json.loads(fact.read_text())["health_url"])
        ]
        leaving = Upstream(*(port for port in ports if port))
        async with envoy(tmp_path, [admin], [leaving, other]) as edge:
            real.process.terminate()
            asked = 0
            while await edge.metric("membership_healthy", "gateway") != 1:
                asked += 1
                headers = {"x-session-id": f"s{asked}"}
                assert (await edge.ask("models", "/v1/models", headers=headers))[0] == 200
            assert await edge.metric("upstream_cx_connect_fail", "gateway") == 0
            async with aiohttp.request("GET", f"{real.url}/models") as answer:
                assert answer.status == 200, "its door is still open"
            before = len(other.heard)
            for number in range(20):
                headers = {"x-session-id": f"s{number}"}
                assert (await edge.ask("models", "/v1/models", headers=headers))[0] == 200
            assert len(other.heard) == before + 20
        real.process.send_signal(signal.SIGTERM)  # asked again, it does not wait
        assert await asyncio.wait_for(real.process.wait(), 60) == 0


async def test_calls_of_one_conversation_go_to_one_gateway(tmp_path: Path) -> None:
    async with (
        upstream(fine) as admin,
        upstream(fine) as one,
        upstream(fine) as other,
        envoy(tmp_path, [admin], [one, other]) as edge,
    ):
        met: Counter[str] = Counter()
        for number in range(12):
            before = len(one.heard), len(other.heard)
            for _ in range(5):
                headers = {"x-session-id": f"conversation {number}"}
                await edge.ask("models", "/v1/chat/completions", headers=headers)
            grew = (len(one.heard) - before[0], len(other.heard) - before[1])
            assert sorted(grew) == [0, 5]
            met["one" if grew[0] else "other"] += 1
        assert len(met) == 2


async def test_each_route_has_a_limit_of_its_own(tmp_path: Path) -> None:
    async with (
        upstream(fine) as admin,
        upstream(fine) as gateway,
        envoy(tmp_path, [admin], [gateway]) as edge,
    ):
        asked = (edge.ask("rest", "/console/sign-in") for _ in range(200))
        statuses = Counter(status for status, _ in await asyncio.gather(*asked))
        assert set(statuses) == {200, 429}
        assert len(admin.heard) == statuses[200] < 200
        for listener, path in (("rest", "/v1/runs"), ("rest", "/v1/health"), ("models", "/v1/x")):
            assert (await edge.ask(listener, path))[0] == 200


async def test_others_see_metrics_and_nothing_else_of_envoy(tmp_path: Path) -> None:
    async with (
        upstream(fine) as admin,
        upstream(fine) as gateway,
        envoy(tmp_path, [admin], [gateway]) as edge,
    ):
        status, text = await edge.ask("metrics", "/stats/prometheus")
        assert status == 200
        assert "envoy_http_downstream_rq_total" in text
        for path in ("/", "/config_dump", "/certs", "/stats/prometheus/../../quitquitquit"):
            assert (await edge.ask("metrics", path))[0] == 404


async def test_a_run_and_its_events_pass_through_envoy(tmp_path: Path) -> None:
    (tmp_path / "edge").mkdir()
    async with Platform(tmp_path / "data") as platform:
        api = platform.api()
        await asyncio.to_thread(api.post, "/v1/pipelines", SAY)
        port = int(platform.api_url.rpartition(":")[2])
        async with upstream(fine) as well:
            real = Upstream(port, well.health_port)
            async with envoy(tmp_path / "edge", [real], [well]) as edge:
                headers = {"X-Api-Key": platform.api_key, "Host": f"{LOOPBACK}:{port}"}
                run = await asyncio.to_thread(
                    api.post, "/v1/runs", {"pipeline": "say", "input": {}}
                )
                path = f"/v1/runs/{run['run_id']}/events"
                status, events = await edge.ask("rest", path, headers=headers)
                assert status == 200
                assert '"succeeded"' in events
