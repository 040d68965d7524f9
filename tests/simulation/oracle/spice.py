"""What plays do not draw into pipelines: cache keys, prompts that are told of, odd names of items,
inputs of every kind, planners with small policies, trees of runs with few runs."""

from collections.abc import Iterator
from random import Random
from typing import Any

CONDITIONS = ("input.no > 1", "input.n > 2", "range(input.n) | list | length > 2")
LISTS = ("input.n", "input.xs + [1, 2]", "input.no", "{'$blob': 1}", "range(9) | list")
WITH = (
    {"a": "{{ input }}"},
    {"a": "{{ input.n }}", "b": "{{input.xs}}", "c": 1},
    {"a": "{{ input.nothing }}"},
    {"a": "n is {{ input.n }}", "b": [1, "{{ input.n + 1 }}"]},
    {"a": {"b": {"c": [1, 2.5, None, True]}}, "q": "é"},
    {"a": "{{ run.id }}", "b": "{{ input.xs[0] }}"},
    {"a": "{{ input.text }}", "deep": {"x": "{{ input.n }}"}},
    {"a": "{{ range(30000) | list | length }}"},
    {"a": "{{ 1 // 0 }}"},
    {},
)


def spiced(dice: Random, document: dict[str, Any]) -> dict[str, Any]:
    """Return a pipeline with more in it; it may not compile."""
    if dice.random() < 0.2:
        document["max_runs"] = dice.choice((1, 4, 30))
    for nodes, name in list(_all_nodes(document["nodes"])):
        node = nodes[name]
        before = [other for other in nodes if other < name]
        if dice.random() < 0.3:
            node["with"] = _with(dice, node, before)
        _spice(dice, node)
    return document


def _with(dice: Random, node: dict[str, Any], before: list[str]) -> dict[str, Any]:
    found = dict(dice.choice(WITH))
    if before:
        need = dice.choice(before)
        output = f"nodes.{need}.output"
        below = dice.choice(("", ".n", ".xs", ".no"))
        reading = output + below if dice.random() < 0.8 else f"nodes.{need}.error"
        found["read"] = "{{ " + reading + " }}"
    if "map" in node:
        found["item"] = "{{ " + str(node["map"].get("as", "item")) + " }}"
    if "loop" in node:
        found["before"] = "{{ previous }}"
    return found


def _spice(dice: Random, node: dict[str, Any]) -> None:
    _spice_repeats(dice, node)
    if "cache" in node and dice.random() < 0.5:
        node["cache"]["key"] = dice.choice(("input.n", "input.no", "1"))
    if node["type"] == "python" and "handler" in node and dice.random() < 0.15:
        del node["handler"]
        node.update({"type": "llm", "model": "m", "effects": "none"})
    if node["type"] == "llm" and dice.random() < 0.8:
        node["prefill"] = True
        node["prompt"] = dice.choice(("{{ input.text }}", "{{ input.input.text }} {{ input.a }}"))
        if dice.random() < 0.5:
            node["system"] = "be brief"
    if node["type"] == "planning" and "emit" in node:
        node["emit"]["max_steps"] = dice.choice((2, 6, 20))
        node["emit"]["max_items"] = dice.choice((1, 20))
        if dice.random() < 0.4:
            node["emit"]["budget_usd"] = dice.choice((0, 0.01, 1))
    if node["type"] == "race" and dice.random() < 0.5:
        node["pick"] = dice.choice(("best", "first_valid"))
        if node["pick"] == "best":
            node["score"] = dice.choice(("output.n", "1"))
        node["valid"] = dice.choice(("output.n > 3", "true"))
    if node["type"] in ("graph", "race") and dice.random() < 0.3:
        node["timeout_ms"] = 900
    for fallback in node.get("fallback", ()):
        if dice.random() < 0.6:
            fallback["on"] = []
            fallback["node"]["with"] = dice.choice(({"e": "{{ error.code }}"}, {"n": 1}))
        if dice.random() < 0.4:
            del fallback["node"]["with"]
    if dice.random() < 0.1:
        node["optional"] = True
    if node.get("needs") and dice.random() < 0.15:
        node["when"] = dice.choice(CONDITIONS)


def _spice_repeats(dice: Random, node: dict[str, Any]) -> None:
    if "map" in node and dice.random() < 0.3:
        node["map"]["as"] = dice.choice(("x", "index", "one"))
        node.pop("with", None)
    if "map" in node and dice.random() < 0.3:
        node["map"]["over"] = dice.choice(LISTS)
        node["map"]["max_items"] = dice.choice((3, 100))
    if "loop" in node and dice.random() < 0.5:
        node["loop"]["until"] = dice.choice(("output.n > 6", "false", "output.no", "round > 2"))
        node["loop"]["on_exhausted"] = dice.choice(("accept", "fail"))


def _all_nodes(nodes: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for name, node in nodes.items():
        yield nodes, name
        if "nodes" in node:
            yield from _all_nodes(node["nodes"])
