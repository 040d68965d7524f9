"""Keys as rows say that they are, and what ends where they go."""

from collections.abc import Collection

import pytest

from hocket.kit.access.held_keys import HeldKeys
from hocket.kit.access.open_requests import OpenRequests
from hocket.kit.process import clock
from hocket.schemas.access.key_messages import KeyRow
from hocket.schemas.access.keys import hashed

ID = "0123456789ab"
OTHER = "ba9876543210"


class Ended(OpenRequests):
    """Requests that are open with the secret `s`, of which it is noted with which keys they end."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []

    def end(self, key_id: str, *, kept: Collection[bytes] = ()) -> None:
        if hashed("s") not in kept:
            self.ended.append(key_id)


def row(secret: str = "s", **fields: object) -> KeyRow:
    given = {"key_id": ID, "name": "n", "tenant": "t", "role": "viewer", "change": 1, **fields}
    return KeyRow.model_validate(given | {"secret_sha256": hashed(secret).hex()})


def held(*rows: KeyRow) -> tuple[HeldKeys, Ended]:
    requests = Ended()
    keys = HeldKeys(requests)
    for one in rows:
        keys.take(one)
    return keys, requests


async def test_a_revoked_key_goes_with_what_is_open_with_it() -> None:
    keys, requests = held(row())
    assert (keys.by_id[ID].tenant, requests.ended, keys.lost.is_set()) == ("t", [], False)
    keys.take(row(revoked=True))
    assert (dict(keys.by_id), requests.ended, keys.lost.is_set()) == ({}, [ID], True)


async def test_a_key_that_was_not_held_is_revoked_without_a_loss() -> None:
    keys, requests = held(row(revoked=True))
    assert (keys.lost.is_set(), requests.ended) == (False, [ID])


@pytest.mark.parametrize(("former", "ends"), [("s", []), ("", [ID])])
async def test_a_secret_that_is_replaced_ends_what_is_open_unless_it_still_counts(
    former: str, ends: list[str]
) -> None:
    fields = {"former_sha256": hashed(former).hex(), "former_until_s": 2e12} if former else {}
    keys, requests = held(row(), row("new", change=2, **fields))
    assert (requests.ended, keys.lost.is_set()) == (ends, True)


async def test_a_person_whose_groups_change_signs_in_again_and_others_stay() -> None:
    keys, requests = held(row(groups=("a",)), row(key_id=OTHER, groups=("a",)))
    keys.take(row(change=2, groups=("a",)))
    assert requests.ended == []
    keys.take(row(change=3, groups=("a", "b")))
    assert (requests.ended, keys.by_id[ID].groups) == ([ID], ("a", "b"))


async def test_what_is_open_with_a_former_secret_ends_when_that_does() -> None:
    former = {"former_sha256": hashed("s").hex(), "former_until_s": clock.now_ms() / 1000 - 1}
    keys, requests = held(row(), row("new", change=2, **former))
    assert requests.ended == []
    keys.end_expired()
    keys.end_expired()
    assert requests.ended == [ID]


async def test_what_is_open_with_a_key_whose_time_is_over_ends_once() -> None:
    now_s = clock.now_ms() / 1000
    keys, requests = held(row(expires_at_s=now_s - 1), row(key_id=OTHER, expires_at_s=now_s + 600))
    keys.end_expired()
    keys.end_expired()
    assert requests.ended == [ID]


async def test_a_key_whose_time_was_made_longer_goes_on() -> None:
    now_s = clock.now_ms() / 1000
    keys, requests = held(row(expires_at_s=now_s - 1), row(change=2, expires_at_s=now_s + 600))
    keys.end_expired()
    assert requests.ended == []
