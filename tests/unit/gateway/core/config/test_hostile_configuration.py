"""Configuration values that nobody would write by accident: each is used, or refused with its field."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.budgets import budget_rules
from hocket.gateway.core.calls.records import usage_record
from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.errors import RoutingInvalid
from hocket.schemas.messages import CallRequest, Completion

WHOLE: dict[str, Any] = {
    "models": {
        "writer": {
            "backends": [
                {
                    "name": "a",
                    "base_url": "http://x:8000/v1",
                    "model": "m",
                    "api_key": "k",
                    "limit": 4,
                    "timeout_ms": 100,
                    "prices": {
                        "input_usd_per_mtok": "1",
                        "output_usd_per_mtok": 2,
                        "request_usd": 0.1,
                    },
                    "mode": "serverless",
                    "pool": "p",
                    "quality": 0.5,
                    "warm_tier": "hot",
                    "labels": {"a": "b"},
                    "residency": ["eu"],
                    "breaker": {"failure_rate": 0.5, "slow_ms": 8000, "min_calls": 3},
                    "prefix_cache": {"tokens": 4096, "block_tokens": 16, "prefill_tokens_per_s": 8},
                    "usage_in_stream": True,
                    "max_tokens_field": "max_tokens",
                    "stops_on_disconnect": False,
                },
                {"name": "b", "model": "m", "replicas": ["http://y", {"base_url": "http://z"}]},
            ],
            "mode": "auto",
            "choose": "load",
            "min_quality": 0.1,
            "fallbacks": ["other"],
            "retries": 2,
            "breaker": {"open_ms": 100},
            "hedge": {"quantile": 0.9, "min_ms": 1, "share": 0.1, "burst": 2, "tools": True},
        },
        "other": {"backends": [{"name": "f", "function": "a.b:c"}]},
        "both": {"cascade": {"models": ["writer", "other"], "accept": "answer.text != ''"}},
        "again": "writer",
    },
    "pools": {"p": {"max_concurrency": 4, "reserved_fast": 1, "fast_ms": 5, "max_waiting": 9}},
    "budgets": {
        "unpriced": "allow",
        "tenants": {"acme": {"usd": 5, "per": "day"}},
        "pipelines": {"*": {"usd": "1e-3"}},
    },
}
REQUEST = CallRequest(call_id="c", model="writer", deadline_at_ms=0)
VALUES: list[Any] = [
    None, True, False, 0, -1, 2**70, -(2**70), 10**400, 1e308, float("inf"), float("-inf"),
    float("nan"), -0.0, 1e-320, "", " ", "\0", "a\nb", "\ud800", "x" * 100_000, "1e400", "NaN",
    "-1", "1e-400", "os.environ/NOT_SET", "http://u:p@x", "http://[::1", "http://x:99999",
    "http://x y", "file:///etc/passwd", "javascript:alert(1)", [], {}, [[]], [None], {"a": None},
    {None: 1}, {1: 2}, {"\0": "a"}, [{}], ["a"] * 3, object(),
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the place of everything inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inside:
        yield (*path, key)
        if isinstance(one, dict | list):
            yield from places(one, (*path, key))


def put(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    whole = copy.deepcopy(WHOLE)
    at: Any = whole
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return whole


def read(whole: dict[str, Any]) -> None:
    table = parse(whole["models"], {}, whole["pools"])
    for spec in table.backends():  # whatever is used can stand in a record
        usage_record(
            REQUEST,
            spec,
            Completion(output_tokens=10**8),
            None,
            suffix="",
            started_ms=0,
            latency_ms=0,
        )
    budget_rules.read(whole["budgets"], {})


def fault(whole: dict[str, Any]) -> RoutingInvalid | None:
    try:
        read(whole)
    except RoutingInvalid as refused:
        return refused
    return None


def used_or_refused(path: tuple[Any, ...], value: Any) -> None:
    refused = fault(put(path, value))
    if refused is not None:
        assert refused.fields["field"]
        assert refused.fields["cure"]
        assert len(str(refused)) < 5_000


def test_the_configuration_that_the_others_spoil_is_good() -> None:
    read(WHOLE)


@pytest.mark.parametrize("path", list(places(WHOLE)), ids=lambda path: ".".join(map(str, path)))
def test_no_value_at_any_place_is_anything_but_used_or_refused_with_its_field(
    path: tuple[Any, ...],
) -> None:
    for value in VALUES:
        used_or_refused(path, value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from(list(places(WHOLE))), JSON)
def test_nor_is_any_other(path: tuple[Any, ...], value: Any) -> None:
    used_or_refused(path, value)


@pytest.mark.parametrize("url", ["http://user:word@x/v1", "http://user@x", "https://:word@x"])
def test_a_url_with_a_password_names_its_field_and_says_where_to_put_it(url: str) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        read(put(("models", "writer", "backends", 0, "base_url"), url))
    assert refused.value.fields["field"] == "models.writer.backends[0].base_url"
    assert "api_key" in refused.value.fields["cure"]
    assert "word" not in str(refused.value).replace("password", "")
