"""Node types of somebody's own on a running platform: what REST and the CLI know of them, and runs that
wait for their workers."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.cli.terminal.errors import ApiRefused
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.pipeline.handlers import AllowedHandlers
from hocket.workers.nodes.python import PythonNode
from hocket.workers.runtime.execution.step_threads import StepThreads
from support.handlers.lead_worker import worker as leads
from support.worker_rig import eventually, running_worker

BOUND_S = 60.0
EARLY = {
    "pipeline": "early",
    "slo_ms": 600_000,
    "input": {"properties": {"email": {"type": "string"}}},
    "nodes": {
        "find": {"type": "crm.early", "queue": "gpu", "with": {"email": "{{ input.email }}"}}
    },
}
FIND = {"type": "crm.lookup", "with": {"email": "{{ input.email }}"}}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
async def platform(folder: Path) -> AsyncIterator[Platform]:
    environment = {"HOCKET_HANDLERS": __name__}
    services = ("coordinator", "admin")
    async with Platform(folder / "d", env=environment, services=services) as running:
        yield running


@pytest.fixture
def api(platform: Platform) -> Api:
    return platform.api()


async def shown(api: Api, name: str) -> Any:
    try:
        return await asyncio.to_thread(api.get, f"/v1/types/{name}")
    except ApiRefused:
        return None


async def until_served(api: Api, name: str, *, served: bool = True) -> Any:
    async def fits() -> bool:
        found = await shown(api, name)
        return found is not None and found["is_served"] is served

    await eventually(fits)
    return await shown(api, name)


async def steps_of(api: Api, run_id: str) -> Any:
    return (await asyncio.to_thread(api.get, f"/v1/runs/{run_id}/steps"))["steps"]


async def submit(api: Api, pipeline: str, **more: Any) -> Any:
    body = {"pipeline": pipeline, "input": {"email": "ada@x.org"}, **more}
    return await asyncio.to_thread(api.post, "/v1/runs", body)


async def test_a_type_is_known_with_its_schemas_and_its_config_is_checked(
    platform: Platform, api: Api
) -> None:
    async with leads.run(nats_url=platform.nats_url):
        found = await until_served(api, "crm.lookup")
        assert found["queues"] == [{"queue": "default", "workers": 1, "slots": 8}]
        (version,) = found["versions"]
        assert (version["version"], version["workers"]) == ("2", 1)
        assert version["config"]["properties"]["region"]["type"] == "string"
        assert version["input"]["required"] == ["email"]
        wrong = {"pipeline": "leads", "nodes": {"find": FIND | {"config": {"region": 7}}}}
        with pytest.raises(ApiRefused, match=r"nodes\.find\.config\.region"):
            await asyncio.to_thread(api.post, "/v1/pipelines", wrong)
        good = {
            "pipeline": "leads",
            "nodes": {"find": FIND, "score": score()},
            "output": {"found": "{{ nodes.find.output }}"},
        }
        applied = await asyncio.to_thread(api.post, "/v1/pipelines", good)
        assert [text for text in applied["warnings"] if "worker" in text] == []
        spec = (await asyncio.to_thread(api.get, "/v1/pipelines/leads"))["spec"]["nodes"]
        assert spec["find"]["timeout_ms"] == 2_000
        assert spec["score"]["effects"] == "external"
        again = await asyncio.to_thread(api.post, "/v1/pipelines", good)
        assert (again["version"], again["created"]) == (applied["version"], False)
        ended = await submit(api, "leads", wait_ms=30_000)
        assert ended["status"] == "succeeded"
        assert ended["output"]["found"] == {"name": "ada", "region": "eu"}
    gone = await until_served(api, "crm.lookup", served=False)
    assert gone["versions"][0]["version"] == "2"


def score() -> dict[str, Any]:
    return {"type": "crm.score", "with": {"email": "{{ input.email }}"}}


async def test_a_run_waits_for_a_worker_that_does_not_exist_yet_and_says_so(
    platform: Platform, api: Api
) -> None:
    async def warned() -> bool:  # once it has listened for long enough to know
        found = await asyncio.to_thread(api.post, "/v1/pipelines/validate", EARLY)
        return any("`crm.early` in the queue `gpu`" in text for text in found["warnings"])

    await eventually(warned)
    await asyncio.to_thread(api.post, "/v1/pipelines", EARLY)
    receipt = await submit(api, "early")

    async def waits() -> bool:
        return any(step["waits_for"] for step in await steps_of(api, receipt["run_id"]))

    await eventually(waits)
    (step,) = await steps_of(api, receipt["run_id"])
    assert step["waits_for"]["queue"] == "gpu"
    told = await asyncio.to_thread(
        CliRunner().invoke,
        app,
        ["--data-dir", str(platform.data_dir), "runs", "show", receipt["run_id"]],
    )
    assert "find waits: No worker runs `crm.early` in the queue `gpu` now" in told.output
    bus = await Bus.connect(platform.nats_url, name="looks")
    assert (await bus.js.stream_info(subjects.STEPS)).state.messages == 0
    await bus.close()

    from hocket.worker import Worker

    late = Worker(queues=("gpu",))

    @late.node("crm.early")
    async def run(lead: dict[str, str]) -> str:
        return lead["email"]

    async with late.run(nats_url=platform.nats_url):

        async def ended() -> bool:
            run = await asyncio.to_thread(api.get, f"/v1/runs/{receipt['run_id']}")
            return bool(run["status"] == "succeeded" and run["output"] == "ada@x.org")

        await eventually(ended)


def of_the_new_release(given: dict[str, str]) -> str:
    return given["email"]


@asynccontextmanager
async def python_worker(platform: Platform, name: str, *modules: str) -> AsyncIterator[None]:
    """Run a worker of `python` steps that knows the functions of these modules."""
    bus = await Bus.connect(platform.nats_url, name=name)
    with closing(StepThreads(16)) as threads:
        handlers = {"python": PythonNode(threads, AllowedHandlers.of(modules))}
        async with running_worker(bus, handlers, name=name):
            yield


async def test_a_handler_that_workers_do_not_know_yet_waits_for_one_that_does(
    platform: Platform, api: Api
) -> None:
    spec = {
        "pipeline": "rolled",
        "slo_ms": 600_000,
        "nodes": {
            "new": {
                "type": "python",
                "handler": f"{__name__}:of_the_new_release",
                "with": {"email": "{{ input.email }}"},
            }
        },
        "output": "{{ nodes.new.output }}",
    }
    async with python_worker(platform, "old"):
        await asyncio.to_thread(api.post, "/v1/pipelines", spec)
        run_id = (await submit(api, "rolled"))["run_id"]

        async def waits() -> bool:
            (step,) = await steps_of(api, run_id)
            told = step["waits_for"] or {"reason": ""}
            return "No worker that was asked knows the handler" in told["reason"]

        await eventually(waits)
        runs = [run_id] + [(await submit(api, "rolled"))["run_id"] for _ in range(9)]
        async with python_worker(platform, "new", __name__):  # both of them take steps

            async def ended() -> bool:
                found = [await asyncio.to_thread(api.get, f"/v1/runs/{one}") for one in runs]
                assert {one["status"] for one in found} <= {"running", "succeeded"}
                return all(one["output"] == "ada@x.org" for one in found)

            await eventually(ended)
    (step,) = await steps_of(api, run_id)
    assert (step["attempt"], step["attempts"], step["error"]) == (1, [], None)


async def test_types_are_listed_and_stored(platform: Platform, api: Api) -> None:
    async with leads.run(nats_url=platform.nats_url):
        await until_served(api, "crm.wait")
        listed = await asyncio.to_thread(api.get, "/v1/types", limit=500)
        names = [one["type"] for one in listed["types"]]
        assert names == sorted(names)
        assert {"python", "llm", "crm.lookup", "crm.score", "crm.wait"} <= set(names)
        runner = CliRunner()
        table = await asyncio.to_thread(
            runner.invoke, app, ["--data-dir", str(platform.data_dir), "types"]
        )
        assert "crm.lookup" in table.output
        one = await asyncio.to_thread(
            runner.invoke, app, ["--data-dir", str(platform.data_dir), "types", "crm.lookup"]
        )
        assert "Find the person behind a lead." in one.output
    connection = await asyncpg.connect(platform.database_url)

    async def stored() -> bool:
        query = "SELECT count(*) FROM hocket.node_type WHERE name = 'crm.wait'"
        return bool(await connection.fetchval(query))

    await eventually(stored)
    await connection.close()
    with pytest.raises(ApiRefused, match=r"There is no node type `no\.such`"):
        await asyncio.to_thread(api.get, "/v1/types/no.such")


async def test_forged_descriptions_are_not_believed(platform: Platform, api: Api) -> None:
    bus = await Bus.connect(platform.nats_url, name="forger")
    forged = [
        b"",
        b"[" * 10_000,
        b'{"worker": "w", "type": "python"}',
        b'{"worker": "w", "type": "a.b", "config": {"type": "no such"}}',
        b'{"worker": "w", "type": "a.c", "config": {"const": "\\u0000"}}',
        b'{"worker": "w", "type": "a.d", "description": "' + b"x" * 3_000 + b'"}',
        b'{"worker": "w", "type": "a.e", "config": {"enum": ["' + b"x" * 70_000 + b'"]}}',
    ]
    for body in forged:
        bus.publish_nowait(subjects.WORKER_DESCRIBED, body)
    bus.publish_nowait(
        subjects.WORKER_DESCRIBED, b'{"worker": "w", "type": "a.good", "config": {"const": 1e999}}'
    )

    async def heard() -> bool:
        return await shown(api, "a.good") is not None

    await eventually(heard)
    for name in ("a.d", "a.e"):
        assert await shown(api, name) is None
    for name in ("a.b", "a.c", "a.good"):  # without what cannot be used
        (version,) = (await shown(api, name))["versions"]
        assert (version["config"], len(version["faults"])) == (None, 1)
    await bus.close()
