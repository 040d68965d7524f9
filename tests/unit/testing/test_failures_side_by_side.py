"""What fails in one branch of a handler while others go on: the next attempt tries it again, unless the
handler has dealt with it."""

import asyncio
from typing import Any

import pytest

from hocket.testing import Play, Played
from hocket.worker import Context, StepFailed

NODE: dict[str, Any] = {"type": "python", "handler": "m:f", "retry": {"max_attempts": 2}}
PIPELINE: dict[str, Any] = {"pipeline": "p", "slo_ms": 60_000, "nodes": {"a": NODE}}


class Shop:
    """Looks things up; `lamp` is away the first time."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def look(self, item: str) -> str:
        """Look an item up."""
        self.done.append(item)
        if self.done.count(item) == 1 and item == "lamp":
            raise ConnectionError("the shop is away")
        return item.title()

    async def told(self, item: str, context: Context) -> str:
        """Look an item up in a branch, or tell that it failed."""
        with context.branch(item):
            try:
                return str(await context.step("look", self.look, item))
            except StepFailed:
                return "-"


def played(handler: Any, *, dies_after: int = 0) -> Played:
    play = Play(PIPELINE)
    play.node("a", handler)
    if dies_after:
        play.dies("a", after=dies_after)
    return play.run()


def test_a_branch_that_fails_is_tried_again_though_others_were_kept_meanwhile() -> None:
    shop = Shop()

    async def look(item: str, context: Context) -> str:
        with context.branch(item):
            return str(await context.step("look", shop.look, item))

    async def handler(_given: Any, context: Context) -> list[str]:
        return await asyncio.gather(*(look(item, context) for item in ("lamp", "rope", "tent")))

    run = played(handler)
    assert run.output == ["Lamp", "Rope", "Tent"], str(run)
    assert sorted(shop.done) == ["lamp", "lamp", "rope", "tent"]


def test_a_failure_is_kept_when_the_same_task_goes_on_in_another_branch() -> None:
    shop = Shop()

    async def handler(_given: Any, context: Context) -> list[str]:
        return [await shop.told(item, context) for item in ("lamp", "rope", "tent")]

    run = played(handler, dies_after=2)
    assert run.output == ["-", "Rope", "Tent"], str(run)
    assert shop.done == ["lamp", "rope", "tent"]


def test_a_failure_is_kept_when_the_handler_goes_on_around_the_branches() -> None:
    shop = Shop()

    async def handler(_given: Any, context: Context) -> list[str]:
        looked = [shop.told(item, context) for item in ("lamp", "rope")]
        found = await asyncio.gather(*looked)
        return [*found, await context.step("look", shop.look, "tent")]

    run = played(handler, dies_after=3)
    assert run.output == ["-", "Rope", "Tent"], str(run)
    assert shop.done == ["lamp", "rope", "tent"]


@pytest.mark.parametrize("end", ["dies", "timeout"])
def test_what_is_cleaned_up_in_the_end_of_an_attempt_is_not_in_the_way_of_the_next(
    end: str,
) -> None:
    done: list[str] = []

    async def handler(_given: Any, context: Context) -> str:
        try:
            await context.step("charge", done.append, "charged")
            if end == "timeout" and context.step.attempt == 1:
                await asyncio.sleep(3_600)
            await context.step("ship", done.append, "shipped")
        finally:
            await context.step("release", done.append, "released")
        return "done"

    retry = {"max_attempts": 2, "on": ["timeout"]}
    node = NODE | {"timeout_ms": 1_000, "retry": retry}
    play = Play(PIPELINE | {"nodes": {"a": node}})
    play.node("a", handler)
    if end == "dies":
        play.dies("a", after=1)
    run = play.run()
    assert run.output == "done", str(run)
    cut_off = ["released"] if end == "timeout" else []
    assert done == ["charged", *cut_off, "shipped", "released"]
