"""Short steps of one turn go out in one message, and each of them runs, whoever takes it."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.run.state.run import Owner
from hocket.coordinator.dispatch import bundles as module
from hocket.coordinator.dispatch.bundle_sizes import BundleSizes
from hocket.coordinator.dispatch.step_publisher import StepPublisher
from hocket.kit.access.grant_book import GrantBook
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import StepRequested, WorkerAnnounced
from support.run_player import Play, python, request_of

SHORT_MS, HALF_MS = 0.5, 10.0
Post = tuple[str, bytes, str | None, dict[str, str] | None]


class FakeBus:
    """Keeps what is published."""

    def __init__(self) -> None:
        self.losses = 0
        self.posts: list[Post] = []
        self.refuses_bundles = False

    def publish_durable(
        self, subject: str, payload: bytes, *, msg_id: str | None = None, headers: Any = None
    ) -> None:
        if self.refuses_bundles and b'"more":' in payload:
            raise ValueError("no bundles")
        self.posts.append((subject, payload, msg_id, headers))

    def publish_nowait(self, subject: str, payload: bytes) -> None:
        self.posts.append((subject, payload, None, None))


class Rig:
    """A publisher for workers of 128 slots each; `takes`: that announce bundles."""

    def __init__(self, *, slots: int = 128, takes: bool = True) -> None:
        self.bus = FakeBus()
        self.sizes = BundleSizes()
        announce(self.sizes, slots=slots, takes=takes)
        self.publisher = StepPublisher(cast(Bus, self.bus), GrantBook(), self.sizes)
        self.bundles = self.publisher.bundles

    async def publish(self, *commands: Dispatch) -> list[list[str]]:
        """Publish steps in one turn of the loop; return the steps of each message."""
        since = len(self.bus.posts)
        for command in commands:
            self.publisher.publish(command, command.slack_ms, 0.0)
        await asyncio.sleep(0)
        return [steps_in(post) for post in self.bus.posts[since:]]


def announce(
    sizes: BundleSizes,
    worker: str = "w",
    *,
    slots: int = 128,
    takes: bool = True,
    subject: str = subjects.WORKER_ANNOUNCED,
    pool: str = "python",
) -> None:
    told = WorkerAnnounced(worker=worker, slots={pool: slots} if slots else {}, bundles=takes)
    sizes.announced(told, subject, 0.0)


def steps_in(post: Post) -> list[str]:
    body = json.loads(post[1])
    return [one["step"] for one in (body, *body.get("more", ()))]


def steps(count: int, expected_ms: float = SHORT_MS, **fields: Any) -> list[Dispatch]:
    names = [f"s{number}" for number in range(count)]
    dispatched = Play({name: python(**fields) for name in names}).dispatched
    for command in dispatched:
        command.expected_ms = expected_ms
    return dispatched


async def test_each_step_of_a_bundle_is_the_message_that_it_would_be_alone() -> None:
    rig, commands = Rig(), steps(3)
    commands[1].run.traceparent = "00-1-2-01"
    await rig.publish(*commands)
    ((subject, body, msg_id, headers),) = rig.bus.posts
    assert subject == subjects.step("python", "normal")
    assert msg_id == f"{commands[0].msg_id}:3"
    assert headers == {"traceparent": "00-1-2-01"}
    first = StepRequested.model_validate_json(body)
    assert first.model_copy(update={"more": ()}) == request_of(commands[0])
    others = [StepRequested.model_validate(one) for one in first.more]
    traced = {"traceparent": "00-1-2-01"}
    assert others == [request_of(one).model_copy(update=traced) for one in commands[1:]]


async def test_as_many_go_together_as_are_short_and_as_all_workers_take() -> None:
    assert list(map(len, await Rig().publish(*steps(20)))) == [8, 8, 4]
    assert list(map(len, await Rig(slots=32).publish(*steps(9)))) == [4, 4, 1]
    assert list(map(len, await Rig().publish(*steps(5, HALF_MS)))) == [2, 2, 1]
    assert list(map(len, await Rig().publish(*steps(3, HALF_MS + 1)))) == [1, 1, 1]
    assert list(map(len, await Rig(takes=False).publish(*steps(3)))) == [1, 1, 1]


async def test_steps_with_effects_and_repeats_and_those_that_call_models_go_alone() -> None:
    again = steps(2)
    for command in again:
        command.again = True
    models = steps(2)
    for command in models:
        command.type = "llm"
    for commands in (steps(2, effects="external"), again, models):
        assert list(map(len, await Rig().publish(*commands))) == [1, 1]


async def test_large_inputs_do_not_share_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = steps(3)
    size = len(commands[0].body(commands[0].slack_ms, 0.0))
    monkeypatch.setattr(module, "MAX_BYTES", 2 * size)
    assert await Rig().publish(*commands) == [["s0", "s1"], ["s2"]]


async def test_a_bundle_that_cannot_go_out_is_taken_apart() -> None:
    rig = Rig()
    rig.bus.refuses_bundles = True
    assert await rig.publish(*steps(3)) == [["s0"], ["s1"], ["s2"]]


async def test_a_cancellation_comes_behind_the_step_that_it_stops() -> None:
    rig, commands = Rig(), steps(2)
    for command in commands:
        rig.publisher.publish(command, command.slack_ms, 0.0)
    rig.publisher.cancel(
        cast(
            Any,
            SimpleNamespace(run_id="r1", step="s1", attempt=1, reason="", dispatched=None),
        )
    )
    assert [post[0] for post in rig.bus.posts] == ["hocket.step.python.normal", "hocket.cancel"]


async def test_a_worker_that_took_all_of_a_bundle_is_left_alone_with_it() -> None:
    rig, commands = Rig(), steps(3)
    await rig.publish(*commands)
    for command in commands:
        rig.bundles.ended(command.attempt_id, 3)
    assert len(rig.bus.posts) == 1


async def test_what_an_older_worker_did_not_see_of_a_bundle_comes_again_alone() -> None:
    rig, (first, second, third) = Rig(), steps(3)
    await rig.publish(first, second, third)
    rig.bundles.ended(second.attempt_id, 0)
    rig.bundles.ended(first.attempt_id, 0)
    assert list(map(steps_in, rig.bus.posts[1:])) == [["s2"]]
    _, _, msg_id, headers = rig.bus.posts[1]
    assert msg_id == third.msg_id
    assert headers == {subjects.ASKED_AGAIN: "1"}


async def test_a_step_that_ends_in_the_turn_in_which_it_is_handed_out_is_not_sent() -> None:
    """After the log lost its end, its result is read before the step is handed out again."""
    rig, (first, second, third) = Rig(), steps(3)
    for command in (first, second, third):
        rig.publisher.publish(command, command.slack_ms, 0.0)
    rig.bundles.ended(second.attempt_id, 0)
    await asyncio.sleep(0)
    assert list(map(steps_in, rig.bus.posts)) == [["s0", "s2"]]
    rig.bundles.ended(first.attempt_id, 0)
    assert list(map(steps_in, rig.bus.posts[1:])) == [["s2"]]
    assert await rig.publish(second) == [["s1"]], "it is handed out anew"


async def test_what_a_worker_took_and_left_comes_again_when_an_older_one_had_the_message() -> None:
    rig, (first, second, third) = Rig(), steps(3)
    await rig.publish(first, second, third)
    rig.bundles.ended(first.attempt_id, 3)
    rig.bundles.ended(second.attempt_id, 3)
    rig.bundles.ended(first.attempt_id, 0)
    assert list(map(steps_in, rig.bus.posts[1:])) == [["s2"]]
    rig.bundles.ended(first.attempt_id, 0)
    assert len(rig.bus.posts) == 2


async def test_a_step_that_was_given_up_comes_not_again_with_those_that_a_worker_left() -> None:
    rig, (first, second, third) = Rig(), steps(3)
    await rig.publish(first, second, third)
    rig.bundles.ended(first.attempt_id, 3)
    rig.bundles.withdrawn(second.attempt_id)
    rig.bundles.ended(first.attempt_id, 0)
    assert list(map(steps_in, rig.bus.posts[1:])) == [["s2"]]


async def test_what_is_open_is_not_forgotten_with_the_partition_of_a_first_step_that_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ms = 0.0
    monkeypatch.setattr(module, "monotonic_ms", lambda: now_ms)
    rig, (first,), (second,) = Rig(), steps(1), steps(1)
    first.run.owner = Owner(7, 1, None)
    second.attempt_id += "b"
    await rig.publish(first, second)
    rig.bundles.ended(first.attempt_id, 2)
    rig.bundles.lost(7)
    now_ms = module.FORGOTTEN_MS + 1
    rig.bundles.tick()
    assert list(map(steps_in, rig.bus.posts[1:])) == [["s0"]]


async def test_nothing_is_kept_of_a_bundle_that_has_ended() -> None:
    for order in ((0, 1, 2), (2, 1, 0)):
        rig, commands = Rig(), steps(3)
        await rig.publish(*commands)
        for number in order:
            rig.bundles.ended(commands[number].attempt_id, 3)
        assert not rig.bundles._sent


async def test_a_bundle_whose_first_step_nobody_hears_of_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ms = 0.0
    monkeypatch.setattr(module, "monotonic_ms", lambda: now_ms)
    rig, (first, second, third) = Rig(), steps(3)
    await rig.publish(first, second, third)
    rig.bundles.withdrawn(first.attempt_id)
    rig.bundles.ended(second.attempt_id, 3)
    rig.bundles.tick()
    assert len(rig.bus.posts) == 1
    now_ms = module.FORGOTTEN_MS + 1
    rig.bundles.tick()
    assert list(map(steps_in, rig.bus.posts[1:])) == [["s2"]]


async def test_of_a_partition_that_has_another_owner_nothing_is_sent_again() -> None:
    rig, commands = Rig(), steps(3)
    await rig.publish(*commands)
    rig.bundles.lost(commands[0].run.owner.partition)
    rig.bundles.ended(commands[0].attempt_id, 0)
    rig.bundles.tick()
    assert len(rig.bus.posts) == 1


def test_the_least_of_what_the_workers_of_a_pool_take_counts() -> None:
    sizes = BundleSizes()
    assert sizes.of("python") == 1
    announce(sizes, "large", slots=200)
    assert sizes.of("python") == 8
    announce(sizes, "small", slots=40)
    assert sizes.of("python") == 5
    announce(sizes, "older", slots=200, takes=False)
    assert sizes.of("python") == 1
    announce(sizes, "older", slots=0)
    announce(sizes, "small", slots=0)
    assert sizes.of("python") == 8
    assert sizes.of("sql") == 1


def test_a_worker_with_a_key_takes_no_bundles_whatever_it_says() -> None:
    sizes = BundleSizes()
    announce(sizes, subject=f"{subjects.WORKER_ANNOUNCED}.crm-lookup", pool="crm.lookup")
    assert sizes.of("crm.lookup") == 1


def test_a_silent_worker_does_not_count() -> None:
    sizes = BundleSizes()
    announce(sizes, "older", takes=False)
    sizes.tick(6_000.0)
    announced = WorkerAnnounced(worker="new", slots={"python": 128}, bundles=True)
    sizes.announced(announced, subjects.WORKER_ANNOUNCED, 6_000.0)
    assert sizes.of("python") == 1
    sizes.tick(8_000.0)
    assert sizes.of("python") == 8
