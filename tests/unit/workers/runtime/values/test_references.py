"""Large values that leave for blobs and come back."""

import asyncio
import json
from pathlib import Path as Folder
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.kit.blobs import BlobStore, BlobUnknown, FileBlobs
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas.pipeline.agents.turns import PREVIOUS
from hocket.workers.errors import BlobUnresolved
from hocket.workers.runtime.values.blob_room import MAX_HELD_BYTES, BlobRoom
from hocket.workers.runtime.values.large_values import MAX_UNREAD, SHOWN_APART, LargeValues
from hocket.workers.runtime.values.references import (
    MAX_RESOLVED_BYTES,
    Path,
    Reference,
    check_resolved_size,
    content,
    find_references,
    large_parts,
    reference,
    replace,
)
from hocket.workers.runtime.values.shown_values import shown


def spill(value: Any, excess_bytes: int) -> tuple[Any, dict[str, bytes]]:
    """Take the large parts out as a worker does, into a dict."""
    blobs: dict[str, bytes] = {}
    replacements: dict[Path, Any] = {}
    for number, part in enumerate(large_parts(value, excess_bytes)):
        blobs[f"b{number}"] = part.data
        replacements[part.path] = reference(f"b{number}", len(part.data), part.kind)
    return replace(value, replacements), blobs


def resolve(value: Any, blobs: dict[str, bytes]) -> Any:
    found = list(find_references(value))
    return replace(value, {each.path: content(each, blobs[each.blob]) for each in found})


def test_the_largest_text_leaves_first() -> None:
    value = {"small": "s" * 20_000, "large": "l" * 90_000, "n": 1}
    lighter, blobs = spill(value, 50_000)
    assert lighter == {
        "small": "s" * 20_000,
        "large": {"$blob": "b0", "size": 90_000, "type": "text"},
        "n": 1,
    }
    assert blobs == {"b0": b"l" * 90_000}


def test_a_branch_of_many_small_values_leaves_whole() -> None:
    value = {"rows": [[number, "x"] for number in range(20_000)], "count": 20_000}
    lighter, blobs = spill(value, 100_000)
    assert lighter["count"] == 20_000
    assert lighter["rows"]["type"] == "json"
    assert json.loads(blobs["b0"]) == value["rows"]


def test_a_value_without_large_parts_leaves_itself() -> None:
    value = [{"n": number} for number in range(5_000)]
    lighter, _ = spill(value, 40_000)
    assert set(lighter) == {"$blob", "size", "type"}


def test_the_size_is_counted_in_bytes_not_characters() -> None:
    lighter, _ = spill({"text": "\u20ac" * 20_000}, 30_000)
    assert lighter["text"]["size"] == 60_000


@given(
    st.recursive(
        st.text(max_size=5) | st.integers() | st.just("long" * 6_000),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    ),
    st.integers(1, 80_000),
)
def test_what_leaves_comes_back(value: Any, excess_bytes: int) -> None:
    assert resolve(*spill(value, excess_bytes)) == value


def test_references_are_found_wherever_they_are() -> None:
    value = {"a": [{"$blob": "x", "size": 3, "type": "text"}], "b": {"$blob": "y", "size": 2}}
    assert list(find_references(value)) == [
        Reference(("a", 0), "x", 3, "text"),
        Reference(("b",), "y", 2, None),
    ]


@pytest.mark.parametrize(
    "broken", [{"$blob": "x"}, {"$blob": "x", "size": -1}, {"$blob": "x", "size": 1, "type": "exe"}]
)
def test_a_broken_reference_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(BlobUnresolved, match="needs `size` and `type`"):
        list(find_references(broken))


def test_a_blob_that_is_not_what_its_reference_says_is_refused() -> None:
    with pytest.raises(BlobUnresolved, match="not json"):
        content(Reference((), "x", 3, "json"), b"{]x")


def test_blobs_of_one_input_are_bounded_in_sum() -> None:
    half = MAX_RESOLVED_BYTES // 2 + 1
    with pytest.raises(BlobUnresolved, match="the limit is"):
        check_resolved_size([Reference((), "x", half, "text"), Reference((), "y", half, "text")])


async def test_json_of_blobs_is_bounded_by_its_values() -> None:
    """60 references to one blob of empty lists: 60 MB, and 1.5 GB once they are parsed."""
    data = b"[" + b"[]," * 349_000 + b"[]]"

    class Store:
        async def get(self, tenant: str, blob: str) -> bytes:
            del tenant, blob
            return data

    large_values = LargeValues(cast(BlobStore, Store()))
    one = reference("x", len(data), "json")
    value, held_bytes = await large_values.resolved("acme", [one])
    assert (len(value[0]), held_bytes) == (349_001, 4 * len(data))
    with pytest.raises(BlobUnresolved, match="1000000 lists"):
        await large_values.resolved("acme", [one] * 60)
    assert large_values.room.free_bytes == MAX_HELD_BYTES - held_bytes


NOBODYS = "0" * 64


@pytest.mark.parametrize(
    "data",
    [
        {"$blob": NOBODYS, "size": 10, "type": "text"},
        {"$blob": NOBODYS},
        {"$blob": "../../etc/passwd", "size": 1, "type": "text"},
        {"$blob": "OURS", "size": 1, "type": "text"},
        {"$blob": "OURS", "size": 3, "type": "json"},
        {"$blob": "THEIRS", "size": 6, "type": "text"},
        {"$blob": NOBODYS, "size": 10**15, "type": "json"},
        {"$blob": NOBODYS, "size": MAX_RESOLVED_BYTES, "type": "json"},
        {"$blob": 5},
    ],
)
async def test_what_only_looks_like_a_reference_is_data_where_it_may_be(
    data: dict[str, Any], tmp_path: Folder
) -> None:
    store = FileBlobs(tmp_path)
    ours, theirs = await store.put("acme", b"kep"), await store.put("other", b"theirs")
    data = {
        **data,
        "$blob": {"OURS": ours.hash, "THEIRS": theirs.hash}.get(data["$blob"], data["$blob"]),
    }
    large_values = LargeValues(store)
    whole = reference(ours.hash, ours.size, "text")
    async with shown(large_values, "acme", {"output": [data, whole, 1]}, waits=True) as seen:
        assert seen == {"output": [data, "kep", 1]}
    assert large_values.room.free_bytes == MAX_HELD_BYTES
    async with shown(LargeValues(None), "acme", [data, whole], waits=True) as seen:
        assert seen == [data, whole]


async def test_of_many_that_only_look_like_references_few_are_looked_up() -> None:
    asked: list[str] = []

    class Empty:
        async def get(self, tenant: str, blob: str) -> bytes:
            asked.append(tenant)
            raise BlobUnknown(hash=blob)

    given = [reference(NOBODYS, 1, "text")] * 5_000
    large_values = LargeValues(cast(BlobStore, Empty()))
    async with shown(large_values, "acme", given, waits=True) as seen:
        assert seen == given
    assert len(asked) == MAX_UNREAD


async def test_a_store_that_is_away_leaves_no_value_unread() -> None:
    class Away:
        async def get(self, tenant: str, blob: str) -> bytes:
            raise BusUnavailable(reason="it is away")

    large_values = LargeValues(cast(BlobStore, Away()))
    with pytest.raises(BusUnavailable):
        async with shown(large_values, "acme", reference("x", 3, "text"), waits=True):
            pass
    assert large_values.room.free_bytes == MAX_HELD_BYTES


async def test_an_agent_gets_what_tools_and_models_said_as_it_came(tmp_path: Folder) -> None:
    assert all(path[0] == PREVIOUS for path in SHOWN_APART)
    store = FileBlobs(tmp_path)
    ours = await store.put("acme", b"kept")
    whole, odd = reference(ours.hash, ours.size, "text"), {"$blob": NOBODYS}
    said = {"results": {"r_1": {"output": [whole, odd]}}, "calls": [{"arguments": odd}]}
    given = {"question": whole, PREVIOUS: {"messages": [{"content": whole}], **said}}
    agents = SimpleNamespace(type="agent", tenant="acme", input=given)
    large_values = LargeValues(store)
    value, held_bytes = await large_values.resolved_input(cast(Any, agents))
    assert value == {"question": "kept", PREVIOUS: {"messages": [{"content": "kept"}], **said}}
    assert held_bytes == 2 * ours.size
    others = SimpleNamespace(type="python", tenant="acme", input=given)
    with pytest.raises(BlobUnresolved, match=r"input\.previous\.results\.r_1\.output\.1"):
        await large_values.resolved_input(cast(Any, others))


async def test_inputs_wait_for_room_in_their_order_and_a_cancelled_one_keeps_none() -> None:
    room = BlobRoom(200)
    assert await room.take("t", 1_000) == 100
    waits = [asyncio.create_task(room.take("t", size)) for size in (60, 50, 30)]
    await asyncio.sleep(0)
    room.give_back("t", 100)
    await asyncio.sleep(0)
    assert [wait.done() for wait in waits] == [True, False, True]  # each tenant has half
    waits[1].cancel()
    await asyncio.wait({waits[1]})
    room.give_back("t", 90)
    assert room.free_bytes == 200
    full = await room.take("t", 100)
    waiting = asyncio.create_task(room.take("t", 100))
    await asyncio.sleep(0)
    room.give_back("t", full)
    waiting.cancel()  # in the very turn in which it got its room
    await asyncio.wait({waiting})
    assert room.free_bytes == 200


async def test_a_tenant_that_has_its_share_of_the_room_keeps_no_other_waiting() -> None:
    room = BlobRoom(200)
    hostile = [asyncio.create_task(room.take("hostile", 50)) for _ in range(9)]
    others = [asyncio.create_task(room.take(tenant, 50)) for tenant in ("a", "b", "c")]
    await asyncio.sleep(0)
    assert sum(task.done() for task in hostile) == 2
    assert [task.done() for task in others] == [True, True, False]
    room.give_back("hostile", 50)
    await asyncio.sleep(0)
    assert (sum(task.done() for task in hostile), others[2].done()) == (3, False)  # as they came
    for task in (*hostile, *others):
        task.cancel()
    await asyncio.wait({*hostile, *others})
