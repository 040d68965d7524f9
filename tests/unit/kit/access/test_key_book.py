"""What a process knows of keys, by a source that the test writes: pages, changes, silence, cost."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from hocket.kit.access import key_book
from hocket.kit.access.key_book import KeyBook, KeysNotLoaded
from hocket.kit.access.rate_limits import BURST_S, MAX_NAMES, RateLimits, TooManyRequests
from hocket.schemas.access.key_messages import KeyRow, KeysTold
from hocket.schemas.access.keys import KeyRefused, hashed, key_text
from hocket.schemas.access.roles import Permission

BOUND_S = 20.0


@dataclass
class Source:
    """Keys in the order of their changes, told in small pages."""

    rows: dict[str, KeyRow] = field(default_factory=dict)
    page_size: int = 3
    looks: int = 0
    silent: bool = False
    used: dict[str, float] = field(default_factory=dict)

    def put(self, key_id: str, secret: str, **more: Any) -> str:
        row = KeyRow(
            key_id=key_id,
            name="n",
            tenant="t",
            secret_sha256=hashed(secret).hex(),
            change=1 + max((row.change for row in self.rows.values()), default=0),
            **{"role": "viewer", **more},
        )
        self.rows[key_id] = row
        return key_text(key_id, secret)

    async def page(self, after: int, *, whole: bool) -> KeysTold:
        self.looks += 1
        if self.silent:
            raise OSError("nobody answers")
        found = sorted(
            (row for row in self.rows.values() if row.change > after),
            key=lambda row: row.change,
        )
        found = [row for row in found if not (whole and row.revoked)]
        last = max((row.change for row in self.rows.values()), default=0)
        told = tuple(found[: self.page_size])
        return KeysTold(keys=told, last=last, more=len(found) > len(told))

    async def note_used(self, used: Mapping[str, float]) -> None:
        self.used |= used


def made() -> tuple[str, str]:
    return secrets.token_hex(6), secrets.token_hex(32)


async def test_all_pages_are_read_and_a_new_key_counts_at_once() -> None:
    source = Source()
    texts = [source.put(*made()) for _ in range(10)]
    book = KeyBook(source)
    async with book.running():
        for text in texts:
            assert (await book.bearer(text)).tenant == "t"
        assert (await book.bearer(source.put(*made()))).role == "viewer"
    assert len(source.used) == 11


async def test_a_key_is_what_its_role_and_scopes_allow_and_no_more() -> None:
    source = Source()
    text = source.put(*made(), role="operator", scopes=("runs.read", "pipelines.apply"))
    strange = source.put(*made(), role="emperor")
    book = KeyBook(source)
    async with book.running():
        assert (await book.bearer(text)).permissions == {Permission.RUNS_READ}
        assert (await book.bearer(strange)).permissions == frozenset()


async def test_a_source_that_is_silent_leaves_what_is_known_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_book, "EVERY_S", 0.11)
    monkeypatch.setattr(key_book, "BEHIND_S", 0.2)
    source, said = Source(), asyncio.Event()
    text = source.put(*made())

    def report(component: str, ok: bool, detail: str = "", *, degraded: bool = False) -> None:
        assert ok
        if degraded:
            said.set()

    book = KeyBook(source, report)
    async with book.running():
        await book.bearer(text)
        source.silent = True
        await asyncio.wait_for(said.wait(), BOUND_S)
        assert (await book.bearer(text)).role == "viewer"


async def test_before_the_keys_are_known_nobody_is_let_in() -> None:
    source = Source(silent=True)
    text = source.put(*made())
    book = KeyBook(source)
    with pytest.raises(KeysNotLoaded):
        book.known(text)
    async with book.running():
        with pytest.raises(KeysNotLoaded):
            await book.bearer(text)


async def test_a_key_that_is_gone_from_the_source_goes_here_with_the_next_whole_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_book, "WHOLE_S", 0.0)
    source = Source()
    key_id, secret = made()
    text = source.put(key_id, secret)
    book = KeyBook(source)
    async with book.running():
        await book.bearer(text)
        del source.rows[key_id]
        looks = source.looks
        async with asyncio.timeout(BOUND_S):
            while source.looks < looks + 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(KeyRefused):
            book.known(text)


def taken(limits: RateLimits, name: str, per_s: float, now_s: float) -> int:
    """Return how many requests of a name are let through at a moment."""
    for number in range(10_000):
        try:
            limits.take(name, per_s, now_s)
        except TooManyRequests:
            return number
    raise AssertionError("there is no limit")


def test_a_rate_lets_its_burst_through_and_then_its_rate() -> None:
    limits, per_s = RateLimits(), 8.0  # its parts are exact
    assert taken(limits, "key a", per_s, 0.0) == per_s * BURST_S + 1
    assert taken(limits, "key b", per_s, 0.0) == per_s * BURST_S + 1
    assert taken(limits, "key a", per_s, 0.25) == 2


def test_what_an_admitted_request_owes_beside_itself_is_paid_off_at_the_same_rate() -> None:
    limits, per_s = RateLimits(), 8.0
    limits.owe("key a", BURST_S)
    assert taken(limits, "key a", per_s, 0.0) == per_s * BURST_S + 1, "it was not admitted yet"
    limits.owe("key a", 1.0)
    assert taken(limits, "key a", per_s, 1.0) == 0
    assert taken(limits, "key a", per_s, 1.25) == 2


def test_names_are_bounded_and_those_that_owe_most_are_kept() -> None:
    limits = RateLimits()
    for number in range(MAX_NAMES):
        limits.take(f"n{number}", 1.0, 0.0)
    assert taken(limits, "n0", 1.0, 0.0) == BURST_S
    limits.take("one more", 1.0, 0.0)
    assert taken(limits, "n0", 1.0, 0.0) == 0


async def test_a_key_that_was_accepted_before_counts_as_its_row_says_now() -> None:
    source = Source()
    key_id, secret = made()
    text = source.put(key_id, secret)
    book = KeyBook(source)
    async with book.running():
        assert (await book.bearer(text)).role == book.known(text).role == "viewer"
        source.put(key_id, secret, role="operator")
        await book.looked()
        assert book.known(text).role == book.known(text).role == "operator"
        _, later = made()
        rotated = source.put(key_id, later, former_sha256=hashed(secret).hex(), former_until_s=1.0)
        await book.looked()
        for _ in range(2):
            with pytest.raises(KeyRefused, match="rotation"):
                book.known(text)
            assert book.known(rotated).key_id == key_id
        source.put(key_id, later, expires_at_s=1.0)
        await book.looked()
        with pytest.raises(KeyRefused, match="expired"):
            book.known(rotated)
        source.put(key_id, later, revoked=True)
        await book.looked()
        with pytest.raises(KeyRefused, match="revoked"):
            book.known(rotated)
