"""Runs use a pipeline as it was written: keys in their order, and numbers as they are."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from support.gateway.mock_upstream import Upstream, running_upstream

FIELDS = ("reasoning", "answer")
"""Written in another order than that of jsonb, which has shorter keys first."""
TEXT = {"type": "string"}
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
FORGET = "UPDATE hocket.pipeline SET document = NULL WHERE name = $1"
"""What is stored of a version that a former release applied."""


def asking(name: str, *fields: str) -> dict[str, Any]:
    """Return a pipeline whose model is to answer with these fields."""
    schema = {"type": "object", "properties": dict.fromkeys(fields, TEXT)}
    node = {"type": "llm", "model": "probe", "prompt": "Why?", "response_schema": schema}
    return {"pipeline": name, "slo_ms": 60_000, "nodes": {"ask": node}}


def racing(name: str, *branches: str, **values: float) -> dict[str, Any]:
    """Return a pipeline with branches whose scores are equal."""
    inside = {one: ECHO | {"with": {"is": one, **values}} for one in branches}
    race = {"type": "race", "pick": "best", "score": "1", "branches": inside}
    return {"pipeline": name, "slo_ms": 60_000, "nodes": {"find": race}}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="hocket-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
async def upstream() -> AsyncIterator[Upstream]:
    async with running_upstream() as running:
        yield running


@pytest.fixture(scope="module")
async def platform(folder: Path, upstream: Upstream) -> AsyncIterator[Platform]:
    backend = {"model": "m", "api_key": "none", "base_url": upstream.base_url}
    config = folder / "hocket.yaml"
    config.write_text(yaml.safe_dump({"models": {"probe": {"backends": [backend]}}}))
    async with Platform(folder / "data", config=config) as running:
        yield running


@pytest.fixture
async def api(platform: Platform) -> Api:
    return platform.api()


async def applied(api: Api, pipeline: dict[str, Any]) -> tuple[int, bool]:
    answer = await asyncio.to_thread(api.post, "/v1/pipelines", pipeline)
    return answer["version"], answer["created"]


async def end_of(api: Api, pipeline: str) -> dict[str, Any]:
    task = {"pipeline": pipeline, "input": {}, "wait_ms": 30_000}
    return dict(await asyncio.to_thread(api.post, "/v1/runs", task))


async def forget_order(platform: Platform, name: str) -> None:
    connection = await asyncpg.connect(platform.database_url)
    await connection.execute(FORGET, name)
    await connection.close()


async def test_a_model_is_asked_for_fields_in_the_written_order(
    platform: Platform, api: Api, upstream: Upstream
) -> None:
    for version, fields in ((1, FIELDS), (2, FIELDS[::-1])):
        assert await applied(api, asking("ask", *fields)) == (version, True)
        assert await applied(api, asking("ask", *fields)) == (version, False)
        end = await end_of(api, "ask")
        assert end["status"] == "succeeded", end
        schema = upstream.bodies[-1]["response_format"]["json_schema"]["schema"]
        assert list(schema["properties"]) == list(fields)


async def test_of_equal_scores_the_branch_written_first_wins(platform: Platform, api: Api) -> None:
    for names in (("longer", "b"), ("b", "longer")):
        await applied(api, racing("race", *names))
        end = await end_of(api, "race")
        assert end["output"]["is"] == names[0], end


async def test_a_large_double_stays_one_and_is_not_the_same_as_an_integer(
    platform: Platform, api: Api
) -> None:
    await applied(api, racing("huge", "long", "b", huge=1e22))
    shown = await asyncio.to_thread(api.get, "/v1/pipelines/huge")
    branches = shown["spec"]["nodes"]["find"]["branches"]
    assert isinstance(branches["b"]["with"]["huge"], float)
    end = await end_of(api, "huge")
    assert isinstance(end["output"]["huge"], float), end
    assert await applied(api, racing("huge", "long", "b", huge=10**22)) == (2, True)


async def test_versions_of_a_former_release_run_in_the_order_of_jsonb(
    platform: Platform, api: Api
) -> None:
    await applied(api, racing("old", "longer", "b"))
    await forget_order(platform, "old")
    assert (await end_of(api, "old"))["output"] == {"is": "b"}
    assert await applied(api, racing("old", "longer", "b")) == (2, True)
    assert (await end_of(api, "old"))["output"] == {"is": "longer"}


async def test_a_version_of_a_former_release_is_the_same_if_it_was_written_in_the_order_of_jsonb(
    platform: Platform, api: Api
) -> None:
    await applied(api, racing("same", "b", "longer"))
    await forget_order(platform, "same")
    assert await applied(api, racing("same", "b", "longer")) == (1, False)


async def test_a_version_of_a_former_release_is_shown_as_it_runs_and_applied_again_is_the_same(
    platform: Platform, api: Api
) -> None:
    nodes = {"longer": ECHO | {"needs": ["z"]}, "z": ECHO, "a": ECHO | {"needs": ["z"]}}
    await applied(api, {"pipeline": "kept", "slo_ms": 60_000, "nodes": nodes})
    await forget_order(platform, "kept")

    environment = {"HOCKET_DATA_DIR": str(platform.data_dir)}
    show = ["pipeline", "show", "kept"]
    shown = await asyncio.to_thread(CliRunner().invoke, app, show, env=environment)
    document = yaml.safe_load(shown.stdout)
    assert list(document["nodes"]) == ["a", "z", "longer"]
    assert await applied(api, document) == (1, False)


async def test_what_is_shown_has_the_written_order_and_applied_again_is_no_new_version(
    platform: Platform, api: Api
) -> None:
    late = {"late": ECHO | {"needs": ["early"]}, "early": ECHO}
    written = {"pipeline": "shown", "slo_ms": 60_000}
    await applied(api, written | {"nodes": late})
    await applied(api, written | {"nodes": dict(reversed(late.items()))})

    environment = {"HOCKET_DATA_DIR": str(platform.data_dir)}
    shown, differing = [
        await asyncio.to_thread(CliRunner().invoke, app, command.split(), env=environment)
        for command in ("pipeline show shown --version 1", "pipeline diff shown 1 2")
    ]
    document = yaml.safe_load(shown.stdout)
    assert list(document["nodes"]) == ["late", "early"]
    assert "nodes (order)" in differing.stdout
    assert await applied(api, document) == (3, True)
    assert await applied(api, document) == (3, False)
