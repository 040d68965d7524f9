"""The pipelines of the load, and how a run of each must end, stated here independently of the product.
x"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SLO_MS = 3_600_000
"""No run may end because of its deadline: recovery takes as long as the machine needs."""
NOTE = {"type": "python", "handler": "chaos.chaos_handlers:note"}
FLAKY = {"type": "python", "handler": "chaos.chaos_handlers:flaky"}
REFUSE = {"type": "python", "handler": "chaos.chaos_handlers:refuse"}
DURABLE = {"type": "python", "handler": "chaos.chaos_handlers:durable"}
SUSPENDED = {"type": "python", "handler": "chaos.chaos_handlers:suspended"}
LINGER = {"type": "python", "handler": "chaos.chaos_handlers:linger"}
PATIENT = {"max_attempts": 20, "backoff_ms": 500, "max_backoff_ms": 5_000, "on": ["unavailable"]}
"""For steps that call a model: a gateway that starts slowly is down for longer than a call waits."""
ASK = {"type": "llm", "model": "probe", "retry": PATIENT}
ENGINE = {"type": "llm", "max_tokens": 24, "retry": PATIENT | {"on": ["unavailable", "transient"]}}
"""A step that calls a model of `chaos.engines`, which has a price. One try in twelve fails, so that
now and then all four of a call do, the last of them as a connection that broke."""
PAY = {"handler": "chaos.chaos_handlers:pay", "type": "python", "retry": PATIENT}
CALLING = {"type": "python", "handler": "chaos.chaos_handlers:calling", "retry": PATIENT}
SUB = {"type": "pipeline", "pipeline": "child"}
N = {"v": "{{ input.n }}"}
N_OF_V = {"v": "{{ input.v }}"}
ANY: Any = object()
"""Stands for any output."""


@dataclass(frozen=True)
class Expected:
    """How a run may end."""

    status: tuple[str, ...]
    output: Any


@dataclass(frozen=True)
class Mixed:
    """One pipeline of the load. `attempts` lists steps with the number of attempts that they must
    reach."""

    nodes: dict[str, Any]
    expected: Callable[[int], Expected]
    output: Any = None
    attempts: tuple[tuple[str, int], ...] = ()
    called: bool = False
    """Whether only other pipelines start it."""
    signal: str = ""
    """Name of the signal that users send until the run has ended."""
    cancelled: bool = False
    calls: Mapping[str, bool] = field(default_factory=dict)
    """What its handlers call, once each, as `step/name`, and whether that calls a model."""

    def spec(self, name: str) -> dict[str, Any]:
        """Return the document to apply."""
        more = {} if self.output is None else {"output": self.output}
        return {"pipeline": name, "slo_ms": SLO_MS, "nodes": self.nodes, **more}


def _succeeds(output: Callable[[int], Any]) -> Callable[[int], Expected]:
    return lambda n: Expected(("succeeded",), output(n))


PIPELINES: dict[str, Mixed] = {
    "diamond": Mixed(
        nodes={
            "a": NOTE | {"with": N},
            "b": NOTE | {"with": {"v": "{{ nodes.a.output.v + 1 }}"}},
            "c": NOTE | {"with": {"v": "{{ nodes.a.output.v + 2 }}"}},
            "d": NOTE | {"with": {"v": "{{ nodes.b.output.v + nodes.c.output.v }}"}},
        },
        output="{{ nodes.d.output.v }}",
        expected=_succeeds(lambda n: 2 * n + 3),
    ),
    "shapes": Mixed(
        nodes={
            "m": NOTE
            | {
                "map": {"over": "[0, 1, 2, 3, 4]", "concurrency": 2},
                "with": {"v": "{{ item + input.n }}"},
            },
            "l": NOTE
            | {"needs": ["m"], "loop": {"until": "output.v >= 3"}, "with": {"v": "{{ round }}"}},
            "r": {"type": "race", "branches": {"good": NOTE | {"with": N}, "bad": REFUSE}},
            "g": {
                "type": "graph",
                "with": {"v": "{{ nodes.l.output.v + nodes.r.output.v }}"},
                "nodes": {"x": NOTE | {"with": {"v": "{{ input.v }}"}}},
                "output": "{{ nodes.x.output.v }}",
            },
            "w": NOTE | {"when": "input.n < 0", "needs": ["g"]},
        },
        output={
            "m": "{{ nodes.m.output | map(attribute='v') | list }}",
            "g": "{{ nodes.g.output }}",
            "w": "{{ nodes.w.state }}",
        },
        expected=_succeeds(
            lambda n: {"m": [n, n + 1, n + 2, n + 3, n + 4], "g": n + 3, "w": "skipped"}
        ),
    ),
    "child": Mixed(
        nodes={"only": NOTE | {"with": {"v": "{{ input.v }}"}}},
        output="{{ nodes.only.output.v }}",
        expected=lambda n: Expected(("succeeded",), ANY),
        called=True,
    ),
    "parent": Mixed(
        nodes={
            "subs": {
                "type": "pipeline",
                "pipeline": "child",
                "map": {"over": "[10, 20]"},
                "with": {"v": "{{ item + input.n }}"},
            },
            "last": NOTE | {"with": {"v": "{{ nodes.subs.output }}"}},
        },
        output="{{ nodes.last.output.v }}",
        expected=_succeeds(lambda n: [n + 10, n + 20]),
    ),
    "rescued": Mixed(
        nodes={
            "f": REFUSE
            | {
                "retry": {"max_attempts": 2, "backoff_ms": 20, "on": ["handler_failed"]},
                "fallback": [{"node": NOTE | {"with": {"v": "{{ error.code }}"}}}],
            },
            "o": REFUSE | {"optional": True},
            "t": FLAKY | {"with": N, "retry": {"max_attempts": 4, "backoff_ms": 20}},
            "z": NOTE
            | {
                "with": {
                    "v": "{{ nodes.f.output.v }}",
                    "o": "{{ nodes.o.output }}",
                    "t": "{{ nodes.t.output.v }}",
                }
            },
        },
        output="{{ nodes.z.output }}",
        expected=lambda n: Expected(("degraded",), {"v": "handler_failed", "o": None, "t": n}),
        attempts=(("f", 2), ("t", 3)),
    ),
    "asking": Mixed(
        nodes={
            "first": ASK | {"prompt": "{{ input.v }}?", "with": N},
            "left": NOTE | {"needs": ["first"], "with": N},
            "right": ASK | {"prompt": "!", "needs": ["first"]},
            "last": ASK | {"prompt": ".", "needs": ["left", "right"]},
        },
        output=["{{ nodes.last.output.text }}", "{{ nodes.left.output.v }}"],
        expected=_succeeds(lambda n: ["done", n]),
    ),
    "priced_child": Mixed(
        nodes={"only": ENGINE | {"model": "writer", "prompt": "{{ input.v }}!", "with": N_OF_V}},
        expected=lambda n: Expected(("succeeded",), ANY),
        called=True,
    ),
    "priced": Mixed(
        nodes={
            "draft": ENGINE | {"model": "writer", "prompt": "{{ input.v }}?", "with": N},
            "choice": ENGINE | {"model": "chosen", "prompt": "or {{ input.v }}?", "with": N},
            "first": {
                "type": "race",
                "needs": ["draft"],
                "branches": {
                    "quick": ENGINE | {"model": "writer", "prompt": "?", "max_tokens": 40},
                    "slow": ENGINE | {"model": "stopping", "prompt": "?", "max_tokens": 200},
                },
            },
            "whole": ENGINE | {"model": "stopping", "prompt": "{{ input.v }}?", "with": N},
            "long": ENGINE
            | {"model": "stopping", "prompt": "{{ input.v }}?", "max_tokens": 120, "with": N},
            "below": {"type": "pipeline", "pipeline": "priced_child", "with": N},
        },
        expected=lambda n: Expected(("succeeded",), ANY),
    ),
    "planned": Mixed(
        nodes={
            "plan": {
                "type": "planning",
                "retry": PATIENT,
                "model": "planner",
                "with": {"question": "one two {{ input.n }}x"},
                "emit": {
                    "types": ["python"],
                    "handlers": ["chaos.chaos_handlers:note"],
                    "max_steps": 5,
                },
            },
            "report": NOTE | {"with": {"words": "{{ nodes.plan.output }}"}},
        },
        output="{{ nodes.report.output.words }}",
        expected=_succeeds(lambda n: ["one", "two", f"{n}x"]),
    ),
    "cached": Mixed(
        nodes={"find": NOTE | {"with": {"v": "{{ input.n % 7 }}"}, "cache": {"ttl_ms": 3_600_000}}},
        output="{{ nodes.find.output.v }}",
        expected=_succeeds(lambda n: n % 7),
    ),
    "approved": Mixed(
        nodes={
            "ok": {"type": "approval", "wait_ms": SLO_MS},
            "z": NOTE | {"needs": ["ok"], "with": N},
        },
        output="{{ nodes.z.output.v }}",
        expected=_succeeds(lambda n: n),
        signal="ok",
    ),
    "durable": Mixed(
        nodes={"d": DURABLE | {"with": N, "retry": PATIENT}},
        output="{{ nodes.d.output.v }}",
        expected=_succeeds(lambda n: n + 5),
    ),
    "suspended": Mixed(
        nodes={"d": SUSPENDED | {"with": N, "retry": PATIENT}},
        output="{{ nodes.d.output.v }}",
        expected=_succeeds(lambda n: n + 2),
        signal="go",
    ),
    "team": Mixed(
        nodes={
            "a": {"type": "chaos.note", "with": N},
            "b": {"type": "chaos.note", "queue": "blue", "needs": ["a"], "with": N},
            "c": {"type": "chaos.durable", "needs": ["a"], "with": N, "retry": PATIENT},
            "z": NOTE | {"with": {"v": "{{ nodes.b.output.v + nodes.c.output.v }}"}},
        },
        output="{{ nodes.z.output.v }}",
        expected=_succeeds(lambda n: 2 * n + 5),
    ),
    "calling": Mixed(
        nodes={
            "a": CALLING
            | {
                "with": N,
                "calls": {
                    "pay": {"type": "chaos.pay", "queue": "blue", "retry": PATIENT},
                    "note": NOTE,
                    "sub": SUB,
                },
            },
            "b": {
                "type": "chaos.calling",
                "with": N,
                "retry": PATIENT,
                "calls": {"pay": PAY, "note": {"type": "chaos.note"}, "sub": SUB},
            },
            "z": NOTE | {"with": {"v": "{{ nodes.a.output.v + nodes.b.output.v }}"}},
        },
        output="{{ nodes.z.output.v }}",
        expected=_succeeds(lambda n: 2 * n + 6),
        calls={f"{step}/{name}": name == "pay" for step in "ab" for name in ("pay", "note", "sub")},
    ),
    "stopped": Mixed(
        nodes={"a": LINGER | {"with": N}, "b": LINGER | {"needs": ["a"], "with": N}},
        output="{{ nodes.b.output.v }}",
        expected=lambda n: Expected(("cancelled", "succeeded"), ANY),
        cancelled=True,
    ),
}
STARTED = tuple(name for name, mixed in PIPELINES.items() if not mixed.called)
