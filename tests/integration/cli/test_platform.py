"""The command line against a running platform: real servers, real `ledger` and `admin` processes. A
test answers tasks in the coordinator's place."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from hocket.cli.local.platform import Platform
from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.process.platform_facts import read_facts
from hocket.schemas import ids, subjects
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import RunFinished, StepChanged, TaskRejected
from support.shared.commands import run_hocket

WAIT_S = 30.0
NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)

PIPELINE = """
pipeline: greet
description: Say hello
input: {type: object, required: [name], properties: {name: {type: string}}}
nodes:
  hello: {type: python, handler: "greet:hello", with: {name: "{{ input.name }}"}}
  again: {type: python, handler: "greet:hello", needs: [hello]}
"""


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    try:
        async with Platform(folder, services=("ledger", "admin"), handlers=("greet",)) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@dataclass
class Done:
    code: int
    out: str
    err: str


async def hocket(platform: Platform, *arguments: str, given: str = "") -> Done:
    env = {**os.environ, "HOCKET_DATA_DIR": str(platform.data_dir), "COLUMNS": "120"}
    done = await asyncio.to_thread(run_hocket, *arguments, env=env, given=given, timeout_s=WAIT_S)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
async def client(platform: Platform) -> AsyncIterator[Client]:
    connection = await nats.connect(platform.nats_url, connect_timeout=5)
    yield connection
    await connection.close()


def finished(run_id: str, **fields: Any) -> bytes:
    end: dict[str, Any] = {
        "run_id": run_id,
        "tenant": "default",
        "pipeline": "greet",
        "version": 1,
        "status": "succeeded",
        "accepted_at_ms": 1000.0,
        "finished_at_ms": 1250.0,
        "deadline_at_ms": 6000.0,
    }
    return RunFinished(**{**end, **fields}).model_dump_json().encode()


async def test_a_pipeline_is_applied_listed_and_shown_in_the_order_it_runs(
    platform: Platform,
) -> None:
    applied = await hocket(platform, "pipeline", "apply", "-", given=PIPELINE)
    again = await hocket(platform, "pipeline", "apply", "-", given=PIPELINE)
    listed = await hocket(platform, "pipeline", "list")
    shown = await hocket(platform, "pipeline", "show", "greet")

    assert applied.out == "pipeline greet version 1 applied\n"
    assert again.out == "pipeline greet version 1 unchanged\n"
    assert "Say hello" in listed.out
    assert shown.out.index("hello:") < shown.out.index("again:")
    assert "slo_ms" not in shown.out


async def test_a_pipeline_that_is_not_there_is_exit_code_2(platform: Platform) -> None:
    shown = await hocket(platform, "pipeline", "show", "nobody")

    assert shown.code == 2
    assert shown.err.startswith("Error: There is no pipeline `nobody`")


async def test_run_prints_the_output_that_the_reply_brings(
    platform: Platform, client: Client
) -> None:
    seen: list[Msg] = []

    async def answer(task: Msg) -> None:
        seen.append(task)
        headers = task.headers or {}
        run_id = ids.run_id("default", headers["Hocket-Idempotency-Key"])
        step = StepChanged(
            run_id=run_id,
            step="hello",
            node="hello",
            type="python",
            state="succeeded",
            attempt=1,
            at_ms=1.0,
        )
        await client.publish(headers["Hocket-Reply-To"], step.model_dump_json().encode())
        await client.publish(
            headers["Hocket-Reply-To"], finished(run_id, output={"greeting": "Hello, Ada"})
        )

    await client.subscribe("hocket.task.default.hello-run", cb=answer)
    await client.flush()

    done = await hocket(
        platform, "run", "hello-run", "-i", "name=Ada", "--deadline-ms", "900", "--json"
    )

    assert done.code == 0, done.err
    assert json.loads(done.out)["output"] == {"greeting": "Hello, Ada"}
    assert json.loads(seen[0].data) == {"name": "Ada"}
    headers = seen[0].headers or {}
    assert headers["Hocket-Deadline-Ms"] == "900.0"
    assert headers["Hocket-Progress"] == "1"


async def test_run_says_why_a_task_was_refused_and_ends_with_2(
    platform: Platform, client: Client
) -> None:
    async def refuse(task: Msg) -> None:
        error = ErrorInfo(
            code="invalid_input",
            message="`input.name` is not valid: it is missing.",
            error_class="invalid",
        )
        rejected = TaskRejected(tenant="default", pipeline="refused-run", error=error)
        reply = (task.headers or {})["Hocket-Reply-To"]
        await client.publish(reply, rejected.model_dump_json().encode())

    await client.subscribe("hocket.task.default.refused-run", cb=refuse)
    await client.flush()

    for options in ((), ("--no-wait",)):
        done = await hocket(platform, "run", "refused-run", *options)

        assert (done.code, done.out) == (2, "")
        assert done.err.splitlines()[-1] == "Error: `input.name` is not valid: it is missing."


@pytest.mark.parametrize("is_terminal", [False, True])
async def test_a_run_that_is_no_longer_waited_for_is_named(
    platform: Platform, is_terminal: bool
) -> None:
    key = f"interrupted-{is_terminal}"
    run_id = ids.run_id("default", key)
    paths = os.pathsep.join(one for one in sys.path if one)
    env = {**os.environ, "HOCKET_DATA_DIR": str(platform.data_dir), "PYTHONPATH": paths}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hocket.cli", "run", "greet", "-i", "name=Ada", "--key", key),
        env=env | ({"TTY_COMPATIBLE": "1"} if is_terminal else {}),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(WAIT_S):
        said = await process.stderr.readuntil(run_id.encode())
        await asyncio.sleep(0.5)  # it waits
        process.send_signal(signal.SIGINT)
        rest = (await process.stderr.read()).decode()
        assert await process.wait() == 130

    assert (b"the task of run " in said) is not is_terminal
    assert (f"run {run_id} goes on: hocket runs show {run_id}" in rest) is is_terminal


async def test_run_finds_an_ended_run_in_the_database_when_the_reply_is_lost(
    platform: Platform,
) -> None:
    run_id = ids.run_id("default", "lost")
    await _insert_run(platform, run_id)

    done = await hocket(platform, "run", "greet", "-i", "name=Ada", "--key", "lost")

    assert done.code == 0, done.err
    assert '"greeting": "Hello, Ada"' in done.out
    assert f"run {run_id}  greet v1  succeeded in 250 ms" in done.out


async def test_run_without_waiting_prints_the_run_id_only(platform: Platform) -> None:
    run_id = ids.run_id("default", "k7")
    await _insert_run(platform, run_id)

    done = await hocket(platform, "run", "greet", "-i", "name=Ada", "--no-wait", "--key", "k7")

    assert (done.code, done.out, done.err) == (0, run_id + "\n", "")


async def test_run_without_waiting_says_that_no_one_has_taken_the_task(platform: Platform) -> None:
    done = await hocket(platform, "run", "greet", "-i", "name=Ada", "--no-wait", "--key", "k8")

    assert (done.code, done.out) == (0, ids.run_id("default", "k8") + "\n")
    assert done.err == "The task is stored; no coordinator has picked it up yet.\n"


async def test_show_draws_the_timeline_of_a_run(platform: Platform) -> None:
    run_id = ids.run_id("default", "shown")
    await _insert_run(platform, run_id)

    shown = await hocket(platform, "runs", "show", run_id, "--width", "80")
    as_json = await hocket(platform, "runs", "show", run_id, "--json")
    listed = await hocket(platform, "runs", "list", "--status", "succeeded")

    lines = shown.out.splitlines()
    assert lines[0] == f"run {run_id}  greet v1  succeeded in 250 ms, 4.75 s before its deadline"
    assert lines[2].split() == [
        "STEP",
        "STATE",
        "TRY",
        "TIME",
        "DEADLINE",
        "SLACK",
        "0",
        "250",
        "ms",
    ]
    assert lines[3].startswith("hello  succeeded    1  200 ms    5.00 s  4.50 s  ")
    assert "█" in lines[3]
    assert json.loads(as_json.out)["steps"][0]["step"] == "hello"
    assert run_id in listed.out


async def test_a_run_that_only_calls_name_is_shown_by_its_calls(platform: Platform) -> None:
    connection = await asyncpg.connect(platform.database_url, timeout=5, command_timeout=5)
    try:
        await connection.execute(
            "INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, replica, status,"
            " cost_usd, started_at, latency_ms)"
            " VALUES ('c7', 'default', 'agent-7', 'writer', 'b', '', 'ok', 0.25, $1, 10)",
            NOW,
        )
    finally:
        await connection.close(timeout=5)

    shown = await hocket(platform, "runs", "show", "agent-7")
    explained = await hocket(platform, "gateway", "explain", "agent-7")
    unknown = await hocket(platform, "gateway", "explain", "agent-8")
    none = await hocket(platform, "runs", "show", "agent-8")

    assert shown.out.startswith("run agent-7 is external: calls refer to it")
    assert "1 call, $0.25" in shown.out
    for listed in (shown.out, explained.out):
        assert "c7  writer -> b" in listed
    assert unknown.code != 0
    assert none.code != 0


async def test_doctor_says_which_processes_are_missing_and_what_to_do(platform: Platform) -> None:
    done = await hocket(platform, "doctor")

    assert done.code == 1
    assert "ok      migrations" in done.out
    assert "ok      streams" in done.out
    assert "Start: python -m hocket.gateway" in done.out


async def test_other_commands_find_the_platform_by_its_folder(platform: Platform) -> None:
    facts = read_facts(platform.data_dir)

    assert facts is not None
    assert facts.api_url == platform.api_url
    assert facts.processes == {name: p.pid for name, p in platform.processes.items()}
    assert (platform.data_dir / "run" / "platform.json").stat().st_mode & 0o077 == 0


async def test_a_killed_process_is_ready_again(platform: Platform) -> None:
    before = platform.process("admin").pid

    await platform.kill("admin")
    await platform.wait_ready(timeout_s=WAIT_S)

    assert platform.process("admin").pid != before
    facts = read_facts(platform.data_dir)
    assert facts is not None
    assert facts.processes["admin"] == platform.process("admin").pid
    assert (await hocket(platform, "dlq", "list")).out == "There are no dead letters.\n"


async def test_a_dead_letter_is_listed_shown_and_dropped(platform: Platform) -> None:
    bus = await Bus.connect(platform.nats_url, name="test")
    error = ErrorInfo(code="step_undeliverable", message="Too often.", details={"deliveries": 20})
    await dead_letters.bury(
        bus, "step", subject="hocket.step.python.normal", headers=None, error=error,
        payload=b'{"tenant": "default", "run_id": "r1", "step": "a", "attempt": 2}',
    )  # fmt: skip
    seq = (await bus.js.stream_info(subjects.DLQ)).state.last_seq
    await bus.close()

    listed = await hocket(platform, "dlq", "list", "--source", "step")
    shown = await hocket(platform, "dlq", "show", str(seq))
    redriven = await hocket(platform, "dlq", "redrive", str(seq))
    dropped = await hocket(platform, "dlq", "drop", str(seq))

    assert "r1 a (2)" in listed.out
    assert "run_id   r1\nstep     a\nattempt  2\ntenant   default\ndeliveries 20\n" in shown.out
    assert redriven.code != 0
    assert "hocket runs retry r1" in redriven.err
    assert dropped.out == f"dead letter {seq} was removed\n"
    assert (await hocket(platform, "dlq", "list")).out == "There are no dead letters.\n"


async def test_a_folder_is_indexed_listed_and_searched(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "birds.md").write_text("# Storks\n\nStorks migrate to Africa in August.\n", "utf-8")
    (tmp_path / "fish.txt").write_text("Salmon swim upstream in autumn.\n", "utf-8")

    added = await hocket(platform, "index", "add", str(tmp_path), "--collection", "nature")
    again = await hocket(platform, "index", "add", str(tmp_path), "--collection", "nature")
    listed = await hocket(platform, "index", "list")
    found = await hocket(platform, "index", "search", "when do storks migrate", "-c", "nature")
    unknown = await hocket(platform, "index", "search", "storks", "-c", "nothing")
    await hocket(platform, "index", "add", str(tmp_path), "-c", "nature", "--as", "birds")
    asked = await hocket(platform, "index", "delete", "nature")
    other = await hocket(platform, "index", "delete", "nature", "--folder", "fish", "--yes")
    named = await hocket(platform, "index", "delete", "nature", "--folder", "birds", "--yes")
    gone = await hocket(platform, "index", "delete", "nature", "--yes")
    repaired = await hocket(platform, "index", "repair")

    assert asked.code == 1
    assert "Permanently delete the collection nature (4 documents)?" in asked.err
    assert other.code == 2
    assert f"The folders that it has documents of: `{tmp_path}`, `birds`." in other.err
    assert named.out == "birds of nature: 2 documents deleted\n"
    assert gone.out == "the collection nature: 2 documents deleted\n"
    assert repaired.out == "All vector indexes are as they should be.\n"
    assert added.out == (
        "collection nature: 2 added, 0 replaced, 0 unchanged, 0 removed, 2 chunks written\n"
    )
    assert "2 unchanged" in again.out
    assert "nature" in listed.out
    assert found.out.startswith("birds.md")
    assert "Storks migrate to Africa" in found.out
    assert unknown.err.startswith("Error: There is no collection `nothing`")


async def _insert_run(platform: Platform, run_id: str) -> None:
    connection = await asyncpg.connect(platform.database_url, timeout=5, command_timeout=5)
    try:
        await connection.execute(
            "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status,"
            " priority, input, output, accepted_at, deadline_at, finished_at)"
            " VALUES ($1, 0, 'default', 'greet', 1, 'succeeded', 'standard', '{}', $2, $3,"
            " $3::timestamptz + interval '5 s', $3::timestamptz + interval '250 ms')",
            run_id,
            json.dumps({"greeting": "Hello, Ada"}),
            NOW,
        )
        await connection.execute(
            "INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at,"
            " started_at, finished_at, deadline_at, slack_ms)"
            " VALUES ($1, 'hello', 'hello', 'python', 'step', 'succeeded', 1, $2,"
            " $2::timestamptz + interval '10 ms', $2::timestamptz + interval '210 ms',"
            " $2::timestamptz + interval '5 s', 4500)",
            run_id,
            NOW,
        )
    finally:
        await connection.close(timeout=5)
