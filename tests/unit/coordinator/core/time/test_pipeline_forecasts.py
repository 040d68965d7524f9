"""What a partition expects: it changes by events only, and a log that is read again decides the same."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.coordinator.core.run.beginning import accept
from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.time.duration_estimates import ENOUGH, Estimate, outlook
from hocket.coordinator.core.time.pipeline_forecasts import MAX_NODES_PER_EVENT, PipelineForecasts
from hocket.schemas.messages import OutlookChanged, Priority, RunAccepted
from hocket.schemas.pipeline.plan import compile_pipeline
from support.run_player import OWNER, START_MS, python

PLAN = compile_pipeline(
    {"pipeline": "p", "nodes": {"a": python(), "b": python(needs=["a"]), "c": python(needs=["b"])}}
)
COMPILED = PipelinePlan(PLAN)
SURE = Estimate(100.0, 400.0, 10.0)


def told(outlooks: PipelineForecasts, **measured: Estimate) -> list[str]:
    """Return the paths that are news, and apply their event."""
    event = outlooks.news("t", "p", measured)
    if event is None:
        return []
    outlooks.change(event)
    return [node.path for node in event.nodes]


def test_only_what_changed_materially_is_news() -> None:
    outlooks = PipelineForecasts()
    assert told(outlooks, a=SURE, b=SURE) == ["a", "b"]
    assert told(outlooks, a=SURE, b=SURE._replace(mean_ms=105.0)) == []
    assert told(outlooks, a=SURE, b=SURE._replace(mean_ms=140.0)) == ["b"]
    assert told(outlooks, a=SURE._replace(variance=10_000.0)) == ["a"]


def test_small_steps_make_no_news_by_their_jitter() -> None:
    outlooks = PipelineForecasts()
    told(outlooks, a=Estimate(0.2, 0.0, 10.0))
    assert told(outlooks, a=Estimate(0.9, 0.0, 10.0)) == []


def test_an_estimate_that_becomes_sure_is_news() -> None:
    outlooks = PipelineForecasts()
    told(outlooks, a=SURE._replace(weight=ENOUGH - 1))
    assert told(outlooks, a=SURE._replace(weight=ENOUGH)) == ["a"]
    assert told(outlooks, a=SURE._replace(weight=50.0)) == []


def test_a_pipeline_of_many_nodes_is_told_in_parts() -> None:
    outlooks = PipelineForecasts()
    measured = {f"n{i:04d}": SURE for i in range(MAX_NODES_PER_EVENT + 1)}
    assert len(told(outlooks, **measured)) == MAX_NODES_PER_EVENT
    assert told(outlooks, **measured) == [f"n{MAX_NODES_PER_EVENT:04d}"]


def test_an_event_concerns_its_own_pipeline_only() -> None:
    outlooks = PipelineForecasts()
    before = outlooks.of("t", "other", 1, COMPILED)
    told(outlooks, a=SURE)
    assert outlooks.of("t", "other", 1, COMPILED) is before
    assert before.expected == outlook(PLAN, {})
    assert outlooks.of("t", "p", 1, COMPILED).expected["a"].own.mean_ms == SURE.mean_ms


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.floats(0.001, 1e6),
            st.floats(0, 1e9),
            st.floats(0, 50),
        ),
        max_size=20,
    ),
    st.integers(0, 20),
)
def test_a_log_read_again_from_any_kept_state_decides_the_same_bit_for_bit(
    measurements: list[tuple[str, float, float, float]], takeover: int
) -> None:
    first, kept, texts = PipelineForecasts(), {}, []
    decisions = []
    for path, mean_ms, variance, weight in measurements:
        event = first.news("t", "p", {path: Estimate(mean_ms, variance, weight)})
        if event is not None:
            texts.append(event.model_dump_json())
            first.change(event)
        decisions.append(decision_with(first))

    again, place, repeated = PipelineForecasts(), 0, []
    for path, mean_ms, variance, weight in measurements:
        if len(repeated) == takeover:  # another owner goes on with what Postgres holds
            again = PipelineForecasts(kept.values())
        if again.news("t", "p", {path: Estimate(mean_ms, variance, weight)}) is not None:
            for row in again.change(OutlookChanged.model_validate_json(texts[place])):
                kept[row.tenant, row.pipeline, row.path] = row
            place += 1
        repeated.append(decision_with(again))
    assert repeated == decisions


def decision_with(outlooks: PipelineForecasts) -> str:
    """Return the deadlines and slacks that a run gets at this moment."""
    event = RunAccepted(
        run_id="r1",
        tenant="t",
        pipeline="p",
        version=1,
        input={},
        priority=Priority.STANDARD,
        deadline_at_ms=START_MS + 1_000,
    )
    expected = outlooks.of("t", "p", 1, COMPILED)
    outcome = accept(event, COMPILED, OWNER, now_ms=START_MS, forecast=expected)
    return repr([(s.deadline_at_ms, s.slack_ms) for s in outcome.run.steps.values()])
