"""Sessions of the console go on while the platform's key is changed, and end with the old one."""

from dataclasses import dataclass

import pytest

from hocket.admin.console.sessions import Sessions
from hocket.schemas.access.keys import KeyRefused, Principal, hashed
from hocket.schemas.capabilities import Capabilities

OLD, NEW, OTHER = (letter * 32 for letter in (b"o", b"n", b"x"))
BEARER = Principal("0" * 12, "ada", None, "admin", frozenset(), secret_sha256=hashed("secret"))


@dataclass
class Book:
    """The book of one key."""

    def of(self, _key_id: str) -> Principal:
        return BEARER

    def holder(self, _key_id: str) -> Principal:
        return BEARER

    async def present(self, _key_id: str) -> Principal:
        return BEARER


def sessions(*keys: bytes) -> Sessions:
    return Sessions(Book(), Capabilities(keys))  # type: ignore[arg-type]


@pytest.mark.parametrize(("began", "asked"), [((OLD,), (NEW, OLD)), ((NEW, OLD), (OLD, NEW))])
async def test_a_session_goes_on_at_every_process_while_both_keys_are_set(
    began: tuple[bytes, ...], asked: tuple[bytes, ...]
) -> None:
    cookie, ticket = sessions(*began).begin(BEARER), sessions(*began).ticket(BEARER)
    (name,) = sessions(began[0]).cookie_names
    assert sessions(*began).cookie_names[0] == name
    assert sessions(*asked).cookie_in({"other": "x", name: cookie}) == cookie
    found = await sessions(*asked).bearer(cookie)
    assert found.secret_sha256 == BEARER.secret_sha256
    assert f".{found.session_ends_at_s:.0f}." in cookie, "what is open with it ends with it"
    assert sessions(*asked).redeem(ticket) is BEARER
    with pytest.raises(KeyRefused):
        sessions(*asked).redeem(cookie)


@pytest.mark.parametrize(("began", "asked"), [((OLD,), (NEW, OLD)), ((NEW, OLD), (OLD, NEW))])
def test_a_sign_in_goes_on_at_every_process_while_both_keys_are_set(
    began: tuple[bytes, ...], asked: tuple[bytes, ...]
) -> None:
    """The provider compares nonce and verifier with what the process told it that began the sign-in."""
    cookie, flow = sessions(*began).begin_flow("/runs", "https://h/back")
    other, _ = sessions(*began).begin_flow("/", "https://h/back")
    name = sessions(*began).flow_cookie_names[0]
    found = sessions(*asked).flow_cookie_in({"other": "x", name: cookie}, flow.state)
    assert sessions(*asked).flow_of(found, "https://h/back") == (flow, "/runs")
    assert len({flow.state, flow.nonce, flow.verifier[:32], flow.verifier[32:]}) == 4
    assert len(flow.verifier) == 64, "RFC 7636 wants 43 to 128 characters"

    names = sessions(*asked).flow_cookie_names
    both = {names[0]: other, names[1]: cookie}
    assert sessions(*asked).flow_cookie_in(both, flow.state) == cookie
    assert sessions(*asked).flow_cookie_in({name: other}, flow.state) == other
    assert sessions(*asked).flow_cookie_in({"other": "x"}, flow.state) == ""


@pytest.mark.parametrize("asked", [(NEW,), (OTHER,)])
async def test_a_session_ends_with_the_key_that_it_was_begun_with(asked: tuple[bytes, ...]) -> None:
    cookie = sessions(OLD).begin(BEARER)
    with pytest.raises(KeyRefused):
        await sessions(*asked).bearer(cookie)
