"""What the cure says of a field that does not exist: it names only fields that exist in the place."""

import re
from typing import Any

import pytest

from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.plan import compile_pipeline

WORDS = """
    action activity after approvers args arguments as assignee backoff body branches budget
    cache_ttl call catch class cmd command concurrency condition config cron dag dag_id deadline
    deadline_ms default defaults delay dependencies depends depends_on dependsOn documents
    duration edges entrypoint env event execution_timeout fallback_model fallbacks fn for
    foreach func function functions graph handlers headers host id if image imports index input
    inputs instructions items jobs key kind kwargs labels limit loop_ max_attempts
    max_concurrency max_items max_retries maxTokens messages metadata method model name on
    on_error on_failure outputs over owner parallel parameters params parents payload priority
    prompt python_callable queue_name rate_limit requires response_format result retries
    retry_policy retryStrategy return reviewer run runs-on schedule schema script secrets
    signal_name sleep slo stages start_to_close_timeout state states steps system_prompt tags
    task_queue tasks team temperature template timeout timeout-minutes timeoutMs tools triggers
    ttl uri url uses vars version wait while with_items workflow
""".split()
NODES: dict[str, dict[str, Any]] = {
    "python": {"handler": "h:f"},
    "llm": {"model": "m", "prompt": "x"},
    "http": {"service": "s"},
    "approval": {},
    "graph": {"nodes": {"b": {"type": "python", "handler": "h:f"}}},
}
PYTHON = {"type": "python", **NODES["python"]}


def told(document: dict[str, Any], field: str) -> str:
    """Return what is said of a field."""
    try:
        compile_pipeline(document)
    except InvalidInput as error:
        every = (error.fields, *error.fields.get("others", ()))
        return next(
            (f"{one['reason']}. {one['cure']}" for one in every if one["field"] == field), ""
        )
    return ""


def of_node(kind: str, name: str) -> str:
    node = {"type": kind, **NODES[kind], name: "x"}
    return told({"pipeline": "p", "nodes": {"a": node}}, f"nodes.a.{name}")


def of_top(name: str) -> str:
    return told({"pipeline": "p", "nodes": {"a": PYTHON}, name: "x"}, name)


def of_map(name: str) -> str:
    node = PYTHON | {"map": {"over": "input.x", name: "x"}}
    return told({"pipeline": "p", "nodes": {"a": node}}, f"nodes.a.map.{name}")


PLACES = {kind: lambda name, kind=kind: of_node(kind, name) for kind in NODES}
PLACES |= {"top": of_top, "map": of_map}  # type: ignore[dict-item]


@pytest.mark.parametrize("place", PLACES)
def test_what_is_meant_exists_in_the_place(place: str) -> None:
    for word in WORDS:
        meant = re.search(r"Did you mean `(\w+)`", PLACES[place](word))
        assert meant is None or "no such field" not in PLACES[place](meant[1]), word


@pytest.mark.parametrize(
    ("place", "word", "cure"),
    [
        ("python", "function", "Did you mean `handler`?"),
        ("python", "parents", "Did you mean `needs`?"),
        ("python", "dependsOn", "Did you mean `needs`?"),
        ("python", "max_retries", "Did you mean `retry`?"),
        ("python", "timeout", "Did you mean `timeout_ms`?"),
        ("approval", "timeout", "Did you mean `wait_ms`?"),
        ("python", "runs-on", "Did you mean `queue`?"),
        ("llm", "maxTokens", "Did you mean `max_tokens`?"),
        ("python", "name", "Remove it: a node's name is its key."),
        ("python", "method", "Remove it: it belongs to `http` nodes."),
        ("python", "headers", "Remove it: it belongs to `http` and `nats` nodes."),
        ("python", "over", "Remove it: it belongs to `map`."),
        ("python", "url", "Perhaps `service` is meant, which belongs to `http` and `nats` nodes."),
        ("map", "parallel", "Did you mean `concurrency`?"),
        ("top", "timeout", "Did you mean `slo_ms`?"),
        ("top", "steps", "Did you mean `nodes`?"),
        ("top", "params", "Did you mean `input`?"),
        ("top", "retries", "Perhaps `retry` is meant, which belongs to nodes."),
        ("top", "cron", "Make a schedule for the pipeline: `hocket schedules --help`."),
    ],
)
def test_the_words_of_other_systems_are_known(place: str, word: str, cure: str) -> None:
    assert PLACES[place](word) == f"there is no such field. {cure}"
