"""The form that values take in a run is the one in which Postgres gives them back."""

import asyncpg
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic_core import to_json

from hocket.coordinator.core.run.state.columns import json_column
from hocket.coordinator.core.run.state.restore import _value
from hocket.coordinator.core.run.state.stored_form import stored_form

TEXT = st.text(st.characters(codec="utf-8"), max_size=4)
NUMBERS: SearchStrategy[object] = st.one_of(
    st.integers(),
    st.integers(-(10**25), 10**25),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(1e15, 1e24),
    st.integers(0, 400).map(lambda zeros: 10**zeros),
    st.sampled_from([-0.0, 0.0, 1e16, 1.5e16, -1e18, 2.0**63, -(2.0**63), 2**63, -(2**63), 1e300]),
)
VALUES = st.recursive(
    st.none() | st.booleans() | TEXT | NUMBERS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=12,
)


async def test_any_value_is_read_back_in_the_form_that_it_took(database_url: str) -> None:
    drawn: list[object] = []

    @hypothesis_settings(max_examples=800, database=None)
    @given(VALUES)
    def draw(value: object) -> None:
        drawn.append(value)

    draw()
    formed = [stored_form(value) for value in drawn]
    texts = [json_column(value) or "null" for value in formed]
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch(
            "SELECT one::jsonb::text FROM unnest($1::text[]) AS one", texts
        )
    finally:
        await connection.close()
    for form, (stored,) in zip(formed, rows, strict=True):
        again = _value(stored)
        assert repr(again.value) == repr(form)
        assert again.text == to_json(form).decode()
