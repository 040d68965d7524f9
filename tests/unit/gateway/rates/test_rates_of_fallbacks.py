"""The rates of a model hold for calls that ask for it, not for those that come to it as a fallback."""

from dataclasses import replace

from hocket.gateway.core.rates import rules as rates
from support.gateway.routing_rig import Rig, backend, breaks, says

MODELS = {
    "writer": {"backends": [backend("a")], "fallbacks": ["small"]},
    "small": {"backends": [backend("b")]},
}
RULES = [
    {"model": "writer", "requests_per_min": 10},
    {"model": "small", "requests_per_min": 1, "beyond": "refuse"},
]


async def test_a_call_counts_for_the_model_that_it_asked_for_alone() -> None:
    rig = Rig(MODELS, a=breaks(), b=says("b"))
    rig.calls.replace(replace(rig.table, rates=rates.read(RULES, {})))
    answered = [(await rig.make(f"c{n}")).backend for n in range(3)]
    assert answered == ["b", "b", "b"]
    assert [(state.model, state.requests) for state in rig.calls.rates.states()] == [("writer", 3)]
