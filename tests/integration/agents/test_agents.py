"""Agents on a real platform: results of any size, a worker that is killed, and their rounds as steps."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.emulator.configuration import parse
from hocket.emulator.running import running

BOUND_S = 60.0
CODE = '''
import asyncio, json, os, pathlib
from hocket.schemas.messages import CallRequest, Completion

FOLDER = pathlib.Path(__file__).parent
CHARS = 900_000


async def model(request: CallRequest) -> Completion:
    """Ask for four large texts, then for the one whose worker is killed, then say what came."""
    given = [one for one in request.messages if one.role == "tool"]
    (FOLDER / "asked").open("a").write("x")
    if len(given) == 0:
        return calls(*[("large", {"letter": letter}) for letter in "abcd"])
    if len(given) == 4:
        return calls(("deadly", {}))
    sizes = [len(one.content) for one in given]
    return Completion(text=json.dumps(sizes), input_tokens=10, output_tokens=5)


NOBODYS = {"$blob": "0" * 64, "size": 10, "type": "text"}


async def reader(request: CallRequest) -> Completion:
    """Ask for much at once and for what looks like a reference, then say how it came."""
    given = [one.content for one in request.messages if one.role == "tool"]
    if given:
        return Completion(text=json.dumps([[len(one), one[:200]] for one in given]))
    page = ("page", {"of": NOBODYS})
    return calls(*[("half", {})] * 3, *[("huge", {})] * 8, ("page", {}), page)


async def half(given):
    return "h" * 400_000


async def huge(given):
    return {"body": "g" * 10_000_000}


async def page(given):
    return {"says": NOBODYS}


def calls(*made):
    told = [
        {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for name, given in made
    ]
    return Completion(tool_calls=tuple(told), input_tokens=10, output_tokens=5)


async def tide(given):
    return {"port": given["port"], "metres": 11.5}


async def large(given):
    (FOLDER / "looked-up").open("a").write(given["letter"])
    return given["letter"] * CHARS


async def deadly(given):
    """End the worker that runs it, the first time."""
    died = FOLDER / "died"
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), 9)
    return "alive"
'''
TOOL = {"parameters": {"type": "object"}}
PIPELINE: dict[str, Any] = {
    "pipeline": "large",
    "slo_ms": 60_000,
    "nodes": {
        "ask": {
            "type": "agent",
            "model": "talker",
            "prompt": "Read all of it.",
            "max_result_chars": 1_000_000,
            "tools": {
                "large": TOOL | {"node": {"type": "python", "handler": "bulky:large"}},
                "deadly": TOOL | {"node": {"type": "python", "handler": "bulky:deadly"}},
            },
        }
    },
    "output": "{{ nodes.ask.output.text }}",
}


READER: dict[str, Any] = {
    "pipeline": "reader",
    "slo_ms": 60_000,
    "nodes": {
        "ask": {
            "type": "agent",
            "model": "reader",
            "prompt": "Read all of it.",
            "max_calls": 13,
            "tools": {
                name: TOOL | {"node": {"type": "python", "handler": f"bulky:{name}"}}
                for name in ("half", "huge", "page")
            },
        }
    },
    "output": "{{ nodes.ask.output.text }}",
}


ENGINE = {
    "model": "llm",
    "decode_tokens_per_s": 1e6,
    "batch_tokens_per_s": 1e6,
    "prefill_tokens_per_s": 1e6,
}


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    """A platform with a model of its own, and an engine behind either API that providers have."""
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    (folder / "bulky.py").write_text(CODE)
    config = folder / "hocket.yaml"
    async with running(parse({"engines": [{"port": 0, "profile": ENGINE}]})) as (engine,):
        key = {"model": "llm", "api_key": "none"}
        backends = {
            "talker": {"function": "bulky:model", "prices": {"request_usd": "0.01"}},
            "reader": {"function": "bulky:reader"},
            "openai": key | {"base_url": f"{engine.url}/v1"},
            "anthropic": key | {"base_url": engine.url, "kind": "anthropic"},
        }
        sections = {
            "models": {name: {"backends": [one]} for name, one in backends.items()},
            "node_types": {"python": {"modules": ["bulky"]}},
        }
        config.write_text(json.dumps(sections))
        environment = {"PYTHONPATH": str(folder)}
        async with Platform(folder / "d", env=environment, config=config) as platform:
            yield platform
    shutil.rmtree(folder)


async def ended(api: Api, run_id: str) -> dict[str, Any]:
    async with asyncio.timeout(BOUND_S):
        while True:
            run: dict[str, Any] = await asyncio.to_thread(api.get, f"/v1/runs/{run_id}")
            if run["finished_at"] is not None:
                return run
            await asyncio.sleep(0.05)


async def test_large_results_and_a_killed_worker_cost_no_call_twice(platform: Platform) -> None:
    api, folder = platform.api(), platform.data_dir.parent
    await asyncio.to_thread(api.post, "/v1/pipelines", PIPELINE)
    task = {"pipeline": "large", "input": {}}
    accepted = await asyncio.to_thread(api.post, "/v1/runs", task)
    run = await ended(api, accepted["run_id"])
    assert run["status"] == "succeeded", run["error"]
    *large, alive = json.loads(run["output"])
    assert alive == 5
    assert len(large) == 4
    assert 200_000 < sum(large) < 393_216
    assert (folder / "asked").read_text() == "xxx"
    assert sorted((folder / "looked-up").read_text()) == list("abcd")
    assert (folder / "died").exists()
    shown = await asyncio.to_thread(api.get, f"/v1/runs/{accepted['run_id']}/steps")
    keys = {step["step"] for step in shown["steps"]}
    assert {"ask#1", "ask#1/large_4", "ask#2", "ask#2/deadly_1", "ask#3"} <= keys
    assert run["spent_usd"] == "0.03"


async def test_whatever_tools_return_at_once_the_model_is_told_the_beginning_of_it(
    platform: Platform,
) -> None:
    api = platform.api()
    await asyncio.to_thread(api.post, "/v1/pipelines", READER)
    task = {"pipeline": "reader", "input": {}}
    accepted = await asyncio.to_thread(api.post, "/v1/runs", task)
    run = await ended(api, accepted["run_id"])
    assert run["status"] == "succeeded", run["error"]
    told = json.loads(run["output"])
    assert [text[:3] for _, text in told[:11]] == ["hhh"] * 3 + ['{"b'] * 8
    assert all(19_000 < chars < 20_100 for chars, _ in told[:11])
    nobodys = {"$blob": "0" * 64, "size": 10, "type": "text"}
    assert json.loads(told[11][1]) == {"says": nobodys}, "it is data"
    assert told[12][1].startswith("Error (blob_unresolved): `input.of` refers to the blob")


PORT = {"type": "string", "enum": ["Brest"]}
SAILING: dict[str, Any] = {
    "type": "agent",
    "prompt": "How high is the tide in Brest?",
    "system": "You know the sea.",
    "max_tokens": 200,
    "tools": {
        "tide": {
            "description": "The tide at a port.",
            "parameters": {"type": "object", "required": ["port"], "properties": {"port": PORT}},
            "node": {"type": "python", "handler": "bulky:tide"},
        }
    },
}
DATA = {"type": "object", "required": ["high"], "properties": {"high": {"type": "boolean"}}}


@pytest.mark.parametrize("model", ["openai", "anthropic"])
async def test_an_agent_speaks_the_apis_of_providers(platform: Platform, model: str) -> None:
    api = platform.api()
    pipeline = {"pipeline": f"sail-{model}", "nodes": {}, "output": "{{ nodes }}"}
    nodes = {
        "free": SAILING | {"model": model},
        "structured": SAILING | {"model": model, "response_schema": DATA, "max_rounds": 2},
        "hurried": SAILING | {"model": model, "max_rounds": 1},
    }
    output = {name: f"{{{{ nodes.{name}.output }}}}" for name in nodes}
    await asyncio.to_thread(
        api.post, "/v1/pipelines", pipeline | {"nodes": nodes, "output": output}
    )
    task = {"pipeline": f"sail-{model}", "input": {}}
    accepted = await asyncio.to_thread(api.post, "/v1/runs", task)
    run = await ended(api, accepted["run_id"])
    assert run["status"] == "succeeded", run["error"]
    free, structured, hurried = (run["output"][name] for name in nodes)
    assert (free["rounds"], free["tool_calls"], bool(free["text"])) == (2, 1, True)
    assert (structured["rounds"], structured["tool_calls"]) == (2, 1)
    assert isinstance(structured["data"]["high"], bool)
    assert (hurried["rounds"], hurried["tool_calls"], bool(hurried["text"])) == (1, 0, True)
    assert free["usage"]["input_tokens"] > 0
