"""deploy/model-servers: the manifests against Kubernetes' schemas, the configuration as gateways read
it, and the scaler as a real process in front of a simulated API server."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from hocket.cli.local.config_check import checked
from hocket.kit.embedded.ports import LOOPBACK, remembered_port
from support.places import ROOT

FOLDER = ROOT / "deploy" / "model-servers"
TOOLS = ROOT / ".venv-deploy" / "bin"
TOKEN = "a-token-that-nobody-guesses"
BOUND_S = 30.0
needs_tools = pytest.mark.skipif(
    not (TOOLS / "kubectl").exists(), reason="kubectl is not installed: `make manifests`"
)


def rendered() -> str:
    command = [TOOLS / "kubectl", "kustomize", FOLDER]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@needs_tools
def test_kubernetes_accepts_them(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(rendered())
    script = Path(__file__).with_name("validate.py")
    command = [TOOLS / "python", script, tmp_path / "all.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_tools
def test_the_scaler_may_scale_the_replicas_that_gateways_ask_it_for_and_nothing_else() -> None:
    documents = [one for one in yaml.safe_load_all(rendered()) if one]
    (role,) = (one for one in documents if one["kind"] == "Role")
    (rule,) = role["rules"]
    named = {
        replica["name"]
        for model in yaml.safe_load((FOLDER / "hocket.yaml").read_text())["models"].values()
        for backend in model["backends"]
        for replica in backend.get("replicas", ())
    }
    deployments = {one["metadata"]["name"] for one in documents if one["kind"] == "Deployment"}
    (scaler,) = (
        one["spec"]["template"]["spec"]["containers"][0]
        for one in documents
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "scaler"
    )
    (scaled,) = (one["value"] for one in scaler["env"] if one["name"] == "SCALED")
    assert set(rule["resourceNames"]) == set(scaled.split(",")) == named <= deployments
    assert (rule["resources"], rule["verbs"]) == (["deployments/scale"], ["patch"])


async def test_a_gateway_reads_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALER_TOKEN", TOKEN)
    found = await checked(FOLDER / "hocket.yaml")
    assert found.faults == ()
    assert {"writer", "classifier"} <= set(found.models)


class ApiServer:
    """Records requests, and gives prepared answers."""

    def __init__(self) -> None:
        self.status = 200
        self.heard: list[tuple[str, str, Any, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.heard.append((request.method, request.path, body, request.headers["Authorization"]))
        return web.json_response({"message": "no such deployment"}, status=self.status)


@asynccontextmanager
async def scaler(folder: Path, api: ApiServer) -> AsyncIterator[aiohttp.ClientSession]:
    """Run the scaler; the session sends it requests with its token."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0)
    await site.start()
    (folder / "namespace").write_text("models\n")
    (folder / "token").write_text("of-the-account\n")
    port = remembered_port(folder / "scaler.port")
    environment = {
        "ACCOUNT": str(folder),
        "KUBERNETES_API": f"http://{LOOPBACK}:{runner.addresses[0][1]}",
        "PORT": str(port),
        "SCALED": "writer-0,writer-1",
        "SCALER_TOKEN": TOKEN,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, FOLDER / "scaler.py", env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    headers = {"Authorization": f"Bearer {TOKEN}"}
    try:
        async with aiohttp.ClientSession(f"http://{LOOPBACK}:{port}", headers=headers) as session:
            await listening(session)
            yield session
    finally:
        process.kill()
        await process.wait()
        await runner.cleanup()


async def listening(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                async with session.get("/healthz") as answer:
                    assert answer.status == 200
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(("path", "status", "pods"), [("/start", 202, 1), ("/stop", 200, 0)])
async def test_a_replica_is_scaled(path: str, status: int, pods: int, tmp_path: Path) -> None:
    api = ApiServer()
    async with (
        scaler(tmp_path, api) as session,
        session.post(f"{path}?replica=writer-1") as answer,
    ):
        assert answer.status == status
    assert api.heard == [
        (
            "PATCH",
            "/apis/apps/v1/namespaces/models/deployments/writer-1/scale",
            {"spec": {"replicas": pods}},
            "Bearer of-the-account",
        )
    ]


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/start?replica=writer-1", "another", 401),
        ("/start?replica=coordinator", TOKEN, 403),
        ("/start?replica=../../secrets", TOKEN, 404),
        ("/start", TOKEN, 404),
        ("/delete?replica=writer-1", TOKEN, 404),
    ],
)
async def test_nothing_else_is_asked_for(
    path: str, token: str, status: int, tmp_path: Path
) -> None:
    api, headers = ApiServer(), {"Authorization": f"Bearer {token}"}
    async with (
        scaler(tmp_path, api) as session,
        session.post(path, headers=headers) as answer,
    ):
        assert answer.status == status
    assert api.heard == []


async def test_what_the_api_server_refuses_is_told(tmp_path: Path) -> None:
    api = ApiServer()
    api.status = 404
    async with (
        scaler(tmp_path, api) as session,
        session.post("/start?replica=writer-1") as answer,
    ):
        assert answer.status == 502
        assert "no such deployment" in await answer.text()
