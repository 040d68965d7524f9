"""To which call of a run an attempt that is booked belongs."""

import pytest

from hocket.cli.remote.recording import _call_of

HASH = "#0123456789abcdef"
CALL, AGENTS = "r1:a:1:1:1", "r1:ask#1:1:1:1"


@pytest.mark.parametrize(
    ("attempt_id", "call_id"),
    [
        (CALL, CALL),
        (f"{CALL}:t1:r2:h", CALL),
        (f"{CALL}{HASH}", CALL),
        (f"{CALL}:t1{HASH}", CALL),
        (f"{AGENTS}:t1", AGENTS),
        (f"r1:other{HASH}:1", f"r1:other{HASH}:1"),
        (f"r1:other{HASH}", f"r1:other{HASH}"),
        ("r1:b:1:1:1", None),
        (f"r1:b:1:1:1{HASH}", None),
    ],
)
def test_an_attempt_is_of_the_call_whose_id_its_own_begins_with(
    attempt_id: str, call_id: str | None
) -> None:
    known = (CALL, AGENTS, f"r1:other{HASH}:1", f"r1:other{HASH}")
    assert _call_of(attempt_id, known) == call_id
