"""What an ack subject says of a delivery."""

import pytest

from hocket.kit.nats.consumers.delivery import Delivery, parse_ack_subject


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.ACK.STEPS.step-python-normal.3.1201.77.1700000000123456789.42",
        "$JS.ACK.hub.ACCHASH.STEPS.step-python-normal.3.1201.77.1700000000123456789.42.rnd",
    ],
)
def test_the_ack_subject_tells_the_delivery(subject: str) -> None:
    assert parse_ack_subject(subject) == Delivery(3, 1201, 77, 1700000000123456789, 42)
    assert parse_ack_subject(subject).stored_at_ms == 1700000000123.456


@pytest.mark.parametrize(
    "subject",
    ["", "_INBOX.abc", "$JS.ACK.STEPS", "a.b.c.d.3.4.5.6.7", "$JS.ACK.d.h.s.c.3.4.5.6"],
)
def test_another_subject_is_no_ack_subject(subject: str) -> None:
    with pytest.raises(ValueError, match="not an ack subject"):
        parse_ack_subject(subject)
