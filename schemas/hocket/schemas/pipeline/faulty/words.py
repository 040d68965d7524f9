"""What people mean by a field that does not exist: words of other systems, and where a field belongs."""

import re
from collections.abc import Collection, Mapping

MAX_PLACES = 4
"""The most places that are told for a field."""

_NODES = " nodes"
_TIMES = ("wait_ms", "slo_ms", "timeout_ms")
_INPUT = ("with", "input")
_MEANT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "input inputs args arguments kwargs params parameters variables payload"
            " input_schema parameter"
        ).split(),
        _INPUT,
    ),
    **dict.fromkeys(
        (
            "after depend depends depends_on dependencies dependency parent parents requires upstream"
            " wait_for waits_for previous"
        ).split(),
        ("needs",),
    ),
    **dict.fromkeys("if condition conditions run_if only_if".split(), ("when",)),
    **dict.fromkeys(
        "for for_each foreach expand items matrix with_items with_param with_sequence".split(),
        ("map",),
    ),
    **dict.fromkeys(
        "max_parallel max_in_flight parallel parallelism".split(), ("concurrency", "map", "flow")
    ),
    **dict.fromkeys("while repeat do_while".split(), ("loop",)),
    **dict.fromkeys("attempts max_retries retries".split(), ("retry", "max_attempts")),
    **dict.fromkeys("backoff interval retry_delay".split(), ("retry", "backoff_ms")),
    **dict.fromkeys("retry_policy retry_strategy".split(), ("retry",)),
    **dict.fromkeys(
        "catch fallbacks fallback_model on_error on_failure on_fail rescue".split(), ("fallback",)
    ),
    **dict.fromkeys(
        "allow_failure continue_on continue_on_error ignore_errors soft_fail".split(), ("optional",)
    ),
    **dict.fromkeys(
        (
            "deadline deadline_ms timeout timeout_ms timeout_s timeout_seconds timeout_minutes"
            " execution_timeout start_to_close_timeout schedule_to_close_timeout run_timeout"
            " workflow_run_timeout active_deadline_seconds max_duration sla slo"
        ).split(),
        _TIMES,
    ),
    **dict.fromkeys("delay duration sleep wait wait_for_ms".split(), ("wait_ms", "backoff_ms")),
    **dict.fromkeys(
        (
            "action activity call callable cmd code command entrypoint fn func function implementation"
            " module python_callable run script uses"
        ).split(),
        ("handler",),
    ),
    **dict.fromkeys(
        "dag graph jobs stages states steps tasks activities".split(), ("nodes", "calls")
    ),
    **dict.fromkeys("dag_id id name title workflow pipeline_name".split(), ("pipeline",)),
    **dict.fromkeys("child_workflow sub_workflow subpipeline".split(), ("pipeline",)),
    **dict.fromkeys("outputs result results return returns".split(), ("output",)),
    **dict.fromkeys("concurrency max_concurrency rate_limits".split(), ("flow", "map")),
    **dict.fromkeys("instruction instructions system_prompt".split(), ("system", "prompt")),
    **dict.fromkeys("messages message question template text user_prompt".split(), ("prompt",)),
    **dict.fromkeys(
        "json_schema output_schema response_format schema structured_output".split(),
        ("response_schema", "input"),
    ),
    **dict.fromkeys("max_output_tokens max_completion_tokens".split(), ("max_tokens",)),
    **dict.fromkeys("functions toolset".split(), ("tools",)),
    **dict.fromkeys("max_iterations max_turns".split(), ("max_rounds",)),
    **dict.fromkeys("memo memoize cache_ttl caching ttl".split(), ("cache",)),
    **dict.fromkeys("base_url host uri url".split(), ("service",)),
    **dict.fromkeys("json data".split(), ("body",)),
    **dict.fromkeys("event event_name signal_name".split(), ("signal",)),
    **dict.fromkeys("statement sql".split(), ("query",)),
    **dict.fromkeys("limit k top_n".split(), ("top_k", "max_rows")),
    **dict.fromkeys("index collection_name".split(), ("collection",)),
    **dict.fromkeys("pool runs_on task_queue worker workers".split(), ("queue",)),
    **dict.fromkeys("doc docs note comment summary".split(), ("description",)),
    **dict.fromkeys("budget max_cost max_cost_usd cost_limit".split(), ("budget_usd",)),
    **dict.fromkeys("kind node_type".split(), ("type",)),
    "priority": ("class",),
    "side_effects": ("effects",),
}
"""What fields of other systems mean here (Airflow, Argo, GitHub Actions, Hatchet, LangGraph, Temporal):
the first that exists in the place."""
_CURES = {
    **dict.fromkeys(
        "cron on schedule schedules triggers".split(),
        "Make a schedule for the pipeline: `hocket schedules --help`.",
    ),
    "edges": "Name in `needs` of each node those that must end before it.",
}
"""What to do about a word for which there is no field anywhere."""
_NODES_NAME = "Remove it: a node's name is its key."


def meant_by(name: str, fields: Collection[str], places: Mapping[str, tuple[str, ...]]) -> str:
    """Return the cure for a field that is not among the `fields` of its place, or "" if nothing is known
    of its name. `places` has those of all fields, by name."""
    word = _plain(name)
    meant = [word, *_MEANT.get(word, ())]
    found = next((one for one in meant if one in fields), None)
    if found is None and word in _CURES:
        return _CURES[word]
    if found is None:
        found = next((one for one in fields if one.startswith(f"{word}_")), None)
    if found is not None:
        return f"Did you mean `{found}`?"
    if word in ("id", "name") and "needs" in fields:
        return _NODES_NAME
    if name in places:
        return f"Remove it: it belongs to {_told(places[name])}."
    other = next((one for one in meant if one in places), None)
    if other is not None:
        return f"Perhaps `{other}` is meant, which belongs to {_told(places[other])}."
    return ""


def _plain(name: str) -> str:
    """Return a name as fields are written: `dependsOn` and `depends-on` are `depends_on`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


def _told(places: tuple[str, ...]) -> str:
    """Return places in a sentence: "`http` and `nats` nodes, and to `emit`"."""
    kinds = [place.removesuffix(_NODES) for place in places if place.endswith(_NODES)]
    others = [place for place in places if not place.endswith(_NODES)]
    told = [f"{_listed(kinds)}{_NODES}"] if kinds else []
    return ", and to ".join([*told, _listed(others)] if others else told)


def _listed(names: list[str]) -> str:
    few = [*names[:MAX_PLACES], *(["others"] if len(names) > MAX_PLACES else [])]
    return few[0] if len(few) == 1 else f"{', '.join(few[:-1])} and {few[-1]}"
