"""A whole platform for hostile values: the ways by which a value enters, and the views that show it."""

import asyncio
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import nats
import yaml
from nats.aio.client import Client
from nats.aio.msg import Msg
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.local.platform import Platform
from hocket.schemas import subjects
from hocket.schemas.errors import HocketError
from support.gateway.mock_upstream import Upstream, running_upstream
from support.places import HANDLERS
from support.rest_rig import bearer

BOUND_S = 40
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
PIPELINES: tuple[dict[str, Any], ...] = (
    {
        "pipeline": "vals",
        "nodes": {"a": {**ECHO, "with": {"v": "{{ input.v }}"}}},
        "output": {"v": "{{ nodes.a.output.v }}"},
    },
    {
        "pipeline": "waits",
        "nodes": {
            "w": {"type": "signal", "signal": "go"},
            "a": {**ECHO, "needs": ["w"], "with": {"v": "{{ nodes.w.output.v }}"}},
        },
        "output": {"v": "{{ nodes.a.output.v }}"},
    },
    {
        "pipeline": "makes",
        "nodes": {"a": {"type": "python", "handler": "value_handlers:make"}},
        "output": {"v": "{{ nodes.a.output.v }}"},
    },
    {
        "pipeline": "asks",
        "nodes": {"a": {"type": "llm", "model": "scripted", "prompt": "{{ input.input.v }}"}},
        "output": {"v": "{{ nodes.a.output.text }}"},
    },
)
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)
"""Characters that a terminal may act upon, or that change the order of the displayed text."""


@dataclass
class Outcome:
    """The result of sending a value: a run that ended, or a refusal."""

    run_id: str = ""
    status: str = ""
    output: Any = None
    error: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    """Everything printed, if a person would use this way in."""

    @property
    def refused(self) -> bool:
        return not self.run_id


Door = Callable[["House", bytes], Awaitable[Outcome]]


class House:
    """A running platform, and connections to look at it from all sides."""

    def __init__(
        self, platform: Platform, client: Client, session: aiohttp.ClientSession,
        database: asyncpg.Connection, upstream: Upstream,
    ) -> None:  # fmt: skip
        self.platform = platform
        self.client = client
        self.session = session
        self.database = database
        self.upstream = upstream
        self.facts: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.cells: Counter[str] = Counter()

    async def note(self, message: Msg) -> None:
        """Store the public event of a run's end."""
        body = json.loads(message.data)
        if "finished_at_ms" in body:
            self.fact(body["run_id"]).set_result(body)

    def fact(self, run_id: str) -> "asyncio.Future[dict[str, Any]]":
        """Return a future for the public event of a run's end."""
        return self.facts.setdefault(run_id, asyncio.get_running_loop().create_future())

    async def get(self, path: str, **query: str) -> Any:
        async with self.session.get(self.platform.api_url + path, params=query) as answer:
            text = await answer.text()
            assert answer.status == 200, text
            return json.loads(text) if answer.content_type == "application/json" else text

    async def post(self, path: str, body: bytes) -> tuple[int, Any]:
        """Send these bytes as a JSON body."""
        headers = {"Content-Type": "application/json"}
        url = self.platform.api_url + path
        async with self.session.post(url, data=body, headers=headers) as answer:
            assert answer.status < 500, await answer.text()
            return answer.status, json.loads(await answer.text())

    async def cli(
        self, *arguments: str, given: bytes | None = None
    ) -> tuple[str, BaseException | None]:
        """Run a command in this process; return its standard output, and the exception if it failed."""
        named = ("--data-dir", str(self.platform.data_dir))
        done = await asyncio.to_thread(
            CliRunner().invoke, app, [*named, *arguments], input=given, color=False
        )
        return done.stdout, done.exception

    async def ended(self, run_id: str) -> dict[str, Any]:
        async with asyncio.timeout(BOUND_S):
            await self.get(f"/v1/runs/{run_id}/events")  # the stream ends with the run
        run: dict[str, Any] = await self.get(f"/v1/runs/{run_id}")
        assert run["finished_at"] is not None
        return run

    async def healthy(self) -> None:
        """Check that an ordinary run still succeeds."""
        async with asyncio.timeout(BOUND_S):
            outcome = await by_rest(self, b'"well"')
        assert (outcome.status, outcome.output) == ("succeeded", {"v": "well"})

    def cell(self, door: str, view: str) -> None:
        self.cells[f"{door} -> {view}"] += 1


@asynccontextmanager
async def house(*more: dict[str, Any], **sections: Any) -> AsyncIterator[House]:
    """Run a platform with the suite's pipelines and `more`, and with these sections in its
    configuration."""
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    async with running_upstream() as upstream:
        backend = {"base_url": upstream.base_url, "model": "m-1"}
        models = {"scripted": {"backends": [backend], "breaker": False, "retries": 0}}
        config = folder / "hocket.yaml"
        config.write_text(yaml.safe_dump({"models": models, **sections}))
        environment = {"PYTHONPATH": HANDLERS}
        async with (
            Platform(
                folder / "d", env=environment, config=config, handlers=("value_handlers",)
            ) as platform,
            aiohttp.ClientSession(headers=bearer(platform.api_key)) as session,
        ):
            client = await nats.connect(platform.nats_url)
            database = await asyncpg.connect(platform.database_url)
            found = House(platform, client, session, database, upstream)
            await client.subscribe(subjects.event("default", "*", "*"), cb=found.note)
            for spec in (*PIPELINES, *more):
                status, said = await found.post("/v1/pipelines", json.dumps(spec).encode())
                assert status == 201, said
            yield found
            await client.close()
            await database.close()
    shutil.rmtree(folder)


# ---- doors ----------------------------------------------------------------------------------


async def by_nats(house: House, text: bytes, headers: Mapping[str, str] | None = None) -> Outcome:
    """Publish it as a task with a plain client."""
    inbox = house.client.new_inbox()
    heard = await house.client.subscribe(inbox)
    await house.client.jetstream().publish(
        subjects.task("default", "vals"),
        b'{"v": ' + text + b"}",
        headers={"Hocket-Reply-To": inbox, **(headers or {})},
    )
    message = await heard.next_msg(timeout=BOUND_S)
    await heard.unsubscribe()
    return told_by(json.loads(message.data))


async def by_rest(house: House, text: bytes) -> Outcome:
    body = b'{"pipeline": "vals", "wait_ms": 30000, "input": {"v": ' + text + b"}}"
    _, answer = await house.post("/v1/runs", body)
    return told_by(answer)


async def by_cli(house: House, text: bytes) -> Outcome:
    printed, error = await house.cli(
        "run", "vals", "--input", "@-", "--json", given=b'{"v": ' + text + b"}"
    )
    if isinstance(error, HocketError):
        return Outcome(error=error.info().model_dump(), text=str(error))
    assert error is None, (printed, error)
    return told_by(json.loads(printed))


async def by_signal(house: House, text: bytes) -> Outcome:
    _, receipt = await house.post("/v1/runs", b'{"pipeline": "waits"}')
    assert "run_id" in receipt, receipt
    run_id = receipt["run_id"]
    body = b'{"name": "go", "payload": {"v": ' + text + b"}}"
    status, answer = await house.post(f"/v1/runs/{run_id}/signals", body)
    if status != 202:
        await house.post(f"/v1/runs/{run_id}/cancel", b"{}")
        return Outcome(error=answer["error"])
    return told_by(await house.ended(run_id))


async def by_rerun(house: House, text: bytes) -> Outcome:
    first = await by_rest(house, b"0")
    body = b'{"from_step": "a", "wait_ms": 30000, "step_input": {"v": ' + text + b"}}"
    _, answer = await house.post(f"/v1/runs/{first.run_id}/rerun", body)
    return told_by(answer)


async def by_handler(house: House, name: str) -> Outcome:
    """Return or raise it in a python node; `value_handlers.make` knows it by name."""
    body = {"pipeline": "makes", "wait_ms": 30_000, "input": {"v": name}}
    _, answer = await house.post("/v1/runs", json.dumps(body).encode())
    return told_by(answer)


async def by_model(house: House, message: Mapping[str, Any]) -> Outcome:
    """Return it as a model's answer."""
    choice = {"message": {"role": "assistant", **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    house.upstream.answer = house.upstream.sends({"choices": [choice], "usage": usage})
    body = {"pipeline": "asks", "wait_ms": 30_000, "input": {"v": "?"}}
    _, answer = await house.post("/v1/runs", json.dumps(body).encode())
    return told_by(answer)


def told_by(answer: Mapping[str, Any]) -> Outcome:
    """Return the outcome that an answer of REST or NATS describes."""
    if "run_id" not in answer:
        return Outcome(error=answer["error"])
    return Outcome(
        run_id=answer["run_id"],
        status=answer["status"],
        output=answer.get("output"),
        error=answer.get("error") or {},
    )


DOORS: dict[str, Door] = {
    "NATS task": by_nats,
    "REST run": by_rest,
    "CLI run": by_cli,
    "REST signal": by_signal,
    "REST rerun": by_rerun,
}


# ---- views ----------------------------------------------------------------------------------


async def in_reply(_house: House, outcome: Outcome) -> Any:
    return outcome.output["v"]


async def in_rest_run(house: House, outcome: Outcome) -> Any:
    return (await house.get(f"/v1/runs/{outcome.run_id}"))["output"]["v"]


async def in_rest_steps(house: House, outcome: Outcome) -> Any:
    steps = (await house.get(f"/v1/runs/{outcome.run_id}/steps", values="true"))["steps"]
    return next(step for step in steps if step["step"] == "a")["output"]["v"]


async def in_rest_events(house: House, outcome: Outcome) -> Any:
    stream = await house.get(f"/v1/runs/{outcome.run_id}/events")
    lines = [line for line in stream.split("\n") if line.startswith("data: ")]
    return json.loads(lines[-1][6:])["output"]["v"]


async def in_public_fact(house: House, outcome: Outcome) -> Any:
    fact = await asyncio.wait_for(house.fact(outcome.run_id), BOUND_S)
    return fact["output"]["v"]


async def in_postgres_run(house: House, outcome: Outcome) -> Any:
    row = await house.database.fetchval(
        "SELECT output::text FROM hocket.run WHERE run_id = $1", outcome.run_id
    )
    return json.loads(row)["v"]


async def in_postgres_step(house: House, outcome: Outcome) -> Any:
    row = await house.database.fetchval(
        "SELECT output::text FROM hocket.step WHERE run_id = $1 AND path = 'a'", outcome.run_id
    )
    return json.loads(row)["v"]


async def in_cli_json(house: House, outcome: Outcome) -> Any:
    printed, error = await house.cli("runs", "show", outcome.run_id, "--json")
    assert error is None, printed
    return json.loads(printed)["run"]["output"]["v"]


VIEWS: dict[str, Callable[[House, Outcome], Awaitable[Any]]] = {
    "reply": in_reply,
    "REST run": in_rest_run,
    "REST steps": in_rest_steps,
    "REST events": in_rest_events,
    "public fact": in_public_fact,
    "Postgres run": in_postgres_run,
    "Postgres step": in_postgres_step,
    "CLI --json": in_cli_json,
}


async def printed(house: House, outcome: Outcome) -> str:
    """Return what a person sees of a run."""
    shown, error = await house.cli("runs", "show", outcome.run_id)
    assert error is None or isinstance(error, SystemExit), shown
    return shown
