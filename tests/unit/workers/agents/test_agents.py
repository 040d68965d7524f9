"""Agents: rounds of a model that calls tools, played by the coordinator's own rules."""

import json
import sys
import types
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from hocket.schemas.messages import CallRequest
from hocket.testing import Answer, ModelFails, Play
from hocket.testing.played import Played
from hocket.workers.agents import conversation
from hocket.workers.agents.conversation import _told
from hocket.workers.agents.limits import longest_ms
from hocket.workers.agents.state import Rounds

WORD = {"type": "object", "required": ["word"], "properties": {"word": {"type": "string"}}}
SEARCH = {
    "description": "Find a note by a word.",
    "parameters": WORD | {"additionalProperties": False},
    "node": {"type": "python", "handler": "shop_tools:search"},
}
NOTES = {"lamp": "A lamp can be returned within thirty days."}


async def search(given: dict[str, Any]) -> str:
    if given["word"] == "broken":
        raise ValueError("the index is away")
    return NOTES.get(given["word"], "There is no such note.")


async def count(_given: dict[str, Any]) -> int:
    return 3


@pytest.fixture(autouse=True)
def tools() -> Iterator[None]:
    module = types.ModuleType("shop_tools")
    search.__module__ = count.__module__ = module.__name__
    module.search = search  # type: ignore[attr-defined]
    module.count = count  # type: ignore[attr-defined]
    sys.modules["shop_tools"] = module
    yield
    del sys.modules["shop_tools"]


def agent(**fields: Any) -> dict[str, Any]:
    """Return a pipeline with one agent."""
    node = {
        "type": "agent",
        "model": "writer",
        "with": {"question": "{{ input.question }}"},
        "tools": {"search": SEARCH},
    }
    return {
        "pipeline": "help",
        "slo_ms": 60_000,
        "nodes": {"ask": node | fields},
        "output": "{{ nodes.ask.output }}",
    }


def call(name: str, arguments: Any, number: int = 1) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {
        "id": f"of-the-model-{number}",
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def calls(*made: dict[str, Any], **fields: Any) -> Answer:
    return Answer(tool_calls=list(made), **fields)


def played(pipeline: dict[str, Any], *answers: Any, question: str = "What of lamps?") -> Played:
    play = Play(pipeline)
    play.model("writer", *answers)
    return play.run({"question": question})


def told(played: Played, number: int) -> list[tuple[str, str]]:
    """Return what the model was told in a round."""
    return [(one.role, one.content) for one in played.calls[number - 1].request.messages]


def code_of(played: Played) -> str | None:
    return None if played.error is None else played.error.code


def test_every_round_and_every_call_of_a_tool_is_a_step() -> None:
    done = played(
        agent(),
        calls(call("search", {"word": "lamp"}, 1), call("search", {"word": "rope"}, 2)),
        calls(call("search", {"word": "chair"})),
        "Within thirty days.",
    )
    assert done.status == "succeeded", str(done)
    assert (done.output["text"], done.output["rounds"]) == ("Within thirty days.", 3)
    assert done.output["tool_calls"] == 3
    assert set(done.steps) == {
        "ask",
        "ask#1",
        "ask#1/search_1",
        "ask#1/search_2",
        "ask#2",
        "ask#2/search_1",
        "ask#3",
    }
    assert done.steps["ask#1/search_1"].input == {"word": "lamp"}
    assert told(done, 3)[1:] == [
        ("assistant", ""),
        ("tool", NOTES["lamp"]),
        ("tool", "There is no such note."),
        ("assistant", ""),
        ("tool", "There is no such note."),
    ]
    ids = [one.tool_call_id for one in done.calls[2].request.messages if one.role == "tool"]
    assert ids == ["call_1_1", "call_1_2", "call_2_1"]
    function = {
        "name": "search",
        "description": SEARCH["description"],
        "parameters": SEARCH["parameters"],
    }
    assert done.calls[0].request.tools == ({"type": "function", "function": function},)


@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        (call("drop_all", {}), "there is no tool `drop_all`; available tools: search"),
        (call("sea\u0433ch", {}), "there is no tool `sea\u0433ch`; available tools: search"),
        (call("search" + "x" * 9_000, {}), f"there is no tool `search{'x' * 58}`; available"),
        (call("search", {"phrase": "lamp"}), "the arguments do not fit"),
        (call("search", {"word": 7}), "the arguments do not fit: `word`"),
        (call("search", "{not json"), "`arguments`: it is not JSON"),
        (call("search", "[1]"), "the arguments are not a JSON object"),
        (call("search", '{"word": NaN}'), "`arguments`: it is not JSON"),
        (call("search", '{"word": "a", "word": "b"}'), "the key `word` is used twice"),
        (call("search", "[" * 9_000), "`arguments`: "),
        (call("search", json.dumps({"word": "x" * 70_000})), "more than 65536 characters"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_call_that_cannot_be_is_told_to_the_model_and_runs_nothing(
    hostile: dict[str, Any], said: str
) -> None:
    done = played(agent(), calls(hostile), "Then I do not know.")
    assert done.status == "succeeded", str(done)
    assert set(done.steps) == {"ask", "ask#1", "ask#2"}
    role, content = told(done, 2)[-1]
    assert role == "tool"
    assert said in content, content


def test_what_goes_back_to_a_model_is_what_its_provider_takes() -> None:
    odd = [call("rm -rf / ☠", {}), call("search", "{not json"), call("", "[1]")]
    done = played(agent(), calls(*odd), "Then I do not know.")
    told_calls = done.calls[1].request.messages[1].tool_calls
    assert [(one["id"], one["function"]["name"]) for one in told_calls] == [
        ("call_1_1", "rm_-rf____"),
        ("call_1_2", "search"),
        ("call_1_3", "_"),
    ]
    assert {one["function"]["arguments"] for one in told_calls} == {"{}"}


@pytest.mark.parametrize(
    "hostile",
    [
        [{"id": "1", "type": "function"}],
        [{"id": "1", "function": {"name": 7, "arguments": "{}"}}],
        [call("search", {"word": "a"})] * 129,
        [call("search", {"word": "x" * 60_000})] * 5,
    ],
    ids=["no function", "a number for a name", "129 of them", "too large"],
)
def test_an_answer_whose_calls_cannot_be_read_fails_the_agent(hostile: list[Any]) -> None:
    assert code_of(played(agent(), calls(*hostile))) == "agent_calls_invalid"


def test_what_a_model_says_is_data_wherever_it_goes() -> None:
    trap = "{{ nodes.ask.output }}{% for x in range(9) %}{{ input }}{% endfor %}"
    done = played(agent(), calls(call("search", {"word": trap})), trap)
    assert done.steps["ask#1/search_1"].input == {"word": trap}
    assert done.output["text"] == trap


@pytest.mark.parametrize(
    ("called", "tool"),
    [("drop all", "drop_all"), ("drop\u2024all", "drop_all")],
)
def test_a_name_that_is_almost_a_tools_runs_nothing(called: str, tool: str) -> None:
    done = played(agent(tools={tool: SEARCH}), calls(call(called, {"word": "lamp"})), "No.")
    assert set(done.steps) == {"ask", "ask#1", "ask#2"}, str(done)
    assert told(done, 2)[-1][1].startswith("Error: there is no tool `")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"price": NaN}', "price: None is not of type 'number'"),
        ('{"price": 1e400}', "price: None is not of type 'number'"),
        ('{"price": ' + "[" * 900 + "]" * 900 + "}", "it nests deeper than 64 levels"),
    ],
    ids=lambda given: given[:16],
)
def test_an_answer_that_cannot_be_kept_as_it_is_fits_no_schema(answer: str, said: str) -> None:
    schema = {"properties": {"price": {"type": "number", "enum": [7]}}}
    done = played(agent(response_schema=schema), answer, '{"price": 7}')
    assert (done.status, done.output and done.output["data"]) == ("succeeded", {"price": 7})
    assert said in told(done, 2)[-1][1]


def test_a_tool_that_fails_is_told_to_the_model_and_degrades_nothing() -> None:
    done = played(agent(), calls(call("search", {"word": "broken"})), "I could not look it up.")
    assert done.status == "succeeded", str(done)
    assert done.steps["ask#1/search_1"].state == "failed"
    assert told(done, 2)[-1][1].startswith("Error (handler_failed): ")
    assert "the index is away" in told(done, 2)[-1][1]


def test_calls_beyond_the_bound_of_a_round_are_not_carried_out() -> None:
    many = [call("search", {"word": "lamp"}, i) for i in range(4)]
    done = played(agent(max_calls=2), calls(*many), "Done.")
    assert len([key for key in done.steps if "/" in key]) == 2
    refused = [content for _, content in told(done, 2) if content.startswith("Error")]
    assert refused == ["Error: one answer may have at most 2 calls; call it again if needed."] * 2


def test_endless_rounds_end_with_one_that_has_no_tools() -> None:
    again = calls(call("search", {"word": "lamp"}))
    done = played(agent(max_rounds=3), again, again, "Within thirty days.")
    assert done.output["text"] == "Within thirty days."
    assert [one.request.tool_choice for one in done.calls] == [None, None, "none"]
    assert told(done, 3)[-1][0] == "user"
    assert code_of(played(agent(max_rounds=3), again, again, again)) == "agent_unfinished"


def test_a_bound_on_tokens_makes_a_round_the_last_or_ends_the_agent() -> None:
    again = calls(call("search", {"word": "lamp"}), input_tokens=400, output_tokens=100)
    last = Answer("Within thirty days.", input_tokens=400, output_tokens=50)
    done = played(agent(max_total_tokens=1_400), again, last)
    assert [one.request.tool_choice for one in done.calls] == [None, "none"]
    assert done.calls[1].request.max_tokens == 900
    assert done.output["usage"]["input_tokens"] == 800
    assert code_of(played(agent(max_total_tokens=500), again)) == "agent_tokens_exhausted"


def test_a_budget_holds_for_the_model_and_its_tools_together() -> None:
    again = calls(call("search", {"word": "lamp"}), cost_usd="0.04")
    done = played(agent(budget_usd="0.10"), again, Answer("Thirty days.", cost_usd="0.04"))
    assert [one.request.tool_choice for one in done.calls] == [None, "none"]
    assert done.cost_usd == Decimal("0.08")
    dear = calls(call("search", {"word": "lamp"}), cost_usd="0.20")
    over = played(agent(budget_usd="0.10"), dear)
    assert code_of(over) == "agent_budget_exhausted"
    assert len(over.calls) == 1


def test_what_tools_spend_counts_for_the_agent() -> None:
    paid = SEARCH | {"node": {"type": "llm", "model": "finder", "prompt": "{{ input.word }}"}}
    play = Play(agent(budget_usd="0.10", tools={"search": paid}))
    play.model("writer", *[calls(call("search", {"word": "lamp"}))] * 5)
    play.model("finder", *[Answer("found", cost_usd="0.05")] * 5)
    over = play.run({"question": "What of lamps?"})
    assert code_of(over) == "agent_budget_exhausted"
    assert over.cost_usd == Decimal("0.10")
    assert [one.model for one in over.calls] == ["writer", "finder"] * 2


def test_a_round_is_the_last_where_another_would_come_too_late() -> None:
    slow = calls(call("search", {"word": "lamp"}), takes_ms=25_000)
    done = played(agent(), slow, Answer("Thirty days.", takes_ms=1_000))
    assert done.status == "succeeded", str(done)
    assert [one.request.tool_choice for one in done.calls] == [None, "none"]
    assert not done.missed_deadline


def test_the_time_that_a_tool_waits_for_a_person_makes_no_round_the_last() -> None:
    asks = {"type": "approval", "prompt": "May it?", "pause_deadline": True}
    tools = {"person": {"parameters": WORD, "node": asks}, "search": SEARCH}
    play = Play(agent(tools=tools))
    play.model(
        "writer",
        calls(call("person", {"word": "lamp"})),
        calls(call("search", {"word": "lamp"})),
        "Thirty days.",
    )
    play.approves("person_1", after_ms=3_600_000)
    done = play.run({"question": "What of lamps?"})
    assert done.status == "succeeded", str(done)
    assert [one.request.tool_choice for one in done.calls] == [None, None, None]


def test_a_run_that_goes_on_an_hour_later_has_as_many_rounds_as_it_had() -> None:
    hour_ms = 3_600_000.0
    before = Rounds(rounds=1, began_at_ms=1_000.0, longest_ms=0.0, run_ends_at_ms=61_000.0)
    took = longest_ms(before, now_ms=6_000.0 + hour_ms, run_ends_at_ms=61_000.0 + hour_ms)
    assert took == 5_000.0


def test_an_answer_that_does_not_fit_is_asked_for_again() -> None:
    schema = {"type": "object", "required": ["days"], "properties": {"days": {"type": "integer"}}}
    done = played(agent(response_schema=schema), "thirty", Answer(data={"days": 30}))
    assert done.output["data"] == {"days": 30}
    assert told(done, 2)[-1][1].startswith("Your answer does not fit: ")
    failed = played(agent(response_schema=schema, max_rounds=2), "thirty", "30 days")
    assert code_of(failed) == "model_reply_invalid"


@pytest.mark.parametrize(
    ("bounds", "cure"),
    [
        ({"max_tokens": 7}, "Raise `max_tokens`"),
        ({"max_tokens": 7, "max_total_tokens": 90}, "Raise `max_tokens`"),
        ({"max_tokens": 70, "max_total_tokens": 7}, "Raise `max_total_tokens`, or"),
    ],
)
def test_json_that_was_cut_off_is_not_asked_for_again(bounds: dict[str, Any], cure: str) -> None:
    cut = Answer('{"days": 3', output_tokens=7, finish_reason="length")
    done = played(agent(response_schema={"type": "object"}, **bounds), cut)
    assert (code_of(done), len(done.calls)) == ("model_reply_cut", 1)
    assert done.error is not None
    assert "cut off at 7 tokens" in done.error.message
    assert cure in done.error.message


def test_the_output_of_an_agent_says_whether_its_answer_is_complete() -> None:
    again = calls(call("search", {"word": "lamp"}))
    whole = played(agent(), again, "Within thirty days.")
    cut = played(agent(), again, Answer("Within thi", finish_reason="length"))
    assert (whole.output["finish_reason"], cut.output["finish_reason"]) == ("stop", "length")


def test_a_call_whose_arguments_were_cut_off_is_told_to_the_model_as_that() -> None:
    cut = calls(call("search", '{"word": "la'), finish_reason="length")
    done = played(agent(), cut, "Then I do not know.")
    assert told(done, 2)[-1] == (
        "tool",
        "Error: your answer was cut off at the token limit; send shorter arguments.",
    )


def counting(parameters: dict[str, Any]) -> dict[str, Any]:
    node = SEARCH["node"] | {"handler": "shop_tools:count"}
    return {"count": {"parameters": parameters, "node": node}}


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"of": {"type": "string"}}},
        {"type": "object", "anyOf": [{"properties": {"of": {"type": "string"}}}]},
    ],
)
def test_a_last_call_that_was_cut_off_before_its_arguments_is_not_made(
    parameters: dict[str, Any],
) -> None:
    cut = calls(call("count", ""), call("count", "", 2), finish_reason="length")
    whole = calls(call("count", ""))
    done = played(agent(tools=counting(parameters)), cut, whole, "Three.")
    assert done.status == "succeeded", str(done)
    assert [one for one in done.steps if "/" in one] == ["ask#1/count_1", "ask#2/count_1"]
    assert [text for role, text in told(done, 2) if role == "tool"] == [
        "3",
        "Error: your answer was cut off at the token limit; send shorter arguments.",
    ]


@pytest.mark.parametrize("parameters", [{}, {"properties": {}, "additionalProperties": False}])
def test_a_last_call_of_a_tool_without_parameters_is_made_though_the_answer_was_cut_off(
    parameters: dict[str, Any],
) -> None:
    cut = calls(call("count", ""), finish_reason="length")
    done = played(agent(tools=counting({"type": "object"} | parameters)), cut, "Three.")
    assert [text for role, text in told(done, 2) if role == "tool"] == ["3"]


def test_a_model_that_fails_is_asked_again_where_the_agent_says_so() -> None:
    pipeline = agent(retry={"max_attempts": 2, "on": ["unavailable"]})
    done = played(
        pipeline,
        calls(call("search", {"word": "lamp"})),
        ModelFails("unavailable"),
        "Within thirty days.",
    )
    assert done.output["text"] == "Within thirty days."
    assert done.steps["ask#2"].attempts == 2
    assert len([key for key in done.steps if "/" in key]) == 1


@pytest.mark.parametrize(
    ("data", "is_text"),
    [
        (None, True),
        ({"result": "Found 3 orders."}, True),
        ({"result": ["Found 3 orders."]}, True),
        ({"orders": [1, 2, 3]}, False),
    ],
)
def test_data_that_a_tools_text_does_not_say_is_told(data: Any, is_text: bool) -> None:
    output = {"text": "Found 3 orders.", "data": data}
    said = _told({"output": output}, 1_000, is_remote=True)
    assert said == ("Found 3 orders." if is_text else json.dumps(output))


def test_data_that_is_the_text_is_told_once() -> None:
    output = {"text": '{"orders": [1]}', "data": {"orders": [1]}}
    assert _told({"output": output}, 1_000, is_remote=True) == '{"orders": [1]}'


def test_a_text_that_is_longer_than_what_the_model_gets_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation.json, "loads", None)
    text = json.dumps({"orders": [1] * 1_000})
    output = {"text": text, "data": {"orders": [1]}, "content": []}
    said = _told({"output": output}, 100, is_remote=True)
    assert said == f"{text[:100]}\n(cut: it has {len(text)} characters)"


def test_a_text_of_very_many_values_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation.json, "loads", None)
    output = {"text": f"[{'[],' * 200_000}[]]", "data": {"orders": [1]}, "content": []}
    assert _told({"output": output}, 1_000_000, is_remote=True) == json.dumps(output)


@pytest.mark.parametrize("most", [100, 20_000])
def test_of_a_large_result_only_the_beginning_is_written(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = {"status": 200, "body": [{"grün": number} for number in range(20_000)]}
    whole = json.dumps(output, ensure_ascii=False)
    monkeypatch.setattr(conversation.json, "dumps", None)
    said = _told({"output": output}, most, is_remote=False)
    assert said == f"{whole[:most]}\n(cut: it has more than {most} characters)"


def test_long_results_are_cut() -> None:
    NOTES["long"] = "x" * 1_000
    done = played(agent(max_result_chars=100), calls(call("search", {"word": "long"})), "Done.")
    assert told(done, 2)[-1][1] == "x" * 100 + "\n(cut: it has 1000 characters)"


def test_a_conversation_that_is_too_long_for_a_call_is_cut_where_tools_said_most() -> None:
    NOTES["long"] = '"' * 200_000
    again = calls(call("search", {"word": "long"}), call("search", {"word": "lamp"}))
    done = played(agent(max_result_chars=1_000_000), again, again, again, "Done.")
    assert done.status == "succeeded", str(done)
    messages = done.calls[-1].request.messages
    assert sum(len(one.model_dump_json()) for one in messages) < 400_000
    results = [one.content for one in messages if one.role == "tool"]
    assert results[1::2] == [NOTES["lamp"]] * 3
    assert results[0].endswith("(cut: the conversation is too long)")


def test_a_tool_can_be_a_graph_a_pipeline_an_approval_or_another_agent() -> None:
    two = {
        "type": "graph",
        "nodes": {
            "first": {
                "type": "python",
                "handler": "shop_tools:search",
                "with": {"word": "{{ input.word }}"},
            },
            "then": {
                "type": "python",
                "handler": "hocket.workers.builtin:echo",
                "with": {"found": "{{ nodes.first.output }}"},
            },
        },
    }
    inner = {
        "type": "agent",
        "model": "helper",
        "prompt": "{{ input.word }}",
        "tools": {"search": SEARCH},
    }
    looking = {
        "pipeline": "look",
        "nodes": {
            "a": {
                "type": "python",
                "handler": "shop_tools:search",
                "with": {"word": "{{ input.word }}"},
            }
        },
    }
    tools = {
        "graph": {"parameters": WORD, "node": two},
        "look": {"parameters": WORD, "node": {"type": "pipeline", "pipeline": "look"}},
        "person": {"parameters": WORD, "node": {"type": "approval", "prompt": "May it?"}},
        "helper": {"parameters": WORD, "node": inner},
    }
    play = Play(agent(tools=tools), pipelines=[looking])
    play.model(
        "writer",
        calls(*[call(name, {"word": "lamp"}, i) for i, name in enumerate(tools)]),
        "Done.",
    )
    play.model("helper", calls(call("search", {"word": "lamp"})), "Thirty days, says the note.")
    play.approves("person_3", note="yes")
    done = play.run({"question": "What of lamps?"})
    assert done.status == "succeeded", str(done)
    said = [content for role, content in _last(done, "writer") if role == "tool"]
    assert json.loads(said[0]) == {"found": NOTES["lamp"]}
    assert said[1] == NOTES["lamp"]
    assert json.loads(said[2])["approved"] is True
    assert json.loads(said[3])["text"] == "Thirty days, says the note."
    assert "ask#1/helper_4#1/search_1" in done.steps


def _last(done: Played, model: str) -> list[tuple[str, str]]:
    request: CallRequest = [one.request for one in done.calls if one.model == model][-1]
    return [(one.role, one.content) for one in request.messages]


def test_agents_run_side_by_side_in_a_map() -> None:
    pipeline = agent(map={"over": "{{ input.words }}"}, **{"with": {"question": "{{ item }}"}})
    play = Play(pipeline)

    def answer(request: CallRequest) -> Answer:
        if request.messages[-1].role == "user":
            return calls(call("search", {"word": request.messages[0].content}))
        return Answer(request.messages[-1].content)

    play.model("writer", by=answer)
    done = play.run({"words": ["lamp", "rope"]})
    assert [one["text"] for one in done.output] == [NOTES["lamp"], "There is no such note."]


@pytest.mark.parametrize("question", ["", "   "])
def test_an_agent_without_a_task_fails(question: str) -> None:
    assert code_of(played(agent(), "Hello.", question=question)) == "invalid_input"
