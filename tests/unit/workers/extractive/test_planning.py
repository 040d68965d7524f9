"""Plans over a small catalog that is not the demo's."""

from typing import Any

import pytest

from hocket.schemas.pipeline.node_parts import CatalogParam, CatalogQuery
from hocket.workers.extractive.planning import Plan, plan_question, value_selects

CITIES = "SELECT name FROM city"
CATALOG = (
    CatalogQuery(
        name="revenue_of_city",
        description="Revenue, turnover and sales of one shop location",
        sql="SELECT revenue FROM sales WHERE city = :city",
        params={"city": CatalogParam(values=CITIES)},
    ),
    CatalogQuery(
        name="best_cities",
        description="Cities ranked by highest revenue, top sellers",
        sql="SELECT city FROM sales ORDER BY revenue DESC LIMIT :limit",
        params={"limit": CatalogParam(type="integer", default=3)},
    ),
    CatalogQuery(
        name="orders_in_quarter",
        description="Count of orders in a quarter",
        sql="SELECT count(*) FROM orders WHERE quarter = :quarter",
        params={"quarter": CatalogParam(type="integer")},
    ),
)
VALUES = {CITIES: ["York", "New York", "Bath", "Newcastle upon Tyne"]}


def chosen(question: str, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(q.name, dict(q.params)) for q in plan(question, **options).queries]


def plan(question: str, **options: Any) -> Plan:
    return plan_question(question, CATALOG, VALUES, **options)


def test_selects_of_values_are_named_once() -> None:
    assert value_selects(CATALOG) == (CITIES,)


def test_the_longest_value_is_taken() -> None:
    assert chosen("What was the revenue of New York?") == [
        ("revenue_of_city", {"city": "New York"})
    ]


def test_two_values_make_two_bindings() -> None:
    assert chosen("Compare the sales of Bath and Newcastle upon Tyne") == [
        ("revenue_of_city", {"city": "Bath"}),
        ("revenue_of_city", {"city": "Newcastle upon Tyne"}),
    ]


@pytest.mark.parametrize(
    ("question", "limit"), [("top 7 cities by revenue", 7), ("the top cities", 3)]
)
def test_an_amount_is_bound_or_its_default(question: str, limit: int) -> None:
    assert chosen(question) == [("best_cities", {"limit": limit})]


def test_a_number_is_bound_by_the_name_beside_it() -> None:
    assert chosen("How many orders were in quarter 2?") == [("orders_in_quarter", {"quarter": 2})]


def test_a_superscript_is_bound_to_no_parameter() -> None:
    assert chosen("How many orders were in quarter \N{SUPERSCRIPT TWO}?") == []


def test_a_query_whose_parameter_is_not_named_is_not_chosen() -> None:
    assert chosen("How many orders were there?") == []
    assert chosen("What was the revenue of Paris?") == []


@pytest.mark.parametrize(
    "question", ["What is the weather in Bath?", "Who founded the company?", "", "?!", "the of and"]
)
def test_no_query_is_better_than_a_wrong_one(question: str) -> None:
    assert chosen(question) == []


def test_each_part_gets_its_own_query_and_search() -> None:
    made = plan("What was the revenue of Bath, and what do visitors say about it?")
    assert [q.question for q in made.queries] == ["What was the revenue of Bath"]
    assert made.searches == ("revenue Bath", "visitors Bath")


def test_it_takes_the_value_of_the_part_before() -> None:
    assert chosen("Which manager runs Bath? And what was its revenue?") == [
        ("revenue_of_city", {"city": "Bath"})
    ]


def test_no_more_queries_than_allowed() -> None:
    assert len(chosen("Compare the sales of Bath, York and New York", max_queries=2)) == 2


def test_equal_questions_give_equal_plans() -> None:
    question = "Compare the sales of Bath and York and which are the top 2 cities?"
    assert plan(question) == plan(question)
    assert plan(question).as_json()["queries"][0]["sql"] == CATALOG[0].sql
