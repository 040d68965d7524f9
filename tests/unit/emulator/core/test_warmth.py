"""Cold starts of the emulated engine, and what they cost in time."""

from hocket.emulator.core.profile import EngineProfile
from hocket.emulator.core.warmth import State, Warmth


def cold() -> Warmth:
    """The big model of the cold-start setting: 85 s to get a machine, 65 s to load."""
    profile = EngineProfile.model_validate({"warm": False, "provision_s": 85, "load_s": 65})
    return Warmth(profile, now_ms=0)


def test_a_cold_engine_is_ready_after_provisioning_and_loading() -> None:
    warmth = cold()
    warmth.load(0)
    states = []
    for at_ms in (84_999, 85_000, 149_999, 150_000):
        warmth.advance(at_ms)
        states.append(warmth.state)
    assert states == [State.PROVISIONING, State.LOADING, State.LOADING, State.READY]


def test_a_provisioned_engine_only_has_to_load() -> None:
    warmth = cold()
    warmth.provision(0)
    warmth.advance(200_000)
    assert warmth.state is State.PROVISIONED
    warmth.load(200_000)
    assert warmth.next_event_ms() == 265_000


def test_asking_again_does_not_begin_again() -> None:
    warmth = cold()
    warmth.load(0)
    warmth.load(100_000)
    warmth.provision(120_000)
    warmth.advance(150_000)
    assert warmth.ready


def test_held_and_ready_time_are_counted_apart() -> None:
    warmth = cold()
    warmth.load(10_000)
    warmth.unload(200_000)
    warmth.advance(999_000)
    assert (warmth.held_ms, warmth.ready_ms) == (190_000, 40_000)


def test_an_engine_that_needs_no_time_is_ready_at_once() -> None:
    warmth = Warmth(EngineProfile.model_validate({"warm": False}), now_ms=0)
    warmth.load(0)
    assert warmth.ready
