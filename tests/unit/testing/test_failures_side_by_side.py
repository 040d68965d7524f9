"""What fails in one branch of a handler while others go on: the next attempt tries it again, unless the
handler has dealt with it."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from hocket.testing import Play, Played
from hocket.worker import Context, StepFailed

NODE: dict[str, Any] = {"type": "python", "handler": "m:f", "retry": {"max_attempts": 2}}
PIPELINE: dict[str, Any] = {"pipeline": "p", "slo_ms": 60_000, "nodes": {"a": NODE}}


CALLED: dict[str, Any] = {"c": {"type": "python", "handler": "m:c"}}
WITH_CALLS: dict[str, Any] = {**PIPELINE, "nodes": {"a": {**NODE, "calls": CALLED}}}


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


CALLING = PIPELINE | {"nodes": {"a": NODE | {"calls": {"c": {"type": "python", "handler": "m:c"}}}}}


def played_beside_calls(branch: Any, *, dies_after: int = 0) -> Played:
    """Play a handler that runs a branch beside another one, which calls a node again and again."""

    async def calls(context: Context) -> int:
        with context.branch("calls"):
            for number in range(3):
                await context.call_node("c", number)
        return 3

    async def handler(_given: Any, context: Context) -> Any:
        return await asyncio.gather(branch(context), calls(context))

    play = Play(CALLING)
    play.node("a", handler)
    play.node("a/c", lambda given: given)
    if dies_after:
        play.dies("a", after=dies_after)
    return play.run()


@pytest.mark.parametrize("takes_s", [0.0, 0.001, 0.1], ids=["at once", "soon", "late"])
@pytest.mark.parametrize("dies_after", range(5))
def test_a_handled_failure_is_kept_however_often_the_attempt_is_suspended(
    takes_s: float, dies_after: int
) -> None:
    paid: list[int] = []

    async def pay() -> None:
        paid.append(1)
        await asyncio.sleep(takes_s)
        raise ValueError("the card is refused")

    async def branch(context: Context) -> str:
        with context.branch("pay"):
            try:
                await context.step("pay", pay)
            except StepFailed:
                return "refused"
        return "paid"

    run = played_beside_calls(branch, dies_after=dies_after)
    assert run.output == ["refused", 3], str(run)
    assert len(paid) == 1, str(run)


@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "late"])
def test_a_failure_that_ends_the_handler_beside_a_wait_is_tried_again(is_late: bool) -> None:
    tried: list[int] = []

    async def look() -> str:
        tried.append(1)
        await asyncio.sleep(0.001)
        if len(tried) == 1:
            raise ConnectionError("the shop is away")
        return "found"

    async def branch(context: Context) -> Any:
        with context.branch("look"):
            try:
                return await context.step("look", look)
            except StepFailed:
                if is_late:  # the loop has no time for the handler before it looks at the clock
                    asyncio.get_running_loop().passes(1.0)  # type: ignore[attr-defined]
                raise

    async def nested(context: Context) -> Any:
        return (await asyncio.gather(branch(context)))[0]

    run = played_beside_calls(nested)
    assert run.output == ["found", 3], str(run)
    assert len(tried) == 2


class Program:
    """A handler with random parallel branches of steps, failures that it deals with, calls and sleeps;
    it counts how often each of them is done."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._branches = [self._branch(depth=0) for _ in range(3)]
        self.done: Counter[str] = Counter()

    def _branch(self, depth: int) -> list[Any]:
        kinds = ["step", "fails", "call", "call fails", "sleep"]
        drawn = [self._dice.choice(kinds) for _ in range(self._dice.randint(1, 3))]
        if depth == 0 and self._dice.random() < 0.5:
            return [*drawn, [self._branch(depth=1) for _ in range(2)]]
        return list(drawn)

    async def run(self, _given: Any, context: Context) -> list[Any]:
        """Run all branches side by side."""
        return await self._side_by_side(context, self._branches, "")

    async def called(self, given: dict[str, Any]) -> str:
        """Run the node that is called."""
        self.done[given["name"]] += 1
        if given["fails"]:
            raise ValueError(given["name"])
        return str(given["name"])

    async def _side_by_side(self, context: Context, branches: list[Any], path: str) -> list[Any]:
        async def branch(number: int, parts: list[Any]) -> list[Any]:
            with context.branch(f"b{number}"):
                return [
                    await self._do(context, part, f"{path}{number}.{ordinal} {part}")
                    for ordinal, part in enumerate(parts)
                ]

        return await asyncio.gather(*(branch(*each) for each in enumerate(branches)))

    async def _do(self, context: Context, part: Any, name: str) -> Any:
        if isinstance(part, list):
            return await self._side_by_side(context, part, name.partition(" ")[0] + ".")
        if part == "sleep":
            return await context.sleep(10)
        given = {"name": name, "fails": part.endswith("fails")}
        try:
            if part.startswith("call"):
                return await context.call_node("c", given)
            await asyncio.sleep(len(name) % 4 / 1_000)
            return await context.step("do", self.called, given)
        except StepFailed as failed:
            return failed.error.code


def played_program(seed: int, dies_after: int | None) -> tuple[Played, Counter[str]]:
    program = Program(seed)
    play = Play(CALLING)
    play.node("a", program.run)
    play.node("a/c", program.called)
    if dies_after is not None:
        play.dies("a", after=dies_after)
    return play.run(), program.done


@pytest.mark.parametrize("seed", range(10))
def test_whatever_runs_side_by_side_is_done_once_and_once_more_if_its_worker_dies(
    seed: int,
) -> None:
    whole, done = played_program(seed, None)
    assert whole.status == "succeeded", str(whole)
    assert set(done.values()) == {1}, (done, str(whole))
    for dies_after in range(sum(done.values())):
        run, done = played_program(seed, dies_after)
        assert run.output == whole.output, str(run)
        assert max(done.values()) <= 2, (dies_after, done, str(run))
        assert not any(many > 1 for name, many in done.items() if "call" in name)


def test_a_branch_of_a_suspended_attempt_gets_no_error_in_its_wait() -> None:
    compensated: list[Any] = []

    async def order(context: Context) -> Any:
        with context.branch("order"):
            try:
                return await context.call_node("c", 1)
            except Exception as error:
                compensated.append(error)
                raise

    async def note(context: Context) -> Any:
        with context.branch("note"):
            await asyncio.sleep(0.1)
            return await context.step("note", lambda: "noted")

    async def handler(_given: Any, context: Context) -> Any:
        tasks = [asyncio.create_task(order(context)), asyncio.create_task(note(context))]
        await asyncio.wait(tasks)
        return [task.result() for task in tasks]

    async def called(given: Any) -> Any:
        await asyncio.sleep(1)
        return given

    play = Play(WITH_CALLS)
    play.node("a", handler)
    play.node("a/c", called)
    ended = play.run()
    assert (ended.status, ended.output, compensated) == ("succeeded", [1, "noted"], [])


@pytest.mark.parametrize("levels", [0, 1, 5, 8])
@pytest.mark.parametrize("alert_s", [0.0, 0.02])
def test_a_failure_that_is_raised_after_more_work_is_tried_again(
    alert_s: float, levels: int
) -> None:
    tried: list[int] = []

    async def look() -> str:
        tried.append(1)
        await asyncio.sleep(0.001)  # the other branch waits by then
        if len(tried) == 1:
            raise ConnectionError
        return "found"

    async def branch(context: Context, level: int) -> Any:
        if level:
            return (await asyncio.gather(branch(context, level - 1)))[0]
        with context.branch("look"):
            try:
                return await context.step("look", look)
            except StepFailed:
                await asyncio.sleep(alert_s)
                raise

    async def calls(context: Context) -> int:
        with context.branch("calls"):
            for n in range(3):
                await context.call_node("c", n)
        return 3

    async def handler(_given: Any, context: Context) -> Any:
        return await asyncio.gather(branch(context, levels), calls(context))

    async def called(given: Any) -> Any:
        await asyncio.sleep(0.5)
        return given

    play = Play(WITH_CALLS)
    play.node("a", handler)
    play.node("a/c", called)
    ended = play.run()
    assert (ended.status, ended.output, len(tried)) == ("succeeded", ["found", 3], 2)


def test_a_failed_call_is_made_once_though_its_branch_works_on_when_the_attempt_is_suspended() -> (
    None
):
    asked: list[Any] = []

    async def refused(context: Context) -> str:
        with context.branch("refused"):
            await asyncio.sleep(0.002)  # the other branch waits by then
            try:
                return str(await context.call_node("c", "bad"))
            except StepFailed:
                await asyncio.sleep(0.2)  # nobody knows whether it deals with it or raises it
                return "-"

    async def waits(context: Context) -> Any:
        with context.branch("waits"):
            return [await context.call_node("c", n) for n in range(3)]

    async def handler(_given: Any, context: Context) -> Any:
        return await asyncio.gather(refused(context), waits(context))

    async def called(given: Any) -> Any:
        asked.append(given)
        await asyncio.sleep(0.0 if given == "bad" else 0.5)
        if given == "bad":
            raise ValueError("bad")
        return given

    play = Play(WITH_CALLS)
    play.node("a", handler)
    play.node("a/c", called)
    ended = play.run()
    assert (ended.status, ended.output) == ("succeeded", ["-", [0, 1, 2]]), str(ended)
    assert Counter(asked) == {"bad": 1, 0: 1, 1: 1, 2: 1}
