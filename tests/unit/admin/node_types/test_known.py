"""What the registry of node types believes, keeps and forgets."""

from typing import Any

import nats
import pytest
from nats.aio.msg import Msg

from hocket.admin.node_types import kept
from hocket.admin.node_types.known import KEPT_FOR_MS, KnownTypes, check
from hocket.admin.node_types.registry import MAX_NEWS, NodeTypes
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import TypeDescribed
from hocket.schemas.subjects import WORKER_DESCRIBED, pool_token
from hocket.schemas.worker_slots import SILENT_MS

NOW = 1_000_000.0


def described(name: str = "crm.lookup", worker: str = "w1", **fields: Any) -> TypeDescribed:
    return TypeDescribed(worker=worker, type=name, **fields)


def test_a_worker_that_went_away_is_seen_within_seven_seconds_and_its_type_stays_known() -> None:
    types = KnownTypes()
    types.announced("w1", {"crm.lookup": 8}, NOW)
    types.described(described(), NOW)
    types.tick(NOW + SILENT_MS)
    assert len(list(types.workers_of("crm.lookup"))) == 1
    types.tick(NOW + SILENT_MS + 1)
    assert list(types.workers_of("crm.lookup")) == []
    assert types.current("crm.lookup") is not None
    assert SILENT_MS <= 7_000


def test_pipelines_are_checked_against_the_newest_version_that_workers_run() -> None:
    types = KnownTypes()
    for at, (worker, version) in enumerate((("w1", "1"), ("w2", "2"), ("w1", "1"))):
        types.announced(worker, {"crm.lookup@gpu": 8}, NOW + at)
        types.described(described(worker=worker, version=version), NOW + at)
    assert [one.described.version for one in types.versions("crm.lookup")] == ["2", "1"]
    types.announced("w2", {}, NOW + 4)
    assert [one.described.version for one in types.versions("crm.lookup")] == ["1", "2"]


def test_what_a_worker_with_a_key_runs_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_TYPES", 1)
    types = KnownTypes()
    types.announced("w1.a-live@gpu", {"a.live@gpu": 1}, NOW, "a-live@gpu")
    assert types.described(described("a.live", version="3"), NOW, has_key=True)
    assert [version for _, version, _, _ in types.workers_of("a.live")] == ["3"]
    assert not types.described(described("a.two", worker="stranger"), NOW + 1, has_key=True)
    assert types.names() == ["a.live"]


def test_what_no_worker_runs_makes_room_and_what_one_runs_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept, "MAX_TYPES", 3)
    types = KnownTypes()
    types.announced("w1", {"a.live": 1}, NOW)
    assert types.described(described("a.live"), NOW)
    for at, name in enumerate(("a.one", "a.two", "a.three", "a.four")):
        assert types.described(described(name, worker="stranger"), NOW + at + 1)
    assert types.names() == ["a.four", "a.live", "a.three"]
    types.announced("w2", {"a.four": 1, "a.three": 1}, NOW)
    for name in ("a.four", "a.three"):
        types.described(described(name, worker="w2"), NOW)
    assert not types.described(described("a.five", worker="stranger"), NOW)
    assert types.names() == ["a.four", "a.live", "a.three"]


def test_all_descriptions_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_BYTES", 10_000)
    types = KnownTypes()
    for number in range(100):
        types.described(described(f"a.b{number}", description="x" * 1_500), NOW + number)
    assert types.names() == [f"a.b{number}" for number in range(95, 100)]
    for number in range(100):
        types.described(described("a.b", version=str(number)), NOW + 200 + number)
    assert len(types.versions("a.b")) == kept.MAX_VERSIONS


def test_a_type_that_nobody_ran_for_long_is_forgotten() -> None:
    types = KnownTypes()
    types.described(described(), NOW)
    types.tick(NOW + KEPT_FOR_MS + 1)
    assert types.names() == []
    assert types.kept.changes.removed == {("crm.lookup", "1")}


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "python"},
        {"name": "Crm.lookup"},
        {"version": "../etc"},
        {"config": {"type": "no such"}},
        {"input": {"$ref": "http://elsewhere/schema"}},
        {"input": {"pattern": "(a+)+\\1"}},
        {"output": {"const": "\0"}},
        {"timeout_ms": 1e12},
    ],
)
def test_what_can_be_no_node_type_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises((ValueError, InvalidInput)):
        check(described(**fields))


async def test_a_type_that_is_described_again_and_again_leaves_others_room() -> None:
    types = NodeTypes()

    async def say(name: str, text: str) -> None:
        body = described(name, description=text).model_dump_json().encode()
        subject = f"{WORKER_DESCRIBED}.{pool_token(name)}"
        await types.heard_description(Msg(nats.NATS(), subject=subject, data=body))

    for number in range(3 * MAX_NEWS):
        await say("crm.lookup", str(number))
    await say("erp.post", "good")
    assert types.types.names() == ["crm.lookup", "erp.post"]
    before = types.types.current("crm.lookup")
    await say("crm.lookup", "new")
    assert types.types.current("crm.lookup") is before
    types.refill()
    await say("crm.lookup", "new")
    assert types.types.current("crm.lookup") is not before
