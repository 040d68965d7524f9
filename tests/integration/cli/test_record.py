"""Answers of a real run are recorded, and a play with them comes to the same end."""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.local.platform import Platform
from hocket.cli.remote import recording
from hocket.cli.remote.recording import CannotRecord, NothingKept, recording_of
from hocket.testing import Play, PromptChanged

CODE = '''
import json

from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import CallRequest, Completion

asked = []


class Busy(HocketError):
    """The model is busy."""

    code = "busy"
    error_class = ErrorClass.UNAVAILABLE


async def model(request: CallRequest) -> Completion:
    """Fail the first time, then call a tool, then say what it gave."""
    asked.append(request)
    if len(asked) == 1:
        raise Busy
    last = request.messages[-1]
    if last.role == "tool":
        return Completion(text=f"Found {last.content}", input_tokens=30, output_tokens=6)
    function = {"name": "look", "arguments": json.dumps({"word": "lamp"})}
    call = {"id": "c", "type": "function", "function": function}
    return Completion(tool_calls=(call,), input_tokens=20, output_tokens=4)


async def namer(request: CallRequest) -> Completion:
    return Completion(text=request.messages[-1].content.title(), input_tokens=5, output_tokens=2)


async def look(given):
    return given["word"] + "s"
'''
BELOW: dict[str, Any] = {
    "pipeline": "below",
    "nodes": {
        "name": {
            "type": "llm",
            "model": "namer",
            "prompt": "{{ input.text }}",
            "with": {"text": "{{ input.text }}"},
        }
    },
    "output": "{{ nodes.name.output.text }}",
}
ABOVE: dict[str, Any] = {
    "pipeline": "above",
    "nodes": {
        "ask": {
            "type": "agent",
            "model": "talker",
            "prompt": "{{ input.question }}",
            "with": {"question": "{{ input.question }}"},
            "retry": {"max_attempts": 3, "backoff_ms": 1},
            "tools": {
                "look": {
                    "parameters": {"type": "object"},
                    "node": {"type": "python", "handler": "recordable:look"},
                }
            },
        },
        "sub": {
            "type": "pipeline",
            "pipeline": "below",
            "with": {"text": "{{ nodes.ask.output.text }}"},
        },
    },
    "output": "{{ nodes.sub.output }}",
}


@pytest.fixture
async def platform(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    (folder / "recordable.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(folder))
    config = folder / "hocket.yaml"
    priced = {"prices": {"request_usd": "0.01"}}
    sections = {
        "models": {
            "talker": {"backends": [priced | {"function": "recordable:model"}]},
            "namer": {"backends": [priced | {"function": "recordable:namer"}]},
        },
        "node_types": {"python": {"modules": ["recordable"]}},
        "content": {"pipelines": {"above": "full", "below": "full"}},
    }
    config.write_text(json.dumps(sections))
    environment = {"PYTHONPATH": str(folder)}
    async with Platform(folder / "d", env=environment, config=config) as platform:
        yield platform
    sys.modules.pop("recordable", None)
    shutil.rmtree(folder)


def hocket(platform: Platform, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, words, env={"HOCKET_DATA_DIR": str(platform.data_dir)})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


async def test_a_play_with_recorded_answers_ends_as_the_run_did(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, file = platform.api(), platform.data_dir.parent / "answers.json"
    unkept = BELOW | {"pipeline": "unkept"}
    for pipeline in (BELOW, ABOVE, unkept):
        await asyncio.to_thread(api.post, "/v1/pipelines", pipeline)
    given = {"question": "What is there?"}
    task = {"pipeline": "above", "input": given, "wait_ms": 30_000}
    run = await asyncio.to_thread(api.post, "/v1/runs", task)
    assert run["output"] == "Found Lamps", run
    words = ("runs", "record", run["run_id"], "--to", str(file))
    code, said = await asyncio.to_thread(hocket, platform, *words)
    assert (code, "4 answers" in said) == (0, True), said

    play = Play(ABOVE, pipelines=[BELOW])
    play.recorded(file)
    played = play.run(given)
    assert (played.status, played.output) == ("succeeded", "Found Lamps"), str(played)
    assert played.steps["ask#1"].attempts == 2
    refused = played.calls[0].reply.error
    assert (refused and refused.code) == "busy"
    assert played.cost_usd == Decimal(run["spent_usd"])
    with pytest.raises(PromptChanged):
        play.run({"question": "What is here?"})

    whole = await asyncio.to_thread(recording_of, api, run["run_id"])
    monkeypatch.setattr(recording, "MAX_PAGE", 1)
    monkeypatch.setattr(recording, "CONTENT_PAGE", 1)
    assert await asyncio.to_thread(recording_of, api, run["run_id"]) == whole
    monkeypatch.setattr(recording, "MAX_CALLS", 3)
    with pytest.raises(CannotRecord, match="it has more than 3 model calls"):
        await asyncio.to_thread(recording_of, api, run["run_id"])

    task = {"pipeline": "unkept", "input": {"text": "a"}, "wait_ms": 30_000}
    other = await asyncio.to_thread(api.post, "/v1/runs", task)
    with pytest.raises(NothingKept, match=r"1 of 1 model calls of run `.*` have no stored answer"):
        await asyncio.to_thread(recording_of, api, other["run_id"])
