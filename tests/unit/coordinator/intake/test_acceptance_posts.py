"""Tasks that are admitted at the same moment share a message of their partition's log."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.coordinator.intake import acceptance_posts as module
from hocket.coordinator.intake.acceptance_posts import AcceptancePosts, AcceptanceTooLarge
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import Priority, RunAccepted, read_log
from hocket.schemas.structs.fields import MAX_BRACKETS

Post = tuple[int, str, bytes, str | None]


class Posts:
    """Keeps what is posted to logs."""

    max_bytes = 1_000_000

    def __init__(self) -> None:
        self.made: list[Post] = []

    def post(self, partition: int, kind: str, body: bytes, *, msg_id: str | None = None) -> None:
        self.made.append((partition, kind, body, msg_id))


class Rig:
    def __init__(self) -> None:
        self.posts = Posts()
        self._to = AcceptancePosts(cast(Any, self.posts))
        self.check = self._to.check

    async def accept(
        self,
        *names: str,
        given: Any = None,
        partition: int = 0,
        refused: ErrorInfo | None = None,
        flow: tuple[Any, ...] = (),
    ) -> list[tuple[int, list[str], str | None]]:
        """Accept runs in one turn of the loop; return the messages: partition, runs and id."""
        for name in names:
            accepted = acceptance(name, given)
            candidate: Any = SimpleNamespace(
                accepted=accepted,
                partition=partition,
                msg_id=f"{name}:accepted",
                plan=SimpleNamespace(flow=flow),
            )
            self._to.post(candidate, refused)
        await asyncio.sleep(0)
        made, self.posts.made = self.posts.made, []
        return [(number, runs_in(kind, body), msg_id) for number, kind, body, msg_id in made]


def acceptance(name: str, given: Any) -> RunAccepted:
    return RunAccepted(
        run_id=name,
        tenant="t",
        pipeline="p",
        version=1,
        input={"x": given},
        priority=Priority.STANDARD,
        deadline_at_ms=1_000.0,
    )


def runs_in(kind: str, body: bytes) -> list[str]:
    events = read_log(kind, body)
    assert all(isinstance(event, RunAccepted) for event in events)
    return [cast(RunAccepted, event).run_id for event in events]


async def test_those_of_one_turn_share_a_message_and_one_alone_has_its_own_id() -> None:
    rig = Rig()
    assert await rig.accept("a", "b", "c") == [(0, ["a", "b", "c"], None)]
    assert await rig.accept("d") == [(0, ["d"], "d:accepted")]


async def test_each_partition_has_a_message_of_its_own() -> None:
    rig = Rig()
    both = await asyncio.gather(rig.accept("a", "b"), rig.accept("c", "d", partition=1))
    assert [*both[0], *both[1]] == [(0, ["a", "b"], None), (1, ["c", "d"], None)]


async def test_a_message_has_so_many_at_most() -> None:
    names = [f"r{number}" for number in range(module.MAX_ACCEPTANCES + 2)]
    made = await Rig().accept(*names)
    assert [len(runs) for _, runs, _ in made] == [module.MAX_ACCEPTANCES, 2]


async def test_what_is_large_or_may_be_nested_deeply_goes_alone() -> None:
    many: list[Any] = [[] for _ in range(MAX_BRACKETS)]
    large = "x" * (module.MAX_BYTES // module.MAX_ACCEPTANCES)
    for given in (large, many):
        made = await Rig().accept("a", "b", given=given)
        assert [msg_id for _, _, msg_id in made] == ["a:accepted", "b:accepted"]


async def test_a_refusal_shares_a_message_too() -> None:
    error = ErrorInfo(code="full", message="m", error_class=ErrorClass.BUDGET)
    rig = Rig()
    assert await rig.accept("a", "b", refused=error) == [(0, ["a", "b"], None)]


async def test_runs_with_flow_control_go_alone_because_their_order_counts() -> None:
    made = await Rig().accept("a", "b", flow=("singleton",))
    assert made == [(0, ["a"], "a:accepted"), (0, ["b"], "b:accepted")]


async def test_a_task_that_grows_beyond_a_message_is_found_before_it_is_posted() -> None:
    rig = Rig()
    rig.check(acceptance("a", [1] * 400_000))
    with pytest.raises(AcceptanceTooLarge) as caught:
        rig.check(acceptance("a", [1e15] * 60_000))
    error = caught.value.info()
    assert (error.code, error.field) == ("payload_too_large", "input")
    assert error.details["size_bytes"] > 60_000 * len("1000000000000000.0,")
    assert "Keep large values" in error.message


async def test_one_that_just_fits_has_room_for_the_error_of_its_refusal() -> None:
    rig = Rig()
    text = "x" * (Posts.max_bytes - module.ADDED_BYTES - 1_000)
    rig.check(acceptance("a", text))
    error = ErrorInfo(code="full", message="m" * 1_000, error_class=ErrorClass.BUDGET)
    await rig.accept("a", given=text, refused=error)
    with pytest.raises(AcceptanceTooLarge):
        rig.check(acceptance("a", text + "x" * 1_000))
