"""Handlers that wait are played as they run: suspended, and gone on with."""

import asyncio
from typing import Any

import pytest

from hocket.testing import Play
from hocket.worker import Context, SignalTimedOut, Worker

DAY_S = 86_400
worker = Worker()
proposed: list[str] = []


@worker.node("shop.refund")
async def refund(order: dict[str, str], context: Context) -> Any:
    """Propose a refund, and wait for the answer."""
    await context.step("propose", proposed.append, order["number"])
    try:
        return await context.wait_for_signal("answer", timeout_s=2 * DAY_S, returns=dict[str, bool])
    except SignalTimedOut:
        return None


@worker.node("shop.nap")
async def nap(given: dict[str, float], context: Context) -> int:
    """Sleep, and tell the attempt."""
    await context.sleep(given["seconds"])
    return context.step.attempt


@worker.node("shop.both")
async def both(given: dict[str, float], context: Context) -> list[Any]:
    """Wait for two signals side by side, and then for the first one again."""
    a, b = await asyncio.gather(
        context.wait_for_signal("a", timeout_s=3_600),
        context.wait_for_signal("b", timeout_s=30),
    )
    return [a, b, await context.wait_for_signal("a", timeout_s=3_600)]


def play_of(node_type: str, given: Any) -> Play:
    node = {"type": node_type, "with": given}
    return Play({"pipeline": "p", "slo_ms": 7 * DAY_S * 1_000, "nodes": {"a": node}}, worker=worker)


@pytest.mark.parametrize(("answered", "took_ms"), [(True, 60_000), (False, 2 * DAY_S * 1_000)])
def test_a_handler_waits_for_its_signal(answered: bool, took_ms: float) -> None:
    proposed.clear()
    play = play_of("shop.refund", {"number": "7"})
    if answered:
        play.signals("answer", {"ok": True}, after_ms=60_000)
    played = play.run({})
    assert (played.status, played.output) == ("succeeded", {"ok": True} if answered else None)
    assert played.took_ms == pytest.approx(took_ms, abs=1_000)
    assert (proposed, played.steps["a"].attempts) == (["7"], 2)
    assert play.run({}).trace == played.trace


def test_a_long_sleep_is_another_attempt_and_a_short_one_is_not() -> None:
    assert play_of("shop.nap", {"seconds": 3_600}).run({}).output == 2
    assert play_of("shop.nap", {"seconds": 4}).run({}).output == 1


def test_signals_that_a_handler_waits_for_side_by_side_come_at_their_own_times() -> None:
    play = play_of("shop.both", {})
    play.signals("a", "first", after_ms=60_000)
    play.signals("b", "beside", after_ms=1_000)
    play.signals("a", "second", after_ms=1_000)
    played = play.run({})
    assert (played.status, played.output) == ("succeeded", ["first", "beside", "second"])
    came = [line.split(" ms  ")[1] for line in played.trace if "answered by" in line]
    assert came == ["b: answered by test", "a: answered by test", "a: answered by test"]


def test_a_suspension_is_traced_and_is_no_failure() -> None:
    trace = "\n".join(play_of("shop.nap", {"seconds": 3_600}).run({}).trace)
    assert "a: attempt 1 suspended" in trace
    assert "failed" not in trace
