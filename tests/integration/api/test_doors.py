"""One pipeline through every door, and what is wrong refused at each, on the whole platform."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest

from hocket.cli.local.platform import Platform
from hocket.cli.terminal.errors import ApiRefused
from hocket.schemas import ids, subjects
from hocket.schemas.errors import HocketError

BOUND_S = 20
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
PIPELINE = {
    "pipeline": "doors",
    "input": {
        "type": "object",
        "required": ["text"],
        "properties": {"text": {"type": "string"}},
        "additionalProperties": False,
    },
    "nodes": {"a": {**ECHO, "with": {"text": "{{ input.text }}"}}, "b": {**ECHO, "needs": ["a"]}},
}


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    async with Platform(folder / "d") as running:
        await asked(running, "/v1/pipelines", PIPELINE)
        yield running
    shutil.rmtree(folder)


async def asked(platform: Platform, path: str, body: Any = None) -> Any:
    api = platform.api()
    if body is None:
        return await asyncio.to_thread(api.get, path)
    return await asyncio.to_thread(api.post, path, body)


async def told(platform: Platform, body: bytes, headers: dict[str, str], pipeline: str) -> Any:
    """Publish a task with a plain client and return what its inbox hears first."""
    client = await nats.connect(platform.nats_url)
    inbox = client.new_inbox()
    heard = await client.subscribe(inbox)
    headers = {**headers, "Hocket-Reply-To": inbox}
    subject = subjects.task("default", pipeline)
    await client.jetstream().publish(subject, body, headers=headers)
    message = await heard.next_msg(timeout=BOUND_S)
    await client.close()
    return json.loads(message.data)


async def runs(platform: Platform, run_id: str) -> int:
    connection = await asyncpg.connect(platform.database_url)
    count: int = await connection.fetchval(
        "SELECT count(*) FROM hocket.run WHERE run_id = $1 AND finished_at IS NOT NULL", run_id
    )
    await connection.close()
    return count


async def test_every_door_leads_to_the_same_answer(platform: Platform) -> None:
    by_nats = await told(platform, b'{"text": "x"}', {}, "doors")
    by_rest = await asked(
        platform, "/v1/runs", {"pipeline": "doors", "input": {"text": "x"}, "wait_ms": 20_000}
    )
    done = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "hocket",
        *("run", "doors", "-i", "text=x", "--json"),
        env={**os.environ, "HOCKET_DATA_DIR": str(platform.data_dir)},
        stdout=subprocess.PIPE,
    )
    printed, _ = await asyncio.wait_for(done.communicate(), BOUND_S)
    by_cli = json.loads(printed)
    assert by_nats["status"] == by_rest["status"] == "succeeded"
    assert by_nats["output"] == by_rest["output"]
    assert by_nats["output"] in (by_cli.get("output"), by_cli.get("run", {}).get("output"))


async def test_a_bare_body_from_a_five_line_client_runs(platform: Platform) -> None:
    client = await nats.connect(platform.nats_url)
    ack = await client.jetstream().publish("hocket.task.default.doors", b'{"text": "bare"}')
    await client.close()
    assert ack.stream == "TASKS"
    async with asyncio.timeout(BOUND_S):
        found: list[Any] = []
        while not found:
            page = await asked(platform, "/v1/runs?pipeline=doors&limit=50")
            for run in page["runs"]:
                full = await asked(platform, f"/v1/runs/{run['run_id']}")
                if full["input"] == {"text": "bare"} and full["status"] == "succeeded":
                    found.append(full)


@pytest.mark.parametrize(
    "headers",
    [
        {"Hocket-Idempotency-Key": "key-1"},
        {"ce-id": "42", "ce-source": "shop", "ce-specversion": "1.0", "ce-type": "t"},
        {"Nats-Msg-Id": "message-1"},
    ],
    ids=["header", "cloudevent", "message id"],
)
async def test_the_same_key_is_the_same_run_beyond_the_brokers_memory(
    platform: Platform, headers: dict[str, str]
) -> None:
    first = await told(platform, b'{"text": "k"}', headers, "doors")
    if "Nats-Msg-Id" in headers:
        # the broker drops a repeat by itself: defeat it by naming the key another way
        again_headers = {"Hocket-Idempotency-Key": headers["Nats-Msg-Id"]}
    else:
        again_headers = headers | {"Nats-Msg-Id": f"fresh-{first['run_id']}"}
    again = await told(platform, b'{"text": "k"}', again_headers, "doors")
    assert again["run_id"] == first["run_id"]
    assert again["finished_at_ms"] == pytest.approx(first["finished_at_ms"], abs=0.01)
    assert await runs(platform, first["run_id"]) == 1


async def test_a_key_by_rest_names_the_run_by_nats(platform: Platform) -> None:
    body = {"pipeline": "doors", "input": {"text": "r"}, "idempotency_key": "k2", "wait_ms": 20_000}
    by_rest = await asked(platform, "/v1/runs", body)
    by_nats = await told(platform, b'{"text": "r"}', {"Hocket-Idempotency-Key": "k2"}, "doors")
    assert by_rest["run_id"] == by_nats["run_id"] == ids.run_id("default", "k2")


PARENT = {
    "pipeline": "labelled",
    "nodes": {"inner": {"type": "pipeline", "pipeline": "doors", "with": {"text": "sub"}}},
}


async def test_labels_by_every_door_are_kept_inherited_and_found(platform: Platform) -> None:
    await asked(platform, "/v1/pipelines", PARENT)
    labels = {"customer": "Müller & Söhne", "door": "rest"}
    body = {"pipeline": "labelled", "labels": labels, "wait_ms": 20_000}
    by_rest = (await asked(platform, "/v1/runs", body))["run_id"]
    by_nats = (await told(platform, b"{}", {"Hocket-Labels": "door=nats"}, "labelled"))["run_id"]
    by_event = (await told(platform, b"{}", {"ce-labels": "door=event"}, "labelled"))["run_id"]
    again = (await asked(platform, f"/v1/runs/{by_rest}/rerun", {"wait_ms": 20_000}))["run_id"]
    cli = Path(sys.executable).parent / "hocket"
    environment = {**os.environ, "HOCKET_DATA_DIR": str(platform.data_dir)}

    async def said(*arguments: str) -> Any:
        done = await asyncio.create_subprocess_exec(
            cli, *arguments, "--json", env=environment, stdout=subprocess.PIPE
        )
        return json.loads((await asyncio.wait_for(done.communicate(), BOUND_S))[0])

    end = await said("run", "labelled", "--label", "door=cli", "--label", "customer=it, too = b")
    by_cli = end["run_id"]

    found = {
        door: {run["run_id"]: run["pipeline"] for run in page["runs"]}
        for door in ("rest", "nats", "event", "cli")
        for page in [await asked(platform, f"/v1/runs?labels=door%3D{door}&limit=50")]
    }
    for door, ids_of in (
        ("rest", {by_rest, again}),
        ("nats", {by_nats}),
        ("event", {by_event}),
        ("cli", {by_cli}),
    ):
        assert {one for one, name in found[door].items() if name == "labelled"} == ids_of
        # a sub-run of each, but of the repeat, which takes the step over
        assert list(found[door].values()).count("doors") >= 1, door
    assert (await asked(platform, f"/v1/runs/{again}"))["labels"] == labels
    wanted = ("--label", "customer=it, too = b", "--label", "door=cli")
    listed = await said("runs", "list", *wanted)
    assert {one["run_id"] for one in listed} >= {by_cli}
    assert {one["labels"]["door"] for one in listed} == {"cli"}
    assert not (await asked(platform, "/v1/runs?labels=door%3Dnone"))["runs"]
    with pytest.raises(ApiRefused) as refused:
        await asked(platform, "/v1/runs", {"pipeline": "labelled", "labels": {"a b": "c"}})
    assert "labels" in str(refused.value.info().field)
    body = {"pipeline": "labelled", "labels": {"hocket.key": "0123456789ab"}}
    with pytest.raises(ApiRefused) as refused:
        await asked(platform, "/v1/runs", body)
    assert "reserved for the platform" in str(refused.value)


BAD_PIPELINES = {
    "cycle": ({"a": ECHO | {"needs": ["b"]}, "b": ECHO | {"needs": ["a"]}}, "a -> b -> a"),
    "unknown node type": ({"a": {"type": "magic"}}, "nodes.a.type"),
    "unknown model": ({"a": {"type": "llm", "model": "nobody", "prompt": "?"}}, "nodes.a.model"),
    "template": ({"a": ECHO | {"with": {"v": "{{ nodes.zz.output }}"}}}, "nodes.zz"),
    "unknown field": ({"a": ECHO | {"retires": 3}}, "nodes.a.retires"),
}


@pytest.mark.parametrize("kind", BAD_PIPELINES)
async def test_a_bad_pipeline_is_refused_with_the_field(platform: Platform, kind: str) -> None:
    nodes, named = BAD_PIPELINES[kind]
    with pytest.raises(HocketError) as refused:
        await asked(platform, "/v1/pipelines", {"pipeline": "bad", "nodes": nodes})
    assert named in str(refused.value)


BAD_TASKS = {
    "schema": ("doors", b'{"text": 7}', "input.text"),
    "missing field": ("doors", b"{}", "'text' is a required property"),
    "malformed": ("doors", b'{"text": ', "not a JSON object"),
    "no object": ("doors", b"[1]", "not a JSON object"),
    "unknown pipeline": ("nowhere", b"{}", "pipeline apply"),
    "too large": ("doors", b'{"text": "' + b"x" * 600_000 + b'"}', "limit"),
}


@pytest.mark.parametrize("kind", BAD_TASKS)
async def test_a_bad_task_by_nats_is_answered_buried_and_in_nobodys_way(
    platform: Platform, kind: str
) -> None:
    pipeline, body, named = BAD_TASKS[kind]
    rejected = await told(platform, body, {}, pipeline)
    assert rejected["status"] == "rejected"
    assert named in rejected["error"]["message"]
    letters = (await asked(platform, "/v1/dead-letters"))["dead_letters"]
    assert letters[0]["subject"] == subjects.task("default", pipeline)
    good = await told(platform, b'{"text": "good"}', {}, "doors")
    assert good["status"] == "succeeded"


@pytest.mark.parametrize("kind", ["schema", "missing field", "unknown pipeline", "too large"])
async def test_a_bad_task_by_rest_is_refused_at_once(platform: Platform, kind: str) -> None:
    pipeline, body, named = BAD_TASKS[kind]
    with pytest.raises(ApiRefused) as refused:
        await asked(platform, "/v1/runs", {"pipeline": pipeline, "input": json.loads(body)})
    assert named.split(".")[-1] in str(refused.value)


async def test_a_dead_letter_runs_when_its_cause_is_mended_and_it_is_redriven(
    platform: Platform,
) -> None:
    headers = {"Hocket-Idempotency-Key": "late-1"}
    rejected = await told(platform, b'{"text": "late"}', headers, "mended")
    assert rejected["error"]["code"] == "pipeline_unknown"
    await asked(platform, "/v1/pipelines", PIPELINE | {"pipeline": "mended"})
    letters = (await asked(platform, "/v1/dead-letters"))["dead_letters"]
    letter = next(x for x in letters if x["subject"].endswith(".mended"))
    await asked(platform, f"/v1/dead-letters/{letter['seq']}/redrive", {})
    run_id = ids.run_id("default", "late-1")
    async with asyncio.timeout(BOUND_S):
        while await runs(platform, run_id) == 0:  # noqa: ASYNC110 (told only through Postgres)
            await asyncio.sleep(0.05)
