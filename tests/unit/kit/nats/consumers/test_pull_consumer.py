"""What the server says about a pull request."""

from hocket.kit.nats.consumers.pull_consumer import unfilled


def test_the_end_of_a_request_tells_what_did_not_come() -> None:
    assert unfilled({"Status": "408", "Nats-Pending-Messages": "7"}) == 7
    assert unfilled({"Status": "409"}) is None
    assert unfilled({"Status": "409", "Nats-Pending-Messages": "\u00b2"}) is None
