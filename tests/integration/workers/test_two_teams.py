"""Two teams with packages, types and queues of their own on one platform: no step of one reaches the
other. 1,000 runs each: `python -m bench.scheduling.two_teams --isolation`."""

import asyncio

import pytest

from bench.scheduling.two_teams import TEAMS, DoesNotHold, Stage, both

RUNS = 40


async def test_no_step_of_a_team_reaches_the_other_even_while_its_worker_is_gone() -> None:
    async with Stage.open(dict.fromkeys(TEAMS, 4), handler_ms=1.0) as stage:
        calls = await both(stage, RUNS, 8)
        assert set(calls) == set(TEAMS)
        assert all(count >= 2 * RUNS for count in calls.values())

        await stage.kill("red")
        waits = await stage.teams["red"].publish()
        await asyncio.gather(*(stage.teams["blue"].run() for _ in range(RUNS)))
        assert not waits.done()
        assert stage.check_calls()["red"] == calls["red"]

        with (stage.teams["blue"].folder / "calls").open("a") as made_up:
            made_up.write("find r1 red red\n")
        with pytest.raises(DoesNotHold, match="blue was called for another team"):
            stage.check_calls()
