"""The emulator over HTTP: answers, streams, faults, cold starts, and what it says it metered."""

import asyncio
import base64
import json
import signal
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hocket.emulator.configuration import parse
from hocket.emulator.core.tokens import CHARS_PER_TOKEN
from hocket.emulator.running import running
from hocket.schemas.errors import InvalidInput

BOUND_S = 30.0
CHAT = "/v1/chat/completions"
FAST = {"decode_tokens_per_s": 1e6, "batch_tokens_per_s": 1e6, "prefill_tokens_per_s": 1e6}


class Caller:
    """An HTTP client of one engine."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self.url = url

    async def send(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        async with self._session.request(
            method,
            self.url + path,
            json=None if isinstance(body, bytes) else body,
            data=body if isinstance(body, bytes) else None,
            headers=headers,
        ) as response:
            content = await response.read()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(content) if is_json else content.decode()

    async def chat(self, **fields: Any) -> tuple[int, Any]:
        return await self.send("POST", "/v1/chat/completions", chat_body(**fields))

    async def stream(self, **fields: Any) -> list[Any]:
        """Return the events of a stream, read to its end."""
        return [event async for event in self.events(**fields)]

    async def events(self, **fields: Any) -> AsyncIterator[Any]:
        body = chat_body(stream=True, **fields)
        async with self._session.post(f"{self.url}/v1/chat/completions", json=body) as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])
                elif line.strip():
                    yield line.strip().decode()

    async def journal(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = (await self.send("GET", "/emulator/journal"))[1]["requests"]
        return entries

    async def metric(self, name: str, **labels: str) -> float:
        _, text = await self.send("GET", "/metrics")
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


Started = Callable[..., Awaitable[Caller]]


@pytest.fixture
async def start() -> AsyncIterator[Started]:
    """Starts an engine with a profile and a speed, until the test ends."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def started(speed: float = 1.0, **profile: Any) -> Caller:
            engine = {"port": 0, "profile": {"model": "m", **FAST, **profile}}
            config = parse({"speed": speed, "engines": [engine]})
            engines = await stack.enter_async_context(running(config))
            return Caller(session, engines[0].url)

        yield started


async def extend(seen: list[Any], events: AsyncIterator[Any]) -> None:
    async for event in events:
        seen.append(event)  # noqa: PERF401  # what came before a failure counts


def chat_body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "How high is it?"}], **fields}


async def test_a_stream_says_what_the_whole_answer_says(start: Started) -> None:
    caller = await start()
    _, whole = await caller.chat(max_tokens=9)
    *chunks, usage, done = await caller.stream(max_tokens=9, stream_options={"include_usage": True})
    assert done == "data: [DONE]"
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert usage["usage"] == whole["usage"]


async def test_tokens_come_at_the_speed_of_decoding(start: Started) -> None:
    """Those that are there at once come as one chunk: how many there are, the machine's load decides."""
    caller = await start(decode_tokens_per_s=100, prefill_tokens_per_s=1e6)
    chunks = await caller.stream(max_tokens=5)
    contents = [c["choices"][0]["delta"].get("content") for c in chunks[:-1]]
    assert len("".join(filter(None, contents))) == 5 * CHARS_PER_TOKEN
    assert 1 <= len(list(filter(None, contents))) <= 5
    waited_s = await caller.metric("vllm:request_decode_time_seconds_sum")
    assert waited_s == pytest.approx(0.04)


async def test_a_second_prompt_finds_the_first_ones_blocks(start: Started) -> None:
    caller = await start(block_tokens=1)
    await caller.chat(max_tokens=1)
    _, again = await caller.chat(max_tokens=1)
    usage = again["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1
    assert await caller.metric("vllm:prefix_cache_hits_total") == usage["prompt_tokens"] - 1


async def test_a_caller_that_leaves_frees_its_place(start: Started) -> None:
    caller = await start(max_running=1, decode_tokens_per_s=0.5)
    events = caller.events(max_tokens=1_000)
    await anext(events)
    await events.aclose()
    status, _ = await caller.chat(max_tokens=1)
    assert status == 200
    left, ended = await caller.journal()
    assert (left["status"], left["completion_tokens"]) == ("cancelled", 1)
    assert ended["status"] == "ok"
    assert await caller.metric("vllm:request_success_total", finished_reason="abort") == 1


async def test_faults_come_in_the_order_of_the_script(start: Started) -> None:
    caller = await start()
    script = [{"kind": "status", "status": 429, "retry_after_s": 2}, {"kind": "status"}]
    await caller.send("POST", "/emulator/script", script)
    statuses = [(await caller.chat())[0] for _ in range(3)]
    assert statuses == [429, 500, 200]
    assert [entry["status"] for entry in await caller.journal()] == ["429", "500", "ok"]


async def test_a_broken_connection_is_broken(start: Started) -> None:
    caller = await start()
    script = [{"kind": "disconnect"}, {"kind": "disconnect", "after_tokens": 2}]
    await caller.send("POST", "/emulator/script", script)
    with pytest.raises(aiohttp.ClientError):
        await caller.chat()
    seen: list[Any] = []
    with pytest.raises(aiohttp.ClientError):
        await extend(seen, caller.events(max_tokens=5))
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in seen)
    assert len(text) == 2 * 4


async def test_rates_can_be_set_while_it_runs(start: Started) -> None:
    caller = await start()
    await caller.send("PUT", "/emulator/faults", {"error_rate": 1, "error_status": 503})
    assert (await caller.chat())[0] == 503
    await caller.send("PUT", "/emulator/faults", {})
    assert (await caller.chat())[0] == 200


async def test_rates_that_are_more_than_all_requests_are_refused(start: Started) -> None:
    caller = await start()
    rates = {"error_rate": 0.7, "hang_rate": 0.7}
    status, told = await caller.send("PUT", "/emulator/faults", rates)
    assert status == 400
    assert "1.4 together" in told["error"]["message"]
    assert (await caller.send("GET", "/emulator"))[1]["faults"]["error_rate"] == 0


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (CHAT, b'{"messages":[{"role":"user","content":"\\ud800"}]}', "half of a surrogate pair"),
        ("/v1/completions", b'{"prompt":"a\\uDfff"}', "half of a surrogate pair"),
        ("/v1/embeddings", b'{"input":["\\ud83d \\ude00"]}', "half of a surrogate pair"),
        (CHAT, b'{"messages":"\xed\xa0\x80"}', "not JSON"),
        (CHAT, '{"messages":"\\ud800"}'.encode("utf-16"), "half of a surrogate pair"),
        (CHAT, '{"messages":"\ud800"}'.encode("utf-32", "surrogatepass"), "not JSON"),
        (CHAT, b"[" * 100_000, "it nests too deeply"),
    ],
    ids=["chat", "completion", "embedding", "bytes", "escape in UTF-16", "UTF-32", "deep"],
)
async def test_what_no_engine_could_read_is_refused_in_the_format_of_the_api(
    start: Started, path: str, body: bytes, words: str
) -> None:
    caller = await start()
    status, told = await caller.send("POST", path, body)
    assert status == 400
    assert words in told["error"]["message"]
    assert told["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-32-be"])
async def test_a_body_may_be_in_each_encoding_of_unicode(start: Started, encoding: str) -> None:
    """Only UTF-8 without a mark at its begin was read."""
    body = '{"model":"m","input":"\U0001f600"}'.encode(encoding)
    assert (await (await start()).send("POST", "/v1/embeddings", body))[0] == 200


async def test_a_character_of_two_escapes_is_one(start: Started) -> None:
    body = b'{"model":"m","input":"\\ud83d\\ude00"}'
    assert (await (await start()).send("POST", "/v1/embeddings", body))[0] == 200


async def test_a_request_waits_for_a_cold_engine(start: Started) -> None:
    caller = await start(100, warm=False, provision_s=85, load_s=65)
    assert (await caller.send("GET", "/health"))[0] == 503
    status, _ = await caller.chat(max_tokens=1)
    assert status == 200
    ttft_s = await caller.metric("vllm:time_to_first_token_seconds_sum")
    assert 149 <= ttft_s < 290  # 1 s of jitter on this side is 100 s over there
    assert (await caller.send("GET", "/health"))[0] == 200


async def test_a_cold_engine_refuses_where_it_is_told_to(start: Started) -> None:
    caller = await start(while_cold="refuse", warm=False, load_s=1_000)
    assert (await caller.chat())[0] == 503
    await caller.send("POST", "/emulator/load")
    assert (await caller.send("GET", "/emulator"))[1]["state"] == "loading"


async def test_unloading_ends_what_runs(start: Started) -> None:
    caller = await start(decode_tokens_per_s=0.1)
    events = caller.events(max_tokens=100)
    await anext(events)
    await caller.send("POST", "/emulator/unload")
    with pytest.raises(aiohttp.ClientError):
        await extend([], events)
    assert (await caller.send("GET", "/emulator"))[1]["state"] == "cold"


async def test_an_idle_engine_goes_away(start: Started) -> None:
    caller = await start(1_000, idle_s=10)
    await caller.chat(max_tokens=1)
    async with asyncio.timeout(BOUND_S):
        while (await caller.send("GET", "/emulator"))[1]["state"] != "cold":
            pass
    held_s = (await caller.send("GET", "/emulator"))[1]["held_s"]
    assert held_s >= 10


async def test_vectors_come_as_numbers_or_packed(start: Started) -> None:
    caller = await start(embedding_dimensions=8)
    body: dict[str, Any] = {"model": "m", "input": ["high tide", "low tide"]}
    _, plain = await caller.send("POST", "/v1/embeddings", body)
    _, packed = await caller.send("POST", "/v1/embeddings", {**body, "encoding_format": "base64"})
    for one, two in zip(plain["data"], packed["data"], strict=True):
        unpacked = struct.unpack("<8f", base64.b64decode(two["embedding"]))
        assert unpacked == pytest.approx(one["embedding"])
    assert plain["usage"]["prompt_tokens"] == 5  # 9 and 8 characters at 4 each


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", {"model": "other", "messages": []}, 404),
        ("/v1/chat/completions", {"model": "m", "messages": []}, 400),
        ("/v1/chat/completions", [], 400),
        ("/v1/completions", {"model": "m"}, 400),
        ("/v1/embeddings", {"model": "m", "input": []}, 400),
        ("/emulator/script", [{"kind": "earthquake"}], 400),
    ],
)
async def test_a_bad_request_is_refused_in_openais_shape(
    start: Started, path: str, body: Any, status: int
) -> None:
    caller = await start()
    answered, content = await caller.send("POST", path, body)
    assert answered == status
    assert content["error"]["message"]


def test_a_wrong_field_of_a_file_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"engines\.0\.profile\.block_tokens"):
        parse({"engines": [{"profile": {"block_tokens": 0}}]})


async def test_the_command_runs_engines_until_it_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "engines.yaml"
    path.write_text(
        "speed: 100\n"
        "engines:\n"
        "  - {port: 0, replicas: 2, profile: {model: llm}}\n"
        "  - {port: 0, profile: {model: embedder}}\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hocket.cli", "emulate", "--config", str(path),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(BOUND_S):
        lines = [(await process.stdout.readline()).decode().split() for _ in range(3)]
        async with aiohttp.ClientSession() as session:
            for model, url in lines:
                async with session.get(f"{url}/models") as response:
                    assert (await response.json())["data"][0]["id"] == model
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert [model for model, _ in lines] == ["llm", "llm", "embedder"]
