"""Random pipelines made of every construct that a spec has."""

from collections.abc import Iterator
from random import Random
from typing import Any

from hocket.schemas.errors import InvalidInput
from simulation.platform.compiled import compiled
from simulation.platform.handlers import EMITTED

KINDS = ("quick", "quick", "slow", "long", "flaky", "flaky", "failing", "hang", "stubborn")
GENTLE_KINDS = ("quick", "slow", "long", "flaky", "stubborn")
RETRY = {"max_attempts": 3, "backoff_ms": 40, "factor": 2, "max_backoff_ms": 400}
NAMES = "abcdefgh"
CHILD = "child"
"""The pipeline that `pipeline` nodes run."""


def add_calls(documents: list[dict[str, Any]], dice: Random) -> None:
    """Let handlers of the pipelines call nodes, and in some cases the child pipeline."""
    for document in documents:
        for node in _python_nodes(document["nodes"]):
            if dice.random() < 0.7:
                kind = dice.choice(("quick", "slow", "flaky", "failing"))
                calls: dict[str, Any] = {"do": {"type": "python", "handler": f"sim:{kind}"}}
                if dice.random() < 0.4:
                    calls["do"]["retry"] = RETRY
                if dice.random() < 0.2:
                    calls["do"]["effects"] = "external"
                if dice.random() < 0.3:
                    calls["do"]["fallback"] = [
                        {"on": [], "node": {"type": "llm", "model": "m", "prompt": "hello"}}
                    ]
                if dice.random() < 0.4:
                    calls["many"] = _mapped(dice)
                if document["pipeline"] != CHILD and dice.random() < 0.3:
                    calls["run"] = {"type": "pipeline", "pipeline": CHILD}
                node["calls"] = calls
        compiled(document)


def _mapped(dice: Random) -> dict[str, Any]:
    each = {
        "type": "python",
        "handler": "sim:quick",
        "map": {"over": "input.xs", "concurrency": dice.randint(1, 2)},
        "with": {"item": "{{ item }}"},
    }
    return {"type": "graph", "nodes": {"each": each}}


def _python_nodes(nodes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for node in nodes.values():
        if node["type"] == "python":
            yield node
        yield from _python_nodes(node.get("nodes") or node.get("branches") or {})


class Generator:
    """Generates pipelines; `gentle` ones have no node that fails for good or hangs."""

    def __init__(self, dice: Random, *, gentle: bool) -> None:
        self._dice = dice
        self._gentle = gentle
        self._hurries = False
        """Whether the pipeline uses fast variants, or leaves nodes out, when time is short."""

    def pipeline(self, name: str, *, slo_ms: float, sub: bool = True) -> dict[str, Any]:
        """Return a document that compiles; invalid ones are drawn again."""
        while True:
            document = self._document(name, slo_ms=slo_ms, sub=sub)
            try:
                compiled(document)
            except InvalidInput:
                continue
            return document

    def _document(self, name: str, *, slo_ms: float, sub: bool) -> dict[str, Any]:
        dice = self._dice
        self._hurries = not self._gentle and dice.random() < 0.3
        document: dict[str, Any] = {
            "pipeline": name,
            "slo_ms": slo_ms,
            "nodes": self._scope(dice.randint(1, 5), depth=0, sub=sub),
        }
        if dice.random() < 0.3:
            document["class"] = dice.choice(("interactive", "standard", "batch"))
        if self._hurries:
            document["on_infeasible"] = "degrade"
        elif not self._gentle and dice.random() < 0.15:
            document["on_infeasible"] = "fail"
        if dice.random() < 0.25:
            document["budget_usd"] = dice.choice((0.02, 0.05, 0.1)) if not self._gentle else 50
        if dice.random() < 0.3:
            last = list(document["nodes"])[-1]
            document["output"] = {"last": f"{{{{ nodes.{last}.output }}}}", "x": 1}
        return document

    def _scope(self, count: int, *, depth: int, sub: bool) -> dict[str, Any]:
        dice = self._dice
        nodes: dict[str, Any] = {}
        for name in NAMES[:count]:
            before = list(nodes)
            node = self._node(depth=depth, sub=sub)
            if before and dice.random() < 0.75:
                node["needs"] = sorted(dice.sample(before, min(len(before), dice.randint(1, 2))))
                self._condition(node)
            self._modify(node, before)
            nodes[name] = node
        return nodes

    def _condition(self, node: dict[str, Any]) -> None:
        if self._dice.random() < 0.2:
            need = node["needs"][0]
            node["when"] = self._dice.choice(("input.n > 4", f"nodes.{need}.output is not none"))

    def _modify(self, node: dict[str, Any], before: list[str]) -> None:
        dice = self._dice
        wait = node["type"] in ("approval", "signal")
        if not wait and dice.random() < 0.2:
            concurrency = dice.randint(1, 3)
            node["map"] = {
                "over": dice.choice(("input.xs", "[1, 2, 3]", "range(4) | list")),
                "concurrency": concurrency,
                "on_item_error": "skip" if dice.random() < 0.5 or self._gentle else "fail",
            }
            node["with"] = {**node.get("with", {}), "item": "{{ item }}", "at": "{{ index }}"}
        if not wait and dice.random() < 0.12:
            rounds = dice.randint(1, 3)
            until = dice.choice((f"round >= {rounds}", "input.n < 20"))
            node["loop"] = {"until": until, "max_rounds": 4, "on_exhausted": "accept"}
            node.setdefault("with", {})["round"] = "{{ round }}"
        if node["type"] in ("python", "llm", "planning", "pipeline"):
            if self._gentle or dice.random() < 0.7:
                node["retry"] = RETRY if not self._gentle else {**RETRY, "max_attempts": 20}
            long = node.get("handler") == "sim:long"
            patient = self._gentle and (node["type"] == "pipeline" or long)
            if dice.random() < 0.4 and not patient:
                node["timeout_ms"] = dice.choice((300, 900, 2_000))
        if dice.random() < 0.15:
            node["optional"] = True
        if dice.random() < 0.15 and not wait:
            fallback = self._leaf()
            fallback["with"] = {"q": 1}
            node["fallback"] = [{"on": dice.choice(((), ("timeout", "broken"))), "node": fallback}]
            node["fallback"][0]["on"] = list(node["fallback"][0]["on"])
        if node["type"] == "python" and dice.random() < 0.15:
            node["effects"] = "external"
        if node["type"] in ("python", "llm") and "effects" not in node and dice.random() < 0.15:
            node["cache"] = {"ttl_ms": dice.choice((500, 60_000))}
        if self._hurries and not wait and dice.random() < 0.35:
            node["fast"] = {**self._leaf(), "with": {"q": 2}, "expect": {"mean_ms": 10, "sd_ms": 5}}
        if dice.random() < (0.6 if self._hurries else 0.2):
            node["expect"] = {"mean_ms": dice.choice((10, 100, 1_000)), "sd_ms": 5}

    def _node(self, *, depth: int, sub: bool) -> dict[str, Any]:
        dice = self._dice
        draw = dice.random()
        if depth < 2:
            if draw < 0.08:
                return {
                    "type": "graph",
                    "nodes": self._scope(dice.randint(1, 3), depth=depth + 1, sub=sub),
                    "with": {"n": 5, "xs": [1, 2]},
                }
            if draw < 0.18:
                return self._race(depth)
        if draw < 0.24 and sub and depth == 0:
            return {"type": "pipeline", "pipeline": CHILD, "with": {"n": 7, "xs": [1]}}
        if draw < 0.30:
            return {
                "type": "planning",
                "model": "m",
                "with": {"question": "?", "xs": [1, 2, 3]},
                "emit": {
                    "types": ["python", "graph"],
                    "handlers": list(EMITTED),
                    "max_steps": 6,
                    "max_depth": 2,
                },
            }
        if draw < 0.36:
            return {"type": "signal", "signal": "go", "wait_ms": dice.choice((800, 4_000, 20_000))}
        if draw < 0.41:
            return {
                "type": "approval",
                "wait_ms": dice.choice((1_500, 20_000)),
                "pause_deadline": dice.random() < 0.7,
            }
        return self._leaf()

    def _race(self, depth: int) -> dict[str, Any]:
        dice = self._dice
        branches: dict[str, Any] = {}
        for name in ("x", "y", "z")[: dice.randint(2, 3)]:
            branch = self._leaf()
            if dice.random() < 0.15 and depth < 1:
                branch = {"type": "graph", "nodes": {"i": self._leaf(), "j": self._leaf()}}
            branch["with"] = {"q": name}
            branches[name] = branch
        node: dict[str, Any] = {"type": "race", "branches": branches, "with": {"q": 1}}
        if dice.random() < 0.4:
            node["valid"] = "output is not none"
        if dice.random() < 0.3:
            node["pick"], node["score"] = "best", "(output or {'n': 0}).n or 0"
        return node

    def _leaf(self) -> dict[str, Any]:
        dice = self._dice
        if dice.random() < 0.25:
            node: dict[str, Any] = {"type": "llm", "model": "m", "prompt": "hello"}
        else:
            kinds = GENTLE_KINDS if self._gentle else KINDS
            node = {"type": "python", "handler": f"sim:{dice.choice(kinds)}"}
            if node["handler"] == "sim:hang" and dice.random() < 0.9:  # or until the run's end
                node["timeout_ms"] = dice.choice((300, 900, 2_000))
        if dice.random() < 0.3:
            node["retry"] = RETRY
        return node
