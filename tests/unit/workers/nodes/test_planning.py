"""The planning node: what a model is told, and which of its answers become a plan."""

from typing import Any

import pytest

from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import CallReply, CallRequest, Priority
from hocket.schemas.pipeline.node_parts import CatalogParam
from hocket.schemas.pipeline.policy import PlanRefused
from hocket.schemas.structs.steps import RequestedStep
from hocket.testing import Answer, Play
from hocket.workers.errors import ModelReplyCut, ModelReplyInvalid
from hocket.workers.nodes.catalog import MAX_TEXT_CHARS, _checked_param
from hocket.workers.nodes.planning import PlanningNode
from hocket.workers.nodes.retrieval import queries_of
from hocket.workers.runtime.execution.context import Context

CATALOG = [
    {
        "name": "rain",
        "description": "Rain by day in one city",
        "sql": "SELECT day, mm FROM w.rain WHERE city = :city AND day >= :since",
        "params": {
            "city": {"type": "text", "values": "SELECT city FROM w.rain"},
            "since": {"type": "date", "default": "2020-01-01"},
        },
    },
    {
        "name": "top",
        "description": "The wettest days",
        "sql": "SELECT day FROM w.rain ORDER BY mm DESC LIMIT :n",
        "params": {"n": {"type": "integer"}},
    },
]


class Answers:
    def __init__(self, **reply: Any) -> None:
        self.requests: list[CallRequest] = []
        self._reply = reply

    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        self.requests.append(request)
        return CallReply(call_id=request.call_id, model=request.model, backend="b", **self._reply)


class Cities:
    """Values of parameters, and what was asked for them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def load(self, tenant: str, database: str, sql: str, *, timeout_ms: float) -> list[Any]:
        self.asked.append((database, sql))
        return ["Oslo", "Bergen"]


async def plan(calls: Answers, step_input: Any = None, **config: Any) -> dict[str, Any]:
    step_input = {"question": "How wet is Oslo?"} if step_input is None else step_input
    step = RequestedStep(
        run_id="r1",
        tenant="t",
        pipeline="p",
        version=1,
        step="plan",
        node="plan",
        type="planning",
        attempt=1,
        input=step_input,
        config={"model": "planner", "catalog": CATALOG, "database": "weather", **config},
        deadline_at_ms=0,
        slack_ms=0,
        timeout_ms=1,
        priority=Priority.STANDARD,
        partition=0,
        epoch=0,
    )
    context = Context(
        step, step_input, attempt_id="r1:plan:1", delivery=1, deadline_at_ms=0, calls=calls
    )
    return await PlanningNode(Cities())(context)


def chosen(*queries: dict[str, Any], **more: Any) -> Answers:
    return Answers(data={"questions": ["q1"], "searches": ["s1"], "queries": list(queries), **more})


async def test_a_plan_holds_the_authors_sql_and_the_models_parameters() -> None:
    output = await plan(chosen({"name": "rain", "params": {"city": "oslo"}}))
    assert output["questions"] == ["q1"]
    assert output["searches"] == ["s1"]
    assert output["queries"] == [
        {
            "name": "rain",
            "sql": CATALOG[0]["sql"],
            "params": {"city": "Oslo", "since": "2020-01-01"},
        }
    ]


async def test_a_prompt_tells_the_catalog_with_its_values_and_without_its_sql() -> None:
    calls = chosen()
    await plan(calls)
    told = calls.requests[0].messages[0].content
    assert '"values": ["Oslo", "Bergen"]' in told
    assert "Rain by day in one city" in told
    assert "SELECT" not in told


async def test_a_built_in_model_gets_the_catalog_and_the_values_by_their_select() -> None:
    calls = chosen()
    await plan(calls)
    (request,) = calls.requests
    assert request.task == "plan"
    assert request.context["values"] == {"SELECT city FROM w.rain": ["Oslo", "Bergen"]}
    assert [query["name"] for query in request.context["catalog"]] == ["rain", "top"]


async def test_a_plan_without_questions_and_searches_falls_back_on_the_question() -> None:
    output = await plan(chosen(questions=[], searches=[]))
    assert (output["questions"], output["searches"]) == (
        ["How wet is Oslo?"],
        ["How wet is Oslo?"],
    )


async def test_a_query_chosen_twice_is_run_once() -> None:
    top = {"name": "top", "params": {"n": 3}}
    assert len((await plan(chosen(top, top)))["queries"]) == 1


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"name": "DROP TABLE x"}, "queries.0.name"),
        ({"name": "top", "params": {"n": 1, "x": 2}}, "queries.0.params.x"),
        ({"name": "top", "params": {}}, "queries.0.params.n"),
        ({"name": "top", "params": {"n": "many"}}, "queries.0.params.n"),
        ({"name": "top", "params": {"n": True}}, "queries.0.params.n"),
        ({"name": "rain", "params": {"city": "Rome"}}, "queries.0.params.city"),
        ({"name": "rain", "params": {"city": {"a": 1}}}, "queries.0.params.city"),
        ({"name": "rain", "params": {"city": "Oslo", "since": "soon"}}, "queries.0.params.since"),
    ],
)
async def test_a_choice_that_the_catalog_does_not_have_is_refused_with_its_place(
    query: dict[str, Any], field: str
) -> None:
    with pytest.raises(PlanRefused) as refused:
        await plan(chosen(query))
    assert refused.value.info().field == field


@pytest.mark.parametrize(
    ("kind", "value", "typed"),
    [
        ("integer", "3", 3),
        ("integer", 3.0, 3),
        ("number", "2.5", 2.5),
        ("boolean", "True", True),
        ("text", 7, "7"),
        ("date", "2024-02-29", "2024-02-29"),
    ],
)
async def test_a_parameter_gets_the_type_its_author_gave(kind: str, value: Any, typed: Any) -> None:
    catalog = [{"name": "q", "description": "d", "sql": "s", "params": {"p": {"type": kind}}}]
    output = await plan(chosen({"name": "q", "params": {"p": value}}), catalog=catalog)
    assert output["queries"][0]["params"] == {"p": typed}


async def test_more_queries_than_the_node_allows_are_refused() -> None:
    many = [{"name": "top", "params": {"n": n}} for n in range(3)]
    with pytest.raises(ModelReplyInvalid, match="queries"):
        await plan(chosen(*many), max_queries=2)


async def test_an_answer_that_is_no_plan_is_a_typed_error() -> None:
    with pytest.raises(ModelReplyInvalid):
        await plan(Answers(text="I would look at the rain."))


async def test_values_without_a_database_are_refused() -> None:
    with pytest.raises(InvalidInput, match="`database`"):
        await plan(chosen(), database=None)


async def test_emitted_steps_are_given_as_they_are() -> None:
    steps = {"nodes": {"a": {"type": "llm"}}, "output": "{{ nodes.a.output }}"}
    output = await plan(Answers(data=steps), emit={"types": ["llm"]})
    assert output == steps


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"data": {"answer": 42}}, "it has no `nodes`"),
        ({"data": ["a", "b"]}, "it has no `nodes`"),
        ({"text": "I cannot plan this."}, "it is not JSON"),
        ({"text": ""}, "it is not JSON"),
    ],
)
async def test_an_answer_without_steps_is_refused_like_steps_that_are_not_allowed(
    reply: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PlanRefused) as refused:
        await plan(Answers(**reply), emit={"types": ["llm"]})
    info = refused.value.info()
    assert (info.code, info.field, info.component) == ("plan_refused", "output", "b")
    assert info.details["reason"].startswith(reason)
    assert info.details["cure"] == "Emit `{nodes: {...}, output: ...}`."


async def test_steps_that_were_cut_off_are_told_apart() -> None:
    cut = Answers(text='{"nodes": {"a": {', finish_reason="length", output_tokens=9)
    with pytest.raises(ModelReplyCut, match="9 tokens"):
        await plan(cut, emit={"types": ["llm"]})


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"answer": 42}, "output"),
        (["a", "b"], "output"),
        ("I cannot plan this.", "output"),
        ({"nodes": {}}, "nodes"),
        ({"nodes": 5}, "nodes"),
        ({"nodes": {"a": {"type": "sql", "database": "shop"}}}, "nodes.a.type"),
    ],
)
def test_every_refused_plan_can_be_asked_for_again_and_costs_what_it_cost(
    bad: Any, field: str
) -> None:
    emit = {"types": ["python"], "handlers": ["hocket.workers.builtin:echo"]}
    node = {"type": "planning", "model": "m", "prompt": "How?", "emit": emit}
    retry = {"max_attempts": 2, "on": ["plan_refused"], "backoff_ms": 1}
    step = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"value": 7}}
    good = {"nodes": {"a": step}, "output": "{{ nodes.a.output.value }}"}
    first = {"text": bad} if isinstance(bad, str) else {"data": bad}

    play = Play({"pipeline": "p", "nodes": {"plan": node | {"retry": retry}}})
    play.model("m", Answer(**first, cost_usd="0.25"), Answer(data=good, cost_usd="0.5"))
    played = play.run()
    assert (played.status, played.steps["plan"].output) == ("succeeded", 7)
    assert (played.steps["plan"].attempts, float(played.cost_usd)) == (2, 0.75)

    play = Play({"pipeline": "p", "nodes": {"plan": node}})
    play.model("m", Answer(**first, cost_usd="0.25"))
    played = play.run()
    assert played.error is not None
    assert (played.error.code, played.error.field) == ("plan_refused", field)
    assert float(played.cost_usd) == 0.25


async def test_a_planner_needs_a_question() -> None:
    with pytest.raises(InvalidInput, match="question"):
        await plan(chosen(), step_input={"other": 1})


async def test_the_prompt_of_the_node_is_the_question() -> None:
    calls = chosen()
    await plan(calls, {"city": "Bergen"}, prompt="How wet is {{ input.city }}?")
    assert calls.requests[0].context["question"] == "How wet is Bergen?"


@pytest.mark.parametrize("value", ["nan", "-inf", 1e400])
async def test_a_number_that_json_cannot_hold_is_refused(value: Any) -> None:
    catalog = [{"name": "q", "description": "d", "sql": "s", "params": {"p": {"type": "number"}}}]
    with pytest.raises(PlanRefused, match="is not of type number"):
        await plan(chosen({"name": "q", "params": {"p": value}}), catalog=catalog)


@pytest.mark.parametrize(
    ("template", "step_input", "queries"),
    [
        (None, {"query": " rain "}, ["rain"]),
        (None, {"queries": ["rain", "snow", "rain"]}, ["rain", "snow"]),
        (None, "rain", ["rain"]),
        ("wet {{ input.city }}", {"city": "Oslo"}, ["wet Oslo"]),
        ("{{ input.all }}", {"all": ["a", "b"]}, ["a", "b"]),
    ],
)
def test_queries_come_from_the_node_or_from_the_input(
    template: str | None, step_input: Any, queries: list[str]
) -> None:
    assert queries_of(template, step_input) == queries


@pytest.mark.parametrize(
    "step_input", [{}, {"query": 5}, {"queries": []}, {"query": "  "}, {"queries": ["q", None]}]
)
def test_a_search_without_a_query_is_refused(step_input: Any) -> None:
    with pytest.raises(InvalidInput, match=r"query|queries"):
        queries_of(None, step_input)


def test_too_many_queries_are_refused() -> None:
    with pytest.raises(InvalidInput, match="17 queries"):
        queries_of(None, {"queries": [f"q{n}" for n in range(17)]})


def test_a_query_that_is_too_long_is_refused_instead_of_cut() -> None:
    pasted = "the pump makes a noise " * 150 + "why?"
    assert queries_of("{{ input.question }}", {"question": pasted}) == [pasted]
    assert queries_of(None, {"query": "q" * 10_000}) == ["q" * 10_000]
    with pytest.raises(InvalidInput, match=r"`input\.queries`.*10,034 characters.*10,000"):
        queries_of(None, {"queries": ["rain", "q" * 10_034]})


@pytest.mark.parametrize(
    ("question", "search"),
    [
        ("rain " * 1_999 + "falls", "rain " * 1_999 + "falls"),
        ("rain " * 1_999 + "falls now", "rain " * 1_999 + "falls"),
        ("rain " * 1_999 + "pours\ndown", "rain " * 1_999 + "pours"),
        ("rain " * 1_999 + "downpour", "rain " * 1_998 + "rain"),
        ("q" * 10_001, "q" * 10_000),
    ],
)
async def test_a_question_that_is_searched_for_is_short_enough_for_a_retrieval_node(
    question: str, search: str
) -> None:
    output = await plan(chosen(searches=[]), {"question": question})
    assert (output["searches"], output["question"]) == ([search], question)
    assert queries_of(None, {"queries": output["searches"]}) == [search]


async def test_a_model_may_plan_with_the_whole_of_a_pasted_message() -> None:
    pasted = "the pump makes a noise " * 150 + "why?"
    output = await plan(chosen(questions=[pasted], searches=[pasted]))
    assert (output["questions"], output["searches"]) == ([pasted], [pasted])
    longest = ["q" * MAX_TEXT_CHARS]
    assert queries_of(None, {"queries": longest}) == longest
    with pytest.raises(ModelReplyInvalid, match="searches"):
        await plan(chosen(searches=["q" * (MAX_TEXT_CHARS + 1)]))


@pytest.mark.parametrize("value", [1.5, "1.50", "1.5", 0.1, "0.10"])
def test_a_number_is_one_of_the_exact_values_of_a_database(value: Any) -> None:
    param = CatalogParam.model_validate({"type": "number", "values": "SELECT rate FROM tariffs"})
    assert _checked_param(value, param, ["1.50", "2.25", "0.10"], "rate") in ("1.50", "0.10")
