"""Hostile values through the gateway's HTTP door: bodies, tools, their calls and results, and headers,
which show in calls, costs, reports and the lists of the command line."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hocket.gateway.api.http import identity
from support.gateway.mock_upstream import TIDAL, delta
from support.values.comparison import same
from support.values.hostile_values import CARRIED, REFUSED
from support.values.value_doors import raw
from support.values.values_rig import UNSAFE, House, by_model, house
from support.worker_rig import eventually

JSON = {"Content-Type": b"application/json"}


@pytest.fixture(scope="module")
async def hall() -> AsyncIterator[House]:
    async with house() as found:
        yield found
        print(f"\n{sum(found.cells.values())} cells (value, door, view) were right:")
        for cell, count in sorted(found.cells.items()):
            print(f"  {count:5} {cell}")


async def ask(hall: House, body: bytes, **headers: bytes) -> tuple[int, Any]:
    """Send a chat completion."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await raw(
        hall.platform.gateway_url,
        "POST",
        "/v1/chat/completions",
        {**JSON, **named},
        body,
        key=hall.platform.api_key,
    )


TURNS = b'{"model": "scripted", "messages": [{"role": "user", "content": "?"}%s]%s}'
STREAMED = TURNS % (b"", b', "stream": true')
TOOL = b'"tools": [{"type": "function", "function": {"name": "f", "parameters": %s}}]'
PLACES: dict[str, tuple[bytes, Any]] = {
    "tool definition": (
        TURNS.replace(b"]%s}", b"], " + TOOL + b"}").replace(b'"}%s]', b'"}]'),
        lambda body: body["tools"][0]["function"]["parameters"],
    ),
    "tool call": (
        b'{"model": "scripted", "messages": [{"role": "assistant", "content": null, "tool_calls": '  # noqa: ISC004
        b'[{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}", "x": %s}}]}]}',
        lambda body: body["messages"][0]["tool_calls"][0]["function"]["x"],
    ),
    "tool result": (
        b'{"model": "scripted", "messages": [{"role": "tool", "tool_call_id": "1", "content": '  # noqa: ISC004
        b'[{"type": "text", "text": %s}]}]}',
        lambda body: body["messages"][0]["content"][0]["text"],
    ),
    "body": (
        b'{"model": "scripted", "messages": [{"role": "user", "content": "?"}], "user": %s}',
        lambda body: body["user"],
    ),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", PLACES)
async def test_a_body_reaches_the_backend_as_it_came_or_is_refused(hall: House, place: str) -> None:
    form, look = PLACES[place]
    before, after = form.split(b"%s")
    hall.upstream.answer = hall.upstream.completes
    for value in [*CARRIED, *REFUSED]:
        if value.name == "depth 63":
            continue  # with what is around it here it is too deep
        hall.upstream.bodies.clear()
        status, said = await ask(hall, before + value.text + after)
        if value.refused is None:
            assert status == 200, (place, value.name, said)
            assert same(look(hall.upstream.bodies[-1]), value.expected), (place, value.name)
            hall.cell(place, "backend")
        else:
            assert status == 400, (place, value.name, said)
            assert value.refused in said["error"]["message"], (place, value.name, said)
            assert said["error"]["param"], (place, value.name, said)
            assert not UNSAFE.search(said["error"]["message"]), (place, value.name, said)
            assert not hall.upstream.bodies
            hall.cell(place, "refusal")
    await hall.healthy()


@pytest.mark.timeout(300)
async def test_what_a_model_calls_is_given_to_the_caller_as_it_came(hall: House) -> None:
    for value in CARRIED:
        text = value.text.decode()
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
        choice = {
            "message": {"role": "assistant", "content": None, "tool_calls": [call]},
            "finish_reason": "tool_calls",
        }
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        hall.upstream.answer = hall.upstream.sends({"choices": [choice], "usage": usage})
        status, said = await ask(hall, TURNS % (b"", b""))
        assert status == 200, (value.name, said)
        assert said["choices"][0]["message"]["tool_calls"] == [call], value.name
        hall.cell("model's tool call", "answer")
    hall.upstream.answer = hall.upstream.completes
    await hall.healthy()


def called(**fields: Any) -> dict[str, Any]:
    """A chunk with a piece of a tool call."""
    return delta(tool_calls=[{"index": 0, **fields}])


def events_of(said: bytes) -> list[Any]:
    """Return the events of an answer that is a stream."""
    lines = [line[6:] for line in said.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


@pytest.mark.timeout(300)
async def test_a_tool_call_that_comes_in_pieces_is_given_to_the_caller_as_it_came(
    hall: House,
) -> None:
    for value in CARRIED:
        text = value.text.decode()
        cut = len(text) // 2
        name = value.expected if isinstance(value.expected, str) and value.expected else "f"
        hall.upstream.answer = hall.upstream.streams(
            called(id="1", type="function", function={"name": name, "arguments": text[:cut]}),
            called(function={"arguments": text[cut:]}),
            delta("tool_calls"),
            TIDAL[-1],
        )
        status, said = await ask(hall, STREAMED)
        assert status == 200, (value.name, said)
        assert said.endswith(b"data: [DONE]\n\n"), (value.name, said[-300:])
        choices = [one["choices"][0] for one in events_of(said) if one["choices"]]
        functions = [
            call["function"] for one in choices for call in one["delta"].get("tool_calls", ())
        ]
        assert "".join(one["arguments"] for one in functions) == text, value.name
        assert functions[0]["name"] == name, value.name
        assert choices[-1]["finish_reason"] == "tool_calls", value.name
        hall.cell("model's streamed tool call", "answer")
    hall.upstream.answer = hall.upstream.completes
    await hall.healthy()


PIECES: dict[str, Any] = {
    "half of a pair": called(function={"name": "f", "arguments": '"\ud800'}),
    "half of a pair in a name": called(function={"name": "\udfff", "arguments": ""}),
    "half of a pair in a key": called(**{"\ud800": 1}),
    "nul": called(id="a\x00b", function={"name": "a\x00", "arguments": "\x00"}),
    "an index of text": called(index="x"),
    "an index of 2^70": called(index=2**70),
    "an index below nothing": called(index=-(2**70)),
    "an index that is infinite": b'{"choices": [{"delta": {"tool_calls": [{"index": 1e400}]}}]}',
    "arguments that are no text": called(function={"arguments": {"a": 1}}),
    "a name that is no text": called(function={"name": [1], "arguments": ""}),
    "an id that is no text": called(id={"a": 1}),
    "calls that are no list": delta(tool_calls="x"),
    "calls that are no objects": delta(tool_calls=[1, None, "x"]),
    "a function that is none": delta(tool_calls=[{"index": 0, "function": 1}]),
    "a delta that is none": {"choices": [{"index": 0, "delta": "x"}]},
    "choices that are none": {"choices": 1},
    "a chunk that is none": 1,
    "NaN": b'{"choices": [{"delta": {"tool_calls": [{"index": NaN}]}}]}',
    "NaN beside": b'{"choices": [{"index": 0, "delta": {"x": [NaN, Infinity, 1e400]}}]}',
    "not UTF-8": b'{"choices": [{"index": 0, "delta": {"content": "\xff\xed\xa0\x80"}}]}',
    "depth 100,000": b"[" * 100_000 + b"]" * 100_000,
    "depth 100,000 beside": b'{"choices": [], "x": %s}' % (b"[" * 100_000 + b"]" * 100_000),
    "100,000 digits": b'{"choices": [{"index": %s, "delta": {}}]}' % (b"1" * 100_000),
    "a key twice": b'{"choices": [], "choices": [{"index": 0, "delta": {"content": "x"}}]}',
    "not JSON": b"{",
    "nothing": b"",
}
"""What a model may send in the middle of a stream."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_hostile_piece_of_a_stream_ends_its_own_answer_and_nothing_else(
    hall: House, api: str
) -> None:
    for name, piece in PIECES.items():
        first = called(id="1", type="function", function={"name": "f", "arguments": "{"})
        hall.upstream.answer = hall.upstream.streams(first, piece, delta("tool_calls"), TIDAL[-1])
        if api == "chat":
            status, said = await ask(hall, STREAMED)
        else:
            body = b'{"model": "scripted", "input": "?", "stream": true}'
            status, said = await raw(
                hall.platform.gateway_url,
                "POST",
                "/v1/responses",
                dict(JSON),
                body,
                key=hall.platform.api_key,
            )
        assert status == 200, (name, said)
        events = events_of(said)
        assert events, name
        told = [one for one in events if one.get("error")]
        ended = said.endswith(b"data: [DONE]\n\n") or b"response.completed" in said
        assert ended or told or b"response.failed" in said, (name, said[-300:])
        said.decode()  # whatever came is text
        hall.cell(f"hostile piece of a stream ({api})", "answer")
    hall.upstream.answer = hall.upstream.completes
    await hall.healthy()


@pytest.mark.timeout(300)
async def test_a_node_whose_model_calls_tools_ends_with_text_or_an_error(hall: House) -> None:
    for name, piece in PIECES.items():
        calls = piece.get("choices") if isinstance(piece, dict) else None
        message = calls[0].get("delta") if isinstance(calls, list) else {"tool_calls": name}
        if not isinstance(message, dict):
            continue
        outcome = await by_model(hall, {"content": None, **message})
        assert outcome.status in ("succeeded", "failed"), (name, outcome)
        hall.cell("model's tool call", "node")
    hall.upstream.answer = hall.upstream.completes
    await hall.healthy()


TEXTS = (
    b"a\x00b", b"\x1b[31m", "\u202ex".encode(), "Ze\u0301".encode(), "👩".encode(), b"x" * 256,
    b"x" * 257, b"x" * 5_000, b"{{ 7*7 }}", b"'; DROP TABLE hocket.usage; --", b"<script>", b"\xff",
    b"\xed\xa0\x80", b"1e-20000", b"1e200000", b"-0", b"NaN", b"0x10", "\u0661".encode(), b"1_000",
    b"9" * 200, b"-1", b"inf", b"a=b", b"a=b,a=c", b"..", b"*", b">", b"a.b", b"\x85", b"",
)  # fmt: skip
HEADERS = (*identity.HEADERS, *identity.RUN_HEADERS[1:], identity.CLIENT_TIMEOUT_S)
REPORTS = ("usage", "cost_by_node", "cost_by_pipeline_day", "cost_by_kind")
SHOWN = {"X-Hocket-Pipeline": "pipeline", "X-Hocket-Node": "node", "X-Hocket-Step": "step"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("header", HEADERS)
async def test_a_header_is_taken_or_refused_by_its_name(hall: House, header: str) -> None:
    hall.upstream.answer = hall.upstream.completes
    for text in TEXTS:
        status, said = await ask(hall, TURNS % (b"", b""), **{header: text})
        where = (header, text[:20], status, said)
        assert status < 500 or (status, header) == (504, identity.TIMEOUT_MS), where
        if status != 200:
            assert not UNSAFE.search(said["error"]["message"]), where
            if said["error"]["code"] not in ("http_malformed", "no_backend_suits"):
                assert status == 504 or header.lower() in json.dumps(said["error"]).lower(), where
            hall.cell(f"header {header}", "refusal")
        else:
            hall.cell(f"header {header}", "taken")
    await hall.healthy()


@pytest.mark.timeout(300)
async def test_names_from_headers_show_in_calls_costs_reports_and_lists(hall: House) -> None:
    hall.upstream.answer = hall.upstream.completes
    taken: dict[str, str] = {}
    for number, text in enumerate(TEXTS):
        run_id = f"shown-{number}"
        given = dict.fromkeys(SHOWN, text)
        status, _ = await ask(
            hall, TURNS % (b"", b""), **{"X-Hocket-Run-Id": run_id.encode(), **given}
        )
        if status == 200 and text:
            taken[run_id] = text.decode()
    assert len(taken) > 10

    async def booked() -> bool:
        count = "SELECT count(*) FROM hocket.usage WHERE run_id LIKE 'shown-%'"
        return await hall.database.fetchval(count) >= len(taken)

    await eventually(booked)
    for run_id, text in taken.items():
        (call,) = (await hall.get("/v1/calls", run=run_id))["calls"]
        assert {call[field] for field in SHOWN.values()} == {text}, (run_id, call)
        hall.cell("name in a header", "REST calls")
        explained = await hall.get(f"/v1/calls/{call['call_id']}")
        assert explained["attempts"][0]["node"] == text
        hall.cell("name in a header", "REST call")
        row = await hall.database.fetchrow("SELECT * FROM report.usage WHERE run_id = $1", run_id)
        assert (row["pipeline"], row["node"], row["step"]) == (text, text, text)
        hall.cell("name in a header", "report.usage")
    names = set(taken.values())
    for view in REPORTS:
        rows = await hall.database.fetch(f"SELECT DISTINCT pipeline FROM report.{view}")
        assert names <= {row["pipeline"] for row in rows}, view
        hall.cells[f"name in a header -> report.{view}"] += len(names)
    for place in ("pipelines", "nodes", "kinds"):
        costs = (await hall.get(f"/v1/costs/{place}"))["costs"]
        assert names <= {row["pipeline"] for row in costs}, place
        hall.cells[f"name in a header -> REST costs by {place}"] += len(names)
    for by in ("pipeline", "node", "kind"):
        shown, error = await hall.cli("cost", "--by", by)
        assert error is None, shown
        assert not UNSAFE.search(shown), by
        printed, error = await hall.cli("cost", "--by", by, "--json")
        assert error is None, printed
        assert names <= {row["pipeline"] for row in json.loads(printed)}, by
        hall.cells[f"name in a header -> CLI cost by {by}"] += 2 * len(names)
    await hall.healthy()


async def test_what_people_wrote_shows_in_the_lists_of_the_command_line(hall: House) -> None:
    texts = [one for one in CARRIED if isinstance(one.expected, str) and len(one.text) < 2_000]
    node = {"a": {"type": "signal", "signal": "x", "wait_ms": 1000}}
    wanted: dict[str, str] = {}
    for number, value in enumerate(texts):
        spec = {"pipeline": f"said-{number}", "nodes": node, "description": value.expected}
        status, said = await hall.post("/v1/pipelines", json.dumps(spec).encode())
        assert status == 201, (value.name, said)
        wanted[spec["pipeline"]] = value.expected
    shown, error = await hall.cli("pipeline", "list")
    assert error is None, shown
    assert not UNSAFE.search(shown)
    printed, error = await hall.cli("pipeline", "list", "--json")
    assert error is None, printed
    found = {one["pipeline"]: one["description"] for one in json.loads(printed)}
    assert {name: found[name] for name in wanted} == wanted
    for name in wanted:
        assert not UNSAFE.search((await hall.cli("pipeline", "show", name))[0]), name
    hall.cells["description -> CLI pipeline list, --json, show"] += 3 * len(wanted)
    for arguments in (("runs", "list"), ("cost", "--by", "run"), ("cost", "--by", "cache")):
        shown, error = await hall.cli(*arguments)
        assert error is None, shown
        assert not UNSAFE.search(re.sub("\n", "", shown)), arguments
        hall.cell("runs of the suite", f"CLI {' '.join(arguments)}")
    await hall.healthy()
