"""Secrets that are planted in a running platform are where they must be and nowhere else."""

import asyncio
import json
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from hocket.cli.local.platform import Platform
from support.places import HANDLERS

BOUND_S = 30
MODEL_KEY = "planted-model-key-4711"
PASSWORD = "planted-password-4713"
DATABASE_URL = f"postgresql://reader:{PASSWORD}@127.0.0.1:1/shop"
KEPT_IN = {"password", "nats.conf", "url", "platform.json", "capability.key"}
"""Files whose purpose is to hold a secret; only their user may read them."""
CONFIG = """
models:
  writer:
    backends:
      - {base_url: "http://127.0.0.1:9/v1", model: m, api_key: os.environ/PLANTED_KEY}
  planner: {backends: [{function: "secret_handlers:plan"}]}
databases: {shop: {url: "%s"}}
"""


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    config = folder / "hocket.yaml"
    config.write_text(CONFIG % DATABASE_URL)
    environment = {
        "PYTHONPATH": HANDLERS,
        "PLANTED_KEY": MODEL_KEY,
    }
    async with Platform(
        folder / "d", env=environment, config=config, handlers=("secret_handlers",)
    ) as running:
        yield running
    shutil.rmtree(folder)


def secrets(platform: Platform) -> list[str]:
    urls = (platform.nats_url, platform.database_url)
    passwords = [urlsplit(url).password or "" for url in urls]
    assert all(passwords)
    passwords.append((platform.data_dir / "capability.key").read_text().strip())
    return [MODEL_KEY, PASSWORD, *passwords]


async def run(platform: Platform, nodes: dict[str, Any], name: str) -> Any:
    api = platform.api()
    await asyncio.to_thread(api.post, "/v1/pipelines", {"pipeline": name, "nodes": nodes})
    body = {"pipeline": name, "input": {}, "wait_ms": BOUND_S * 1000}
    return await asyncio.to_thread(api.post, "/v1/runs", body)


def python(handler: str, **given: Any) -> dict[str, Any]:
    return {"type": "python", "handler": f"secret_handlers:{handler}", "with": given}


def command_lines() -> str:
    """Return what `ps` shows of all processes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found.append((entry / "cmdline").read_bytes().decode("utf-8", "replace"))
    return "\n".join(found)


async def test_a_function_finds_no_secret_in_any_environment(platform: Platform) -> None:
    end = await run(platform, {"a": python("look")}, "look")
    assert end["status"] == "succeeded"
    seen = end["output"]
    assert len(seen) >= 6  # this process, and those beside it
    assert "HOCKET_DATA_DIR" in seen["environ"]
    for secret in secrets(platform):
        assert [place for place, text in seen.items() if secret in text] == []


async def test_secrets_are_in_no_error_log_row_or_file_that_others_can_read(
    platform: Platform,
) -> None:
    nodes = {
        "log": python("log", url="nats://user:" + "{{ 'planted' ~ '-password-4713' }}" + "@h:1"),
        "tell": python("tell", url="{{ 'postgresql://u:planted' ~ '-password-4713@h/db' }}"),
        "call": {"type": "llm", "model": "writer", "prompt": "hi"},
        "ask": {"type": "sql", "database": "shop", "query": "SELECT 1"},
    }
    ends = {
        name: await run(platform, {name: node | {"optional": False}}, name)
        for name, node in nodes.items()
    }
    assert ends["log"]["status"] == "succeeded"
    for name in ("tell", "call", "ask"):
        assert ends[name]["status"] == "failed"
        assert ends[name]["error"]["code"]
    assert "postgresql://u:***@h/db" in ends["tell"]["error"]["message"]
    database = await asyncpg.connect(platform.database_url)
    errors = json.dumps(
        [
            dict(row)
            for row in await database.fetch(
                "SELECT error::text, run_id FROM hocket.step UNION ALL"
                " SELECT error::text, run_id FROM hocket.run"
            )
        ]
    )
    await database.close()
    processes = command_lines()
    logs = {path.name: path.read_text() for path in platform.log_dir.iterdir()}
    assert "connecting to nats://user:***@h:1" in logs["worker.log"]
    for secret in secrets(platform):
        assert secret not in errors
        assert secret not in processes
        assert secret not in json.dumps(ends)
        assert [name for name, text in logs.items() if secret in text] == []


SHELL = {"type": "python", "handler": "subprocess:getoutput", "with": {"args": "MARK"}}
ECHO = {"type": "python", "handler": "secret_handlers:echo"}


@pytest.mark.parametrize(
    "node",
    [
        SHELL,
        {"type": "graph", "nodes": {"x": SHELL}},
        ECHO | {"fallback": [{"node": SHELL}]},
        {
            "type": "planning",
            "model": "planner",
            "prompt": json.dumps({"nodes": {"a": SHELL}}),
            "emit": {"types": ["python"], "handlers": ["subprocess:getoutput"]},
        },
        {"type": "python", "handler": "secret_handlers:os.system"},
    ],
)
async def test_a_model_s_answer_is_no_shell(
    platform: Platform, tmp_path: Path, node: dict[str, Any]
) -> None:
    mark = tmp_path / "mark"
    answer = json.dumps({"nodes": {"a": node}}).replace("MARK", f"touch {mark}")
    policy = {"types": ["python", "graph", "planning"], "max_depth": 3, "models": ["planner"]}
    planner = {
        "type": "planning",
        "model": "planner",
        "with": {"question": "{{ input.question }}"},
        "emit": policy | {"handlers": ["secret_handlers:echo"]},
    }
    api = platform.api()
    document = {"pipeline": "planned", "nodes": {"p": planner}}
    await asyncio.to_thread(api.post, "/v1/pipelines", document)
    body = {"pipeline": "planned", "input": {"question": answer}, "wait_ms": BOUND_S * 1000}
    end = await asyncio.to_thread(api.post, "/v1/runs", body)
    assert (end["status"], end["error"]["code"]) == ("failed", "plan_refused")
    assert not mark.exists()


async def test_a_model_s_answer_is_no_program(platform: Platform) -> None:
    texts = ["{{ 6 * 7 }}", "{{ input.question | upper }}", "{% for x in range(9) %}x{% endfor %}"]
    node = ECHO | {"with": {"texts": texts, "own": "{{ input.question }}"}}
    planner = {
        "type": "planning",
        "model": "planner",
        "with": {"question": "{{ input.question }}"},
        "emit": {"types": ["python"], "handlers": ["secret_handlers:echo"]},
    }
    api = platform.api()
    document = {"pipeline": "data", "nodes": {"p": planner}}
    await asyncio.to_thread(api.post, "/v1/pipelines", document)
    question = json.dumps({"nodes": {"a": node}})
    body = {"pipeline": "data", "input": {"question": question}, "wait_ms": BOUND_S * 1000}
    end = await asyncio.to_thread(api.post, "/v1/runs", body)
    assert end["output"] == {"texts": texts, "own": question}


async def test_files_that_hold_secrets_are_for_their_user_alone(platform: Platform) -> None:
    planted = [secret.encode() for secret in secrets(platform) if secret != PASSWORD]
    found = set()
    for folder, _, files in os.walk(platform.data_dir):  # with the stores of NATS and Postgres
        for name in files:
            path = Path(folder) / name
            try:
                content = path.read_bytes()
            except OSError:
                continue  # it was removed meanwhile
            if any(secret in content for secret in planted):
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
                found.add(name)
    assert found == KEPT_IN
    for path in platform.log_dir.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(platform.log_dir.stat().st_mode) == 0o700
