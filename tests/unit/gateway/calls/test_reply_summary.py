"""What a reply says of its whole call."""

from decimal import Decimal

from hocket.gateway.calls.call import Call
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.dependencies import CallDependencies
from hocket.gateway.calls.reply_summary import ReplySummary
from hocket.gateway.core.errors import ModelUnknown
from hocket.schemas.messages import CallReply
from support.gateway.routing_rig import NOW_MS, Rig, backend, request, says

MODELS = {"writer": {"backends": [backend("a")]}}
ERROR = ModelUnknown(model="writer", known="reader").info()


def summary(rig: Rig) -> ReplySummary:
    calls = rig.calls
    return ReplySummary(
        CallDependencies(
            lambda: calls.routes, calls.scheduler, calls.spending, rig, lambda: rig.now_ms, "g1"
        )
    )


def made(rig: Rig, **fields: object) -> Call:
    """A call of one attempt, begun a second ago, that waited and cost something."""
    call = Call.of(request(**fields), Cancellation(), rig.now_ms)
    call.attempts, call.cost_usd, call.queue_ms, call.backend = 1, Decimal("0.5"), 250.0, "a"
    rig.now_ms += 1_000
    return call


async def test_a_reply_has_the_cost_and_the_time_of_all_attempts() -> None:
    rig = Rig(MODELS, a=says("tidal"))
    call = made(rig)
    reply = summary(rig).summed(call, CallReply(call_id="c", text="tidal"))
    assert (reply.latency_ms, reply.queue_ms, reply.cost_usd) == (1_000, 250, Decimal("0.5"))
    assert (reply.text, reply.error) == ("tidal", None)


async def test_an_error_says_what_is_left_of_time_and_money() -> None:
    rig = Rig(MODELS, a=says("tidal"))
    call = made(rig, budget_usd="9")
    error = summary(rig).summed(call, CallReply(call_id="c", error=ERROR)).error
    assert error is not None
    assert (error.slack_ms, error.budget_left_usd) == (59_000, "9")
    assert call.request.deadline_at_ms == NOW_MS + 60_000


async def test_only_a_call_that_asked_nobody_is_booked_as_refused() -> None:
    rig = Rig(MODELS, a=says("tidal"))
    asked = made(rig)
    assert summary(rig).refused(asked, ERROR).backend == "a"
    assert rig.refused == []
    asked.attempts = 0
    reply = summary(rig).refused(asked, ERROR)
    (refused,) = rig.refused
    assert (refused.call_id, refused.error_code, refused.gateway) == ("c", ERROR.code, "g1")
    assert (reply.error, reply.model) == (ERROR, "writer")
