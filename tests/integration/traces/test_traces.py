"""Traces of runs on the real platform: the tree of one, that it stands in its caller's, that an OTLP
receiver gets it whole, and that log lines name it."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import opentelemetry.semconv._incubating.attributes.gen_ai_attributes as published
import pytest
import yaml
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Kind
from opentelemetry.trace import StatusCode

from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.schemas.tracing.attributes import MEANINGS
from support.handlers.path_handlers import MODEL_S
from support.places import HANDLERS
from support.traces.otlp_receiver import Received, Receiver, running_receiver

BOUND_S = 30.0
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
THINK = {"type": "llm", "model": "thinker", "prompt": "?"}
STUMBLE = {
    "type": "python",
    "handler": "path_handlers:stumble",
    "with": {"seconds": 0.01, "name": "trace"},
    "retry": {"max_attempts": 2, "backoff_ms": 20, "on": ["transient"]},
}


@pytest.fixture(scope="module")
async def receiver() -> AsyncIterator[Receiver]:
    async with running_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
async def platform(receiver: Receiver) -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    config = folder / "hocket.yaml"
    models = {
        "thinker": {"backends": [{"function": "path_handlers:think"}]},
        "teller": {"backends": [{"function": "trace_handlers:think"}]},
    }
    content = {"pipelines": {"kept": "full"}}
    config.write_text(yaml.safe_dump({"models": models, "content": content}))
    async with Platform(
        folder / "d",
        env={
            "HOCKET_HANDLERS": "path_handlers, trace_handlers",
            "PYTHONPATH": HANDLERS,
            "HOCKET_OTLP_ENDPOINT": receiver.url,
            "HOCKET_TRACE_RATIO": "0",
        },
        services=("coordinator", "worker", "gateway", "ledger", "admin"),
        worker_types=("python", "llm"),
        config=config,
    ) as running:
        yield running
    shutil.rmtree(folder)


@pytest.fixture
def api(platform: Platform) -> Api:
    return platform.api()


async def trace_of(api: Api, run_id: str, calls: int) -> list[dict[str, Any]]:
    """Return the spans of a run's trace once the ledger has booked its calls."""
    async with asyncio.timeout(BOUND_S):
        while True:
            found = await asyncio.to_thread(api.get, f"/v1/runs/{run_id}/trace")
            spans: list[dict[str, Any]] = found["spans"]
            if sum(span["kind"] == "client" for span in spans) >= calls:
                return spans
            await asyncio.sleep(0.02)


async def run(
    api: Api, name: str, nodes: dict[str, Any], *, status: str = "succeeded", **headers: str
) -> str:
    document = {"pipeline": "child", "nodes": {"think": THINK}}
    await asyncio.to_thread(api.post, "/v1/pipelines", document)
    await asyncio.to_thread(api.post, "/v1/pipelines", {"pipeline": name, "nodes": nodes})
    asking = Api(api.url)
    asking.headers |= {**api.headers, **headers}
    body = {"pipeline": name, "input": {}, "wait_ms": BOUND_S * 1000}
    end = await asyncio.to_thread(asking.post, "/v1/runs", body)
    assert end["status"] == status
    return str(end["run_id"])


async def test_a_trace_shows_attempts_calls_and_sub_runs_in_the_caller_s_trace(api: Api) -> None:
    nodes = {
        "try": STUMBLE,
        "sub": {"type": "pipeline", "pipeline": "child", "needs": ["try"]},
    }
    run_id = await run(api, "traced", nodes, traceparent=f"00-{TRACE}-{CALLER}-01")

    spans = await trace_of(api, run_id, calls=1)

    shown = await asyncio.to_thread(api.get, f"/v1/runs/{run_id}/trace")
    assert shown["trace_id"] == TRACE
    names = {span["span_id"]: span["name"] for span in spans}
    lines = [(span["name"], names.get(span["parent_id"])) for span in spans]
    assert lines == [
        ("invoke_workflow traced", None),
        ("step try", "invoke_workflow traced"),
        ("queue", "step try"),
        ("execute_tool try", "step try"),
        ("queue", "step try"),
        ("execute_tool try", "step try"),
        ("step sub", "invoke_workflow traced"),
        ("invoke_workflow child", "step sub"),
        ("step think", "invoke_workflow child"),
        ("queue", "step think"),
        ("process think", "step think"),
        ("call thinker", "process think"),
        ("chat thinker", "call thinker"),
    ]
    assert spans[0]["parent_id"] == CALLER
    by_name = {span["name"]: span for span in spans}
    request = by_name["chat thinker"]
    assert MODEL_S * 1000 - 1 <= request["duration_ms"] <= by_name["step think"]["duration_ms"]
    assert request["attributes"]["gen_ai.provider.name"] == "function"
    assert request["attributes"]["gen_ai.usage.output_tokens"] == 1
    tried = [span for span in spans if span["name"] == "execute_tool try"]
    assert [span["status"] for span in tried] == ["error", "unset"]
    # the run below is asked for alone: in the same trace, below the step that began it
    child = by_name["invoke_workflow child"]
    alone = await asyncio.to_thread(api.get, f"/v1/runs/{child['run_id']}/trace")
    assert (alone["trace_id"], alone["spans"][0]) == (TRACE, child)


async def test_a_receiver_gets_the_whole_trace_of_a_run_that_failed(
    api: Api, receiver: Receiver
) -> None:
    tell = {"type": "python", "handler": "trace_handlers:tell", "needs": ["ask"]}
    nodes = {
        "ask": THINK,
        "tell": tell | {"with": {"word": "w", "fails": True}},
    }
    await run(api, "well", {"ask": THINK})  # goes well, is quick and cheap: it is not sent
    run_id = await run(api, "fails", nodes, status="failed")
    shown = await asyncio.to_thread(api.get, f"/v1/runs/{run_id}/trace")

    async with asyncio.timeout(BOUND_S):
        while shown["trace_id"] not in receiver.traces():
            receiver.arrived.clear()
            await receiver.arrived.wait()

    spans = receiver.traces()[shown["trace_id"]]
    settled = {span["span_id"]: span for span in await trace_of(api, run_id, calls=1)}
    assert {span.span_id for span in spans} == set(settled)
    assert len(spans) == len(settled)
    for span in spans:
        known = settled[span.span_id]
        assert (span.name, span.parent_id or None) == (known["name"], known["parent_id"])
        assert (span.end_ns - span.start_ns) / 1e6 == pytest.approx(known["duration_ms"])
        assert span.resource["service.name"] == f"hocket-{known['service']}"
        conforms(span)
    failed = {span.name for span in spans if span.status == StatusCode.ERROR.value}
    assert failed == {"invoke_workflow fails", "step tell", "execute_tool tell"}
    assert "invoke_workflow well" not in {span.name for span in receiver.spans}
    assert len(receiver.traces()) == 2  # the first test's caller keeps its trace


def conforms(span: Received) -> None:
    """Check a span against the published conventions: names, kinds, required attributes, values."""
    said = span.attributes
    operation = said.get("gen_ai.operation.name")
    if operation is not None:
        assert operation in {one.value for one in published.GenAiOperationNameValues}
    if operation in ("chat", "text_completion", "embeddings"):
        assert span.kind == Kind.SPAN_KIND_CLIENT
        assert span.name == f"{operation} {said['gen_ai.request.model']}"
        assert said["gen_ai.provider.name"]
        assert {type(said[f"gen_ai.usage.{way}_tokens"]) for way in ("input", "output")} == {int}
    if operation == "execute_tool":
        assert span.name == f"execute_tool {said['gen_ai.tool.name']}"
        assert span.kind == Kind.SPAN_KIND_INTERNAL
    if operation == "invoke_workflow":
        assert span.name == f"invoke_workflow {said['gen_ai.workflow.name']}"
    if span.kind == Kind.SPAN_KIND_CONSUMER:
        assert said["messaging.system"]
        assert said["messaging.operation.name"]
    if span.status == StatusCode.ERROR.value:
        assert said["error.type"]
    assert set(said) <= set(MEANINGS)


async def test_every_log_line_of_a_run_names_the_run_and_its_trace(
    platform: Platform, api: Api
) -> None:
    tell = {
        "type": "python",
        "handler": "trace_handlers:tell",
        "with": {"word": "w", "fails": True},
    }
    ask = {"type": "llm", "model": "teller", "prompt": "?"}
    nodes = {"ask": ask, "tell": tell | {"needs": ["ask"]}}
    run_id = await run(api, "logs", nodes, status="failed", traceparent=f"00-{TRACE}-{CALLER}-00")

    lines = [
        line
        for file in (platform.data_dir / "logs").glob("*.log")
        for line in file.read_text().splitlines()
        if run_id in line
    ]
    events = [json.loads(line) for line in lines if line.startswith("{")]
    assert {"told_by_handler", "told_by_model", "step_failed"} <= {e["event"] for e in events}
    assert all((e["run_id"], e["trace_id"]) == (run_id, TRACE) for e in events), events
    (plain,) = [line for line in lines if not line.startswith("{")]
    assert plain.startswith(f"told by a library: w run_id={run_id} trace_id={TRACE}")


async def test_prompts_and_answers_are_kept_where_the_policy_says_so(api: Api) -> None:
    say = THINK | {"prompt": "what is {{ input.input.word }}?"}
    spoken = {"input": {"type": "object", "properties": {"word": {"type": "string"}}}}
    for name in ("kept", "forgotten"):
        document = {"pipeline": name, "nodes": {"say": say}, **spoken}
        await asyncio.to_thread(api.post, "/v1/pipelines", document)
    found = {}
    for name in ("forgotten", "kept"):
        body = {"pipeline": name, "input": {"word": "gold"}, "wait_ms": BOUND_S * 1000}
        found[name] = await asyncio.to_thread(api.post, "/v1/runs", body)

    async with asyncio.timeout(BOUND_S):
        while not (kept := await content_of(api, found["kept"]["run_id"])):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    ((step, prompt, answer),) = kept
    assert (step, answer) == ("say", {"text": "ok"})
    assert prompt["messages"][-1]["content"] == "what is gold?"
    assert await content_of(api, found["forgotten"]["run_id"]) == []


async def content_of(api: Api, run_id: str) -> list[tuple[Any, ...]]:
    found = await asyncio.to_thread(api.get, "/v1/content", run=run_id)
    return [(one["step"], one["prompt"], one["answer"]) for one in found["content"]]
