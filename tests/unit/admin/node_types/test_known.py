"""What the registry of node types believes, keeps and forgets."""

from typing import Any

import nats
import pytest
import structlog
from nats.aio.msg import Msg

from hocket.admin.node_types import kept
from hocket.admin.node_types.known import KEPT_FOR_MS, KnownTypes
from hocket.admin.node_types.reads import show_type
from hocket.admin.node_types.registry import MAX_NEWS, NodeTypes
from hocket.schemas.messages import TypeDescribed
from hocket.schemas.pipeline.spec import MAX_TIMEOUT_MS
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


@pytest.mark.parametrize("fields", [{"name": "python"}, {"name": "C.look"}, {"version": "../etc"}])
def test_what_can_be_no_node_type_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="its"):
        KnownTypes().described(described(**fields), NOW)


def nested(levels: int) -> dict[str, Any]:
    return {"items": nested(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    ("name", "schema", "reason"),
    [
        ("config", {"type": "no such"}, "`config.type`"),
        ("input", {"$ref": "http://elsewhere/schema"}, "no other schemas are loaded"),
        ("input", {"pattern": "(a+)+\\1"}, "`input.pattern`"),
        ("input", {"pattern": "^.{1,2000}$"}, "`input.pattern`"),
        ("input", nested(49), "nests deeper than 48 levels"),
        ("output", {"const": "\0"}, "U+0000"),
        ("output", {"minimum": float("-inf")}, "not a finite number"),
    ],
)
def test_a_schema_that_cannot_be_used_costs_a_type_nothing_else(
    name: str, schema: dict[str, Any], reason: str
) -> None:
    types = KnownTypes()
    fields: dict[str, Any] = {name: schema}
    told = described(effects="external", timeout_ms=2_000.0, **fields)
    for _ in range(2):
        assert types.described(told, NOW)
        assert not types.is_news(told)
    known = types.current("crm.lookup")
    assert known is not None
    kept = known.described
    assert (kept.effects, kept.timeout_ms, getattr(kept, name)) == ("external", 2_000.0, None)
    (fault,) = kept.faults
    assert f"`{name}` is not used" in fault
    assert reason in fault


def test_a_timeout_beyond_the_limit_is_the_limit_and_a_text_is_one_that_can_be_stored() -> None:
    types = KnownTypes()
    known = types.described(described(timeout_ms=1e12, description="a\0", effects="external"), NOW)
    assert known is not None
    kept = known.described
    assert (kept.timeout_ms, kept.effects) == (MAX_TIMEOUT_MS, "external")
    assert kept.description == "a\ufffd"
    assert ["timeout_ms" in fault for fault in kept.faults] == [True]


def test_a_corrected_description_has_no_faults() -> None:
    types = KnownTypes()
    types.described(described(input={"pattern": "("}), NOW)
    known = types.described(described(input={"pattern": "a"}), NOW)
    assert known is not None
    assert (known.described.faults, known.described.input) == ((), {"pattern": "a"})


async def test_the_log_and_the_api_tell_what_of_a_description_is_not_used() -> None:
    types = NodeTypes()
    body = described(input={"pattern": "("}, timeout_ms=5.0).model_dump_json().encode()
    with structlog.testing.capture_logs() as lines:
        for _ in range(2):
            await types.heard_description(Msg(nats.NATS(), subject=WORKER_DESCRIBED, data=body))
    (line,) = lines
    assert (line["event"], line["type"]) == ("description_not_used_as_a_whole", "crm.lookup")
    assert "`input.pattern`" in line["reason"]
    (version,) = show_type(types, "crm.lookup").versions
    assert (version.timeout_ms, version.input, version.faults) == (5.0, None, (line["reason"],))


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
