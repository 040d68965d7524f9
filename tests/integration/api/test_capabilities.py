"""Who may say what, over real servers: calls at the gateway, entries of a bucket, the platform's key."""

import asyncio
import stat
from decimal import Decimal
from pathlib import Path

import asyncpg
import pytest

from hocket.cli.local.capability_key import kept_key
from hocket.gateway.api.attribution import check_attribution
from hocket.gateway.core.errors import CallNotAttributable
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.kv.bucket import Bucket
from hocket.kit.process.capability_key import (
    platform_capabilities,
)
from hocket.kit.process.settings import Settings, read
from hocket.schemas.capabilities import SEAL, Capabilities
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import Attribution, CallRequest

BOUND_S = 20
KEY = Capabilities([b"k" * 32])
OTHER = Capabilities([b"o" * 32])


def call(**fields: object) -> CallRequest:
    who = Attribution(tenant="t", run_id="r1", step="a", attempt=1)
    given = {"call_id": "c", "model": "m", "deadline_at_ms": 1.0, "attribution": who} | fields
    return CallRequest.model_validate(given)


def test_a_call_names_a_run_only_with_the_capability_of_its_step() -> None:
    right = KEY.of_attempt("t", "r1", "a", 1, 5.0)
    check_attribution(KEY, call(capability=right, dispatched_at_ms=5.0))
    check_attribution(KEY, call(attribution=Attribution(tenant="t")))
    for forged in ({}, {"capability": right}, {"capability": "x", "dispatched_at_ms": 5.0}):
        with pytest.raises(CallNotAttributable, match="`capability`"):
            check_attribution(KEY, call(**forged))
    check_attribution(None, call())


def test_a_call_names_the_budget_at_the_top_only_of_the_tree_that_its_run_stands_in() -> None:
    step = {"capability": KEY.of_attempt("t", "r1", "a", 1, 5.0), "dispatched_at_ms": 5.0}
    seal = KEY.of_root_budget("t", "r1", "top", Decimal("0.90"))
    mine = {"run_id": "top", "budget_usd": "0.90", "seal": seal}
    check_attribution(KEY, call(**step, root_budget=mine))
    for forged in (
        {"seal": None},
        {"seal": "x"},
        {"run_id": "another"},
        {"budget_usd": "9"},
        {"seal": KEY.of_root_budget("t", "r2", "top", Decimal("0.90"))},
        {"seal": KEY.of_root_budget("other", "r1", "top", Decimal("0.90"))},
        {"seal": OTHER.of_root_budget("t", "r1", "top", Decimal("0.90"))},
    ):
        with pytest.raises(CallNotAttributable, match="`root_budget`"):
            check_attribution(KEY, call(**step, root_budget=mine | forged))
    with pytest.raises(CallNotAttributable, match="`root_budget`"):
        check_attribution(KEY, call(attribution=Attribution(tenant="t"), root_budget=mine))
    check_attribution(None, call(root_budget=mine | {"seal": None}))


async def test_an_entry_that_is_not_sealed_or_sealed_for_before_leaves_the_one_in_force(
    bus: Bus,
) -> None:
    bucket = Bucket(bus, "sealed", capabilities=KEY)
    foreign = Bucket(bus, "sealed", capabilities=OTHER)
    plain = Bucket(bus, "sealed")
    heard: list[tuple[bytes, bytes]] = []
    await bus.subscribe_raw("$KV.sealed.>", lambda frame: heard.append((frame.head, frame.data)))
    async with bucket.watching(), asyncio.timeout(BOUND_S):
        while bucket.current_since_s < 0:  # noqa: ASYNC110 - tells by `changed` only later
            await asyncio.sleep(0.01)
        first = await bucket.put("a", b"1", revision=0)
        await bucket.put("a", b"2", revision=first)
        sealed = next(head for head, data in heard if data == b"1")
        replayed = sealed.decode().split(f"{SEAL}: ")[1].split("\r\n")[0]
        await foreign.put("a", b"3")
        await plain.put("a", b"4")
        await bus.publish("$KV.sealed.a", b"1", headers={SEAL: replayed})
        last = await bus.publish("$KV.sealed.a", b"5", headers={SEAL: "99999999999999999999.x"})
        while bucket.entries["a"].revision < last.seq:
            bucket.changed.clear()
            await bucket.changed.wait()
        assert bucket.entries["a"].value == b"2"
        assert bucket.entries["a"].overwritten
        await bucket.put("a", b"6", revision=last.seq)
        while bucket.entries["a"].value != b"6":
            bucket.changed.clear()
            await bucket.changed.wait()
        assert not bucket.entries["a"].overwritten


async def test_coordinators_without_a_setting_agree_on_one_key(database_url: str) -> None:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        made = await asyncio.gather(*(platform_capabilities(Settings(), pool) for _ in range(8)))
        ids = {one.id_of("x") for one in made}
        assert len(ids) == 1
        given = Settings(capability_key="s" * 40)  # type: ignore[arg-type]
        assert (await platform_capabilities(given, pool)).id_of("x") not in ids


def test_a_short_key_is_refused_and_never_shown() -> None:
    assert "k" * 40 not in repr(read(capability_key="k" * 40))
    with pytest.raises(InvalidInput, match="32 characters") as raised:
        read(capability_key="hush")
    assert raised.value.fields["field"] == "HOCKET_CAPABILITY_KEY"
    assert "hush" not in str(raised.value)


def test_a_data_folder_has_one_key_that_nobody_else_reads(tmp_path: Path) -> None:
    key = kept_key(tmp_path)
    assert kept_key(tmp_path) == key
    assert len(bytes.fromhex(key)) == 32
    assert stat.S_IMODE((tmp_path / "capability.key").stat().st_mode) == 0o600
