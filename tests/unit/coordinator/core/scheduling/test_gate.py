"""The dispatch gate: what goes out, what is held, and in which order held steps go."""

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.coordinator.core.scheduling.gate import LEAVING_MS, Gate
from hocket.coordinator.core.scheduling.priority_queue import (
    CLASSES,
    LATE_TURN_AFTER,
    TURN_AFTER,
    Ready,
)
from hocket.coordinator.core.scheduling.tenant_reserve import (
    LEAD_MS,
    LEAST_TO_KEEP,
    RATE_MEMORY,
    SHARED_FOR_MS,
)
from hocket.coordinator.core.scheduling.type_queue import (
    KEPT_FOR_MS,
    LINGER_MS,
    SPARE_STEPS,
)
from hocket.schemas.messages import Priority
from hocket.schemas.worker_slots import MAX_WORKERS, SILENT_MS, WorkerSlots
from support.runs.ready_steps import FAR, NOW, order, ready


def gate_with(slots: int, weights: dict[str, float] | None = None) -> Gate:
    gate = Gate(weights)
    gate.types.announced("w1", {"python": slots}, NOW)
    return gate


def full_gate(weights: dict[str, float] | None = None) -> tuple[Gate, list[Ready]]:
    """A gate of one slot whose window is full, and what is out."""
    gate = gate_with(1, weights)
    out = [ready(f"first{i}", tenant="somebody") for i in range(1 + SPARE_STEPS)]
    for step in out:
        assert gate.offer(step)
    return gate, out


def test_a_type_that_nobody_announced_is_not_gated() -> None:
    gate = Gate()
    assert all(gate.offer(ready(f"r{i}")) for i in range(10_000))


def test_steps_of_an_own_type_wait_until_a_worker_announces_it_and_after_the_last_has_gone() -> (
    None
):
    gate = Gate()
    first, second = ready("r1", type="crm.lookup"), ready("r2", type="crm.lookup")
    assert not gate.offer(first)
    gate.tick(NOW)
    assert gate.release(NOW) == []
    gate.types.announced("w1", {"crm.lookup": 1}, NOW)
    assert gate.release(NOW) == [first]
    gate.finished(first.attempt_id)
    gate.types.announced("w1", {}, NOW)
    gate.tick(NOW)
    gate.tick(NOW + LINGER_MS)
    assert not gate.offer(second)
    assert gate.cancel(second.attempt_id, NOW) is False


def test_names_that_no_worker_runs_are_forgotten_with_their_steps_and_told_together() -> None:
    gate = Gate()
    steps = [ready(f"r{i}", type=f"a.b{i}") for i in range(50)]
    assert not any(map(gate.offer, steps))
    assert {name: load.held for name, load in gate.types.loads().items()} == {"unserved": 50}
    for step in steps:
        gate.cancel(step.attempt_id, NOW)
    gate.tick(NOW)
    assert gate.types.by_name == {}


def test_only_what_keeps_the_slots_busy_goes_out() -> None:
    gate = gate_with(8)
    went = [gate.offer(ready(f"r{i}")) for i in range(50)]
    assert went == [True] * (8 + SPARE_STEPS) + [False] * (42 - SPARE_STEPS)
    assert gate.release(NOW) == []


def test_a_slot_that_becomes_free_is_given_to_the_step_with_least_slack() -> None:
    gate, out = full_gate()
    for name, latest in (("later", FAR), ("soon", NOW + 10), ("soonest", NOW + 5)):
        assert not gate.offer(ready(name, latest_start_at_ms=latest))
    assert order(gate, out) == ["soonest", "soon", "later"]


def test_a_type_does_not_wait_for_the_slots_of_another() -> None:
    gate, _ = full_gate()
    gate.types.announced("w2", {"llm": 1}, NOW)
    assert gate.offer(ready("other", type="llm"))


def test_an_attempt_that_is_out_goes_again_when_it_is_offered_again_and_a_held_one_stays() -> None:
    gate, out = full_gate()
    assert gate.offer(out[0])
    assert not gate.offer(ready("held"))
    assert not gate.offer(ready("held"))
    assert order(gate, out) == ["held"]


def test_a_held_attempt_that_is_cancelled_never_goes_and_no_worker_need_hear_of_it() -> None:
    gate, out = full_gate()
    gate.offer(ready("held"))
    assert gate.cancel("held:s:1", NOW) is False
    assert gate.cancel(out[0].attempt_id, NOW) is True
    assert order(gate, out) == []


def test_a_worker_hears_of_a_held_attempt_that_a_former_owner_may_have_sent() -> None:
    gate, _ = full_gate()
    assert not gate.offer(ready("held", again=True))
    assert gate.cancel("held:s:1", NOW) is True
    assert gate.release(NOW) == []


def test_a_cancelled_attempt_counts_until_its_end_is_heard_or_long_enough_ago() -> None:
    gate, out = full_gate()
    gate.offer(ready("held"))
    gate.cancel(out[0].attempt_id, NOW)
    gate.tick(NOW + LEAVING_MS - 1)
    assert gate.release(NOW) == []
    gate.types.announced("w1", {"python": 1}, NOW + LEAVING_MS)
    gate.tick(NOW + LEAVING_MS)
    assert [step.item for step in gate.release(NOW)] == ["held"]


def test_the_end_of_an_attempt_that_a_former_owner_handed_out_takes_it_out_of_the_gate() -> None:
    gate, out = full_gate()
    gate.offer(ready("held"))
    assert gate.finished("held:s:1") is not None
    assert order(gate, out) == []


def test_a_lost_partition_frees_its_slots_and_takes_its_steps_along() -> None:
    gate = gate_with(1)
    for i in range(1 + SPARE_STEPS):
        gate.offer(ready(f"first{i}", partition=1))
    gate.offer(ready("theirs", partition=1))
    gate.offer(ready("ours"))
    gate.forget(1)
    assert [step.item for step in gate.release(NOW)] == ["ours"]


# ---- capacity ------------------------------------------------------------------------------------


def test_more_workers_let_more_out_and_fewer_let_nothing_out_until_enough_has_finished() -> None:
    gate, out = full_gate()
    held = [ready(f"h{i}") for i in range(10)]
    for step in held:
        assert not gate.offer(step)
    gate.types.announced("w2", {"python": 4}, NOW)
    out += gate.release(NOW)
    assert len(out) == 5 + SPARE_STEPS
    gate.types.announced("w2", {}, NOW)
    gate.finished(out.pop().attempt_id)
    assert gate.release(NOW) == []


def test_a_silent_worker_is_forgotten() -> None:
    gate = gate_with(4)
    gate.types.announced("w2", {"python": 4}, NOW + SILENT_MS)
    gate.tick(NOW + SILENT_MS + 1)
    assert gate.types.loads()["python"].slots == 4


def test_steps_are_held_while_a_lone_worker_restarts_and_let_out_when_it_stays_away() -> None:
    gate, _ = full_gate()
    gate.offer(ready("held"))
    gate.types.announced("w1", {}, NOW)
    gate.tick(NOW + LINGER_MS - 1)
    assert gate.release(NOW) == []
    gate.tick(NOW + LINGER_MS)
    assert [step.item for step in gate.release(NOW)] == ["held"]
    assert gate.types.loads()["python"].window is None


def test_the_window_grows_by_what_finishes_within_the_lead() -> None:
    gate = gate_with(10)
    gate.tick(NOW)
    for i in range(500):
        gate.offer(step := ready(f"r{i}"))
        gate.finished(step.attempt_id)
    gate.tick(NOW + 1_000)
    per_ms = (1 - RATE_MEMORY) * 500 / 1_000
    assert gate.types.loads()["python"].window == 10 + SPARE_STEPS + per_ms * LEAD_MS


def test_a_coordinator_uses_its_share_of_the_slots() -> None:
    gate = gate_with(20)
    gate.types.shares(0.25)
    assert [gate.offer(ready(f"r{i}")) for i in range(20)].count(True) == 5 + SPARE_STEPS


# ---- slots for other tenants ---------------------------------------------------------------------


def of(tenant: str, name: str) -> Ready:
    return ready(f"{tenant}-{name}", tenant=tenant)


def out_beside_another(gate: Gate, steps: int = 40) -> list[Ready]:
    """The steps of `loud` that go out while there are steps of `quiet`, of which none is out."""
    quiet = of("quiet", "before")
    assert gate.offer(quiet)
    gate.finished(quiet.attempt_id)
    loud = [of("loud", str(number)) for number in range(steps)]
    gate.offer(loud[0])
    gate.tick(NOW)
    out = [loud[0], *(step for step in loud[1:] if gate.offer(step))]
    return out + gate.release(NOW)


def test_no_tenant_takes_the_last_slots_while_there_are_steps_of_others() -> None:
    gate = gate_with(16)
    assert len(out_beside_another(gate)) == 14
    assert all(gate.offer(of("quiet", str(number))) is False for number in range(5))
    released = gate.release(NOW)  # the two that are left, and what is in the stream besides
    assert [step.tenant for step in released] == 4 * ["quiet"]


def test_a_tenant_that_has_its_part_goes_on_as_its_steps_end_and_nobody_else_s() -> None:
    gate = gate_with(8)
    out = out_beside_another(gate)
    assert len(out) == 7
    gate.finished(out[0].attempt_id)
    assert [step.tenant for step in gate.release(NOW)] == ["loud"]
    gate.offer(quiet := of("quiet", "one"))
    assert gate.release(NOW) == [quiet]
    gate.finished(quiet.attempt_id)
    assert gate.release(NOW) == []


def test_a_lone_tenant_has_all_slots_and_again_some_minutes_after_others() -> None:
    gate = gate_with(8)
    assert sum(gate.offer(of("loud", str(number))) for number in range(20)) == 8 + SPARE_STEPS
    gate = gate_with(8)
    assert len(out_beside_another(gate)) == 7
    for after_ms in (SHARED_FOR_MS - 1, SHARED_FOR_MS):
        gate.types.announced("w1", {"python": 8}, NOW + after_ms)
        gate.tick(NOW + after_ms)
    assert len(gate.release(NOW)) >= 1 + SPARE_STEPS  # and what finishes in the lead


def test_a_tenant_of_short_steps_has_all_slots() -> None:
    gate, at_ms = gate_with(8), NOW
    out = out_beside_another(gate)
    for _ in range(20):  # 100 steps a second
        at_ms += 250
        gate.types.announced("w1", {"python": 8}, at_ms)
        for number in range(25):
            gate.finished(out.pop().attempt_id)
            gate.offer(of("loud", f"{at_ms}-{number}"))  # others wait before it
            out += gate.release(at_ms)
        gate.tick(at_ms)
        out += gate.release(at_ms)
    assert len(out) >= 8 + SPARE_STEPS
    for _ in range(20):  # and now none ends
        at_ms += 250
        gate.types.announced("w1", {"python": 8}, at_ms)
        gate.tick(at_ms)
    while len(out) > 7:
        assert gate.release(at_ms) == []
        gate.finished(out.pop().attempt_id)
    assert gate.release(at_ms) == []


def test_nothing_is_kept_from_a_tenant_of_very_few_slots_or_where_that_is_switched_off() -> None:
    assert len(out_beside_another(gate_with(LEAST_TO_KEEP - 1))) == LEAST_TO_KEEP - 1 + SPARE_STEPS
    gate = Gate(tenant_reserve=0.0)
    gate.types.announced("w1", {"python": 16}, NOW)
    assert len(out_beside_another(gate)) == 16 + SPARE_STEPS


# ---- slots for interactive steps -----------------------------------------------------------------


def interactive(name: str) -> Ready:
    return ready(name, priority=Priority.INTERACTIVE)


def out_beside_interactive(gate: Gate) -> tuple[int, int]:
    """How many others go out after an interactive step, and how many more interactive ones then."""
    assert gate.offer(interactive("first"))
    others = [gate.offer(ready(f"other{i}")) for i in range(100)].count(True)
    for i in range(100):
        gate.offer(interactive(f"i{i}"))
    return others, len(gate.release(NOW))


def test_while_interactive_steps_come_others_leave_them_an_eighth_of_the_slots() -> None:
    assert out_beside_interactive(gate_with(16)) == (14 - 1, 2 + SPARE_STEPS)


def test_one_of_a_few_slots_is_left_and_none_of_very_few() -> None:
    assert out_beside_interactive(gate_with(LEAST_TO_KEEP)) == (3 - 1, 1 + SPARE_STEPS)
    for slots in range(1, LEAST_TO_KEEP):
        others, _ = out_beside_interactive(gate_with(slots))
        assert others == slots + SPARE_STEPS - 1


def test_nothing_is_kept_where_it_is_switched_off() -> None:
    gate = Gate(interactive_share=0.0)
    gate.types.announced("w1", {"python": 16}, NOW)
    assert out_beside_interactive(gate) == (16 + SPARE_STEPS - 1, 0)


def test_the_kept_slots_are_for_all_again_when_no_interactive_step_has_come_for_a_while() -> None:
    gate = gate_with(8)
    gate.offer(interactive("first"))
    gate.tick(NOW)
    for i in range(20):
        gate.offer(ready(f"r{i}"))
    later = NOW + KEPT_FOR_MS
    gate.types.announced("w1", {"python": 8}, later)
    gate.tick(later - 1)
    assert gate.release(later - 1) == []
    gate.tick(later)
    assert len(gate.release(later)) == 1 + SPARE_STEPS


def test_what_is_kept_follows_the_slots() -> None:
    gate = gate_with(8)
    gate.offer(interactive("first"))
    for i in range(100):
        gate.offer(ready(f"r{i}"))
    gate.types.announced("w2", {"python": 24}, NOW)
    assert 1 + 6 + len(gate.release(NOW)) == 32 - 4
    gate.types.announced("w2", {}, NOW)
    gate.finished("first:s:1")
    assert gate.release(NOW) == []


def test_where_slots_become_free_all_the_time_none_is_kept() -> None:
    gate = gate_with(8)
    gate.tick(NOW)
    for i in range(500):
        gate.offer(step := interactive(f"short{i}"))
        gate.finished(step.attempt_id)
    gate.tick(NOW + 1_000)
    went = [gate.offer(ready(f"r{i}")) for i in range(100)].count(True)
    assert went == gate.types.loads()["python"].window


def test_interactive_steps_that_fill_all_slots_do_not_starve_the_others() -> None:
    gate = gate_with(8)
    out = [interactive(f"i{i}") for i in range(8 + SPARE_STEPS)]
    assert all(gate.offer(step) for step in out)
    gate.offer(ready("standard"))
    gate.offer(ready("batch", priority=Priority.BATCH))
    for i in range(100):
        gate.offer(interactive(f"more{i}"))
    went = order(gate, out)
    assert went.index("standard") == TURN_AFTER[Priority.STANDARD]
    assert went.index("batch") <= TURN_AFTER[Priority.BATCH] + 1


def test_interactive_steps_that_never_wait_do_not_starve_the_others_either() -> None:
    gate = gate_with(8)
    busy = [interactive(f"i{i}") for i in range(7)]
    assert all(gate.offer(step) for step in busy)
    gate.offer(ready("standard"))
    went: list[str] = []
    for i in range(10):  # each takes the kept slot at once and ends
        gate.offer(step := interactive(f"more{i}"))
        went += [released.item for released in gate.release(NOW)]
        gate.finished(step.attempt_id)
    assert went.index("standard") == TURN_AFTER[Priority.STANDARD]


def test_a_task_that_is_not_interactive_is_predicted_without_the_kept_slots() -> None:
    gate = gate_with(16)
    gate.offer(interactive("first"))
    slots = [gate.types.capacity("python", priority).slots for priority in CLASSES]
    assert slots == [16, 14, 14]


# ---- order ---------------------------------------------------------------------------------------


def test_interactive_goes_before_standard_before_batch() -> None:
    gate, out = full_gate()
    for priority in reversed(CLASSES):
        gate.offer(ready(priority.value, priority=priority, latest_start_at_ms=FAR))
    assert order(gate, out) == ["interactive", "standard", "batch"]


def test_no_class_is_passed_over_for_ever() -> None:
    gate, out = full_gate()
    for i in range(100):
        for priority in CLASSES:
            gate.offer(ready(f"{priority}{i}", priority=priority))
    went = [name.rstrip("0123456789") for name in order(gate, out)]
    full = went[: went.index("interactive") + 100]
    for priority, bound in TURN_AFTER.items():
        places = [i for i, name in enumerate(full) if name == priority]
        gaps = [b - a - 1 for a, b in zip([-1, *places], places, strict=False)]
        assert max(gaps) <= bound + 1
    assert went.count("interactive") == went.count("standard") == went.count("batch") == 100


def test_a_flood_of_one_tenant_does_not_delay_another_beyond_its_share() -> None:
    gate, out = full_gate()
    for i in range(1_000):
        gate.offer(ready(f"flood{i}", tenant="flood", latest_start_at_ms=NOW))
    for i in range(5):
        gate.offer(ready(f"other{i}", tenant="other"))
    went = order(gate, out)
    assert max(went.index(f"other{i}") for i in range(5)) <= 10


def test_tenants_get_slot_time_by_weight_and_not_by_their_number_of_steps() -> None:
    gate, out = full_gate({"heavy": 3.0})
    for i in range(400):
        gate.offer(ready(f"heavy{i}", tenant="heavy", expected_ms=100.0))
        gate.offer(ready(f"light{i}", tenant="light", expected_ms=50.0))
    first = [name.rstrip("0123456789") for name in order(gate, out)[:250]]
    # 3 : 1 in time is 3 : 2 in steps, for those of `light` are half as long
    assert 146 <= first.count("heavy") <= 154


def test_a_tenant_that_comes_back_has_not_saved_up_and_has_not_escaped_its_account() -> None:
    gate, out = full_gate()
    for i in range(50):
        gate.offer(ready(f"a{i}", tenant="a"))
    went = []
    for i in range(40):  # `b` has never more than one step waiting
        gate.offer(ready(f"b{i}", tenant="b"))
        gate.finished(out.pop(0).attempt_id)
        released = gate.release(NOW)
        went += [step.tenant for step in released]
        out += released
    assert 18 <= went.count("a") <= 22


def test_a_wide_run_leaves_room_for_small_ones_and_uses_what_they_leave() -> None:
    gate = gate_with(8)
    wide = [
        ready(f"wide{i}", run_id="wide", attempt_id=f"wide:{i}:1", latest_start_at_ms=NOW)
        for i in range(800)
    ]
    out = [step for step in wide if gate.offer(step)]
    assert len(out) == 8 + SPARE_STEPS
    for i in range(4):
        gate.offer(ready(f"small{i}"))
    went = order(gate, out)
    # five runs share ten places: the wide one keeps two and gives the rest up as its steps finish
    assert sorted(went[:4]) == ["small0", "small1", "small2", "small3"]
    assert len(went) == 800 - 10 + 4


def test_a_wide_run_that_is_more_urgent_goes_first_up_to_its_share() -> None:
    gate, out = full_gate()
    for i in range(4):
        gate.offer(ready(f"w{i}", run_id="wide", attempt_id=f"wide:{i}:1", latest_start_at_ms=NOW))
    gate.offer(ready("small", latest_start_at_ms=NOW + 1))
    assert order(gate, out)[:2] == ["w0", "small"]


def test_a_run_that_cannot_make_it_yields_to_those_that_can_but_not_for_ever() -> None:
    gate, out = full_gate()
    gate.offer(ready("lost", latest_start_at_ms=NOW - 500, latest_feasible_start_at_ms=NOW - 1))
    for i in range(20):
        gate.offer(ready(f"fine{i:02}", latest_start_at_ms=NOW + i))
    went = order(gate, out)
    assert went.index("lost") == LATE_TURN_AFTER
    assert [name for name in went if name != "lost"] == [f"fine{i:02}" for i in range(20)]


def test_of_siblings_that_must_start_at_the_same_time_the_one_that_completes_a_join_goes_first() -> (
    None
):
    gate, out = full_gate()
    for name, left in (("one of nine", 9), ("the last", 1), ("one of two", 2)):
        gate.offer(ready(name, run_id="r", join_left=left, latest_start_at_ms=NOW + left))
    assert order(gate, out) == ["the last", "one of two", "one of nine"]


# ---- properties ----------------------------------------------------------------------------------

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["offer", "offer", "offer", "finish", "finish", "cancel", "announce"]),
        st.integers(0, 1_000_000),
    ),
    max_size=200,
)


@settings(max_examples=300, deadline=None)
@given(OPERATIONS, st.integers(0, 6))
def test_nothing_is_lost_doubled_or_let_out_beyond_the_window(
    operations: list[tuple[str, int]], slots: int
) -> None:
    gate = gate_with(slots) if slots else Gate()
    now_ms, offered, came = NOW, 0, False
    out: dict[str, Ready] = {}
    held: dict[str, Ready] = {}
    gone: Counter[str] = Counter()
    for name, number in operations:
        now_ms += number % 50
        names = sorted(out)
        if name == "offer":
            offered += 1
            step = ready(
                f"r{number % 5}",
                attempt_id=f"a{offered}",
                tenant=f"t{number % 3}",
                priority=CLASSES[number % 7 % 3],
                latest_start_at_ms=NOW + number % 2_000,
                latest_feasible_start_at_ms=NOW + number % 3_000,
                join_left=number % 4,
                expected_ms=float(number % 400),
                run_id=f"r{number % 3}-{number % 7 % 3}",
            )
            came |= step.priority is Priority.INTERACTIVE
            (out if gate.offer(step) else held)[step.attempt_id] = step
        elif name == "finish" and names:
            ended = names[number % len(names)]
            assert gate.finished(ended) is out.pop(ended)
            gone[ended] += 1
        elif name == "cancel" and held:
            cancelled = sorted(held)[number % len(held)]
            assert gate.cancel(cancelled, now_ms) is False
            del held[cancelled]
            gone[cancelled] += 1
        elif name == "announce" and slots:
            slots = 1 + number % 6
            gate.types.announced("w1", {"python": slots}, now_ms)
        for step in gate.release(now_ms):
            assert held.pop(step.attempt_id) is step
            out[step.attempt_id] = step
            assert len(out) <= slots + SPARE_STEPS
        load = gate.types.loads().get("python")
        if load is not None:
            assert (load.held, load.out) == (len(held), len(out))
            by_tenant = Counter(step.tenant for step in out.values())
            most = slots - 1 if slots >= LEAST_TO_KEEP else slots + SPARE_STEPS
            free = [step for step in held.values() if by_tenant[step.tenant] < most]
            interactive = any(step.priority is Priority.INTERACTIVE for step in free)
            keeps = came and slots >= LEAST_TO_KEEP and not interactive
            assert not free or len(out) >= (slots - 1 if keeps else slots + SPARE_STEPS)
    while out:
        ended = min(out)
        gate.finished(ended)
        del out[ended]
        gone[ended] += 1
        for step in gate.release(now_ms):
            del held[step.attempt_id]
            out[step.attempt_id] = step
    assert not held
    assert gone == Counter([f"a{i + 1}" for i in range(offered)])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 500)), min_size=60, max_size=150),
    st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)),
)
def test_tenants_that_wait_at_the_same_time_stay_within_one_step_of_their_shares(
    steps: list[tuple[int, int]], weights: tuple[int, int, int]
) -> None:
    """The bound of start-time fair queueing, over every interval from the start."""
    gate, out = full_gate({f"t{i}": float(w) for i, w in enumerate(weights)})
    left: Counter[str] = Counter()
    for i, (tenant, expected_ms) in enumerate(steps):
        gate.offer(ready(f"r{i}", tenant=f"t{tenant}", expected_ms=float(expected_ms)))
        left[f"t{tenant}"] += 1
    served: Counter[str] = Counter()
    longest = max(expected_ms for _, expected_ms in steps)
    weight_of = {f"t{i}": w for i, w in enumerate(weights)}
    while out:
        gate.finished(out.pop(0).attempt_id)
        for step in gate.release(NOW):
            served[step.tenant] += step.expected_ms / weight_of[step.tenant]
            left[step.tenant] -= 1
            out.append(step)
        waiting = [tenant for tenant in left if left[tenant]]
        for one in waiting:
            for other in waiting:
                bound = longest / weight_of[one] + longest / weight_of[other]
                assert served[one] - served[other] <= bound


def calls_of(act: Callable[[], None]) -> int:
    """Return how many functions a call calls, built-in ones too."""
    count = 0

    def counted(_frame: FrameType, _event: str, _argument: Any) -> None:
        nonlocal count
        count += 1

    gc.collect()
    gc.disable()  # what a collection calls is not the call's
    sys.setprofile(counted)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def test_an_announcement_costs_the_same_beside_many_workers_and_types() -> None:
    def cost(others: int) -> int:
        gate = Gate()
        for number in range(others):
            gate.types.announced(f"w{number}", {"python": 1, f"type-{number}": 1}, 0.0)
        return calls_of(lambda: gate.types.announced("one", {"python": 2}, 0.0))

    assert cost(2_000) == cost(2)


def test_slots_are_those_of_the_workers_that_are_heard() -> None:
    gate = Gate()
    gate.types.announced("a", {"python": 4, "sql": 1}, 0.0)
    gate.types.announced("b", {"python": 2}, 6_000.0)
    gate.types.announced("b", {"python": 3}, 6_000.0)
    assert gate.types.loads()["python"].slots == 7
    gate.tick(SILENT_MS + 1)
    assert (gate.types.loads()["python"].slots, gate.types.loads()["sql"].slots) == (
        3,
        1,
    )  # it lingers
    gate.tick(SILENT_MS + 1 + LINGER_MS)
    assert gate.types.loads()["sql"].slots == 0
    gate.types.announced("b", {}, 20_000.0)
    gate.types.announced("b", {"python": 5}, 20_000.0)
    assert gate.types.loads()["python"].slots == 5


def test_invented_workers_of_one_key_take_no_place_of_others() -> None:
    """MAX_WORKERS names on the subject of one pool: whoever else comes is counted all the same."""
    slots = WorkerSlots()
    for number in range(MAX_WORKERS + 10):
        slots.announced(f"x{number}.crm-lookup", {"crm.lookup": 1}, 0.0, "crm-lookup")
    assert slots.slots("crm.lookup") == MAX_WORKERS
    assert "erp.post" in slots.announced("good.erp-post", {"erp.post": 4}, 1.0, "erp-post")
    assert slots.announced("ours", {"llm": 2}, 1.0) >= {"llm"}
    assert (slots.slots("erp.post"), slots.slots("llm")) == (4, 2)
    assert slots.slots("crm.lookup") == MAX_WORKERS - 2
    slots.announced("another.crm-lookup", {"crm.lookup": 1}, 2.0, "crm-lookup")
    assert (slots.slots("erp.post"), slots.slots("llm")) == (4, 2)
    for worker in slots.silent(SILENT_MS + 0.5):
        slots.announced(worker, {}, SILENT_MS)
    assert list(slots.pools()) == ["erp-post"]
    ours = WorkerSlots()
    for number in range(MAX_WORKERS):
        ours.announced(f"w{number}", {"python": 1}, 0.0)
    assert not ours.announced("x.crm-lookup", {"crm.lookup": 1}, 0.0, "crm-lookup")
