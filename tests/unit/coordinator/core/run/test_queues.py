"""Steps of somebody's own types and of queues are dispatched with both, by either core."""

from hocket.schemas.messages import StepRequested
from support.run_player import Play, python


def test_a_step_is_dispatched_with_its_type_queue_and_config() -> None:
    own = {"type": "crm.lookup", "queue": "gpu", "config": {"region": "eu"}}
    play = Play({"own": own, "team": python(needs=["own"], queue="team_a"), "plain": python()})
    seen: dict[str, StepRequested] = {}
    play.work(lambda request: seen.setdefault(request.step, request).attempt)
    told = {step: (one.type, one.queue) for step, one in seen.items()}
    assert told == {
        "own": ("crm.lookup", "gpu"),
        "team": ("python", "team_a"),
        "plain": ("python", None),
    }
    assert seen["own"].config == {"region": "eu"}
