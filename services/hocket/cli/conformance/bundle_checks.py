"""Checks how a worker handles several steps in one message: docs/reference/worker-protocol.md,
`Bundles`."""

import asyncio
import json
import signal
from typing import Any

from hocket.cli.conformance.stage import Stage, dispatch_id, result_id, slots_of
from hocket.schemas import ids, subjects
from hocket.schemas.messages import StepRequested, encoded

SOON_S = 7.0
AGAIN_S = 30.0
SLOW_MS = 1_500
ROUNDS_S = 40.0


async def takes_bundles(stage: Stage) -> None:
    """It runs every step of a bundle if it announces support for bundles, otherwise only the first."""
    if not await _announces(stage):
        await _runs_the_first(stage)
        return
    await _runs_each(stage)
    await _gives_back(stage)


async def keeps_to_its_slots(stage: Stage) -> None:
    """It runs no more steps at once than it announces, in whatever lanes or bundle they come."""
    bundles = await _announces(stage)
    slots = max(map(slots_of, stage.heard))
    slow = {"do": "sleep", "ms": SLOW_MS, "value": "slow"}
    steps = []
    for lane in subjects.LANES * (slots // len(subjects.LANES) + 2):
        steps.append(step := stage.made(slow))
        await stage.send_raw(encoded(step), msg_id=dispatch_id(step), lane=lane)
    await _run_in(stage, slots, steps, "in three lanes")
    if bundles:
        steps = await _send(stage, *[slow] * (slots + 2))
        await _run_in(stage, slots, steps, "in one bundle")


async def _run_in(stage: Stage, slots: int, steps: list[StepRequested], how: str) -> None:
    """Check that steps, each of which takes SLOW_MS, end in rounds of `slots` at most. Those of a bundle
    may also be given back."""
    await stage.until(
        lambda: all(stage.results(step) or _was_returned(stage, step) for step in steps),
        f"a result of each of {len(steps)} steps {how}",
        ROUNDS_S,
    )
    ended_s = [one.heard.at_s for step in steps for one in stage.results(step)]
    assert ended_s, f"it ran none of the steps {how}"
    for first_s in ended_s:  # those that end within half of their time ran at once
        at_once = sum(first_s <= one_s < first_s + SLOW_MS / 2_000 for one_s in ended_s)
        assert at_once <= slots, f"it ran {at_once} of the steps {how} at once, in {slots} slots"
    await _until_empty(stage)


async def _runs_the_first(stage: Stage) -> None:
    first, other = await _send(stage, {"do": "echo", "value": 1}, {"do": "echo", "value": 2})
    result = await stage.result(first)
    assert result.body.get("output") == 1, f"the first step gave {result.body.get('output')!r}"
    assert not result.body.get("took"), "it says that it took the others, but announces no bundles"
    assert not stage.results(other), "it ran another step, but announces no bundles"
    await _until_empty(stage)


async def _runs_each(stage: Stage) -> None:
    slow = {"do": "sleep", "ms": SLOW_MS, "value": "slow"}
    tasks = ({"do": "echo", "value": 1}, slow, {"do": "fail", "message": "no"})
    first, second, third = steps = await _send(stage, *tasks)
    for step in steps:
        body = (await stage.result(step)).body
        for name in ("step", "attempt", "dispatched_at_ms", "capability"):
            assert body.get(name) == getattr(step, name), f"a result's `{name}` is not its step's"
    last = (await stage.result(second)).heard.number
    for step in (first, third):
        number = (await stage.result(step)).heard.number
        assert number < last, "a step held back its result until another step of its bundle ended"
    result = await stage.result(first)
    took = result.body.get("took")
    assert took == len(steps), f"`took` of the first step's result is {took!r}, not {len(steps)}"
    if result.heard.subject.endswith(".finished"):  # results sent together have another id
        msg_id = result.heard.headers.get("Nats-Msg-Id")
        assert msg_id == ids.taken(result_id(first)), f"its Nats-Msg-Id is {msg_id!r}"
    await _until_empty(stage)
    acks = [one.number for one in stage.heard if one.subject.startswith("$JS.ACK") and not one.data]
    acks += [one.number for one in stage.heard if one.data == b"+ACK"]
    assert min(acks, default=0) > last, "the bundle was acknowledged before its last result"


async def _gives_back(stage: Stage) -> None:
    slow = {"do": "sleep", "ms": 20_000, "value": "slow"}
    first, second = await _send(stage, slow, {"do": "echo", "value": 1})
    await stage.result(second)
    await stage.stop(stage.running, signal.SIGKILL)
    stage.running = await stage.start()
    await stage.until(
        lambda: _was_returned(stage, first),
        "the first step of a bundle whose worker ended, on hocket.log.PARTITION.returned",
        AGAIN_S,
    )
    assert not stage.results(first), "it ran the step, which is delivered again on its own"
    assert len(stage.results(second)) == 1, "it ran a step again that had already ended"
    await _until_empty(stage)


async def _announces(stage: Stage) -> bool:
    stage.bus.publish_nowait(subjects.WORKER_ASKED, b"")
    await stage.until(lambda: any(map(slots_of, stage.heard)), "an announcement", SOON_S)
    return any(slots_of(one) and one.json().get("bundles") is True for one in stage.heard)


async def _send(stage: Stage, *tasks: Any) -> list[StepRequested]:
    """Publish several steps in one message."""
    steps = [stage.made(task) for task in tasks]
    bodies = [json.loads(encoded(step)) for step in steps]
    body = json.dumps(bodies[0] | {"more": bodies[1:]}).encode()
    await stage.send_raw(body, msg_id=f"{dispatch_id(steps[0])}:{len(steps)}")
    return steps


def _was_returned(stage: Stage, step: StepRequested) -> bool:
    return any(
        one.subject.endswith(".returned")
        and (one.json()["run_id"], one.json().get("capability")) == (step.run_id, step.capability)
        for one in stage.heard
    )


async def _until_empty(stage: Stage) -> None:
    for _ in range(50):
        if not await stage.waiting():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the bundle is still in the stream: it was never acknowledged")
