"""What a coordinator does not believe, and what it says of it."""

from decimal import Decimal
from typing import Any, cast

import pytest
import structlog

from hocket.coordinator.partition.events.event_reader import EventReader
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.coordinator.partition.events.log_reader import LogMessage
from hocket.schemas import ids
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import RunCharged

NOBODY: Any = None
OURS = Capabilities([b"o" * 32])
USAGE = Capabilities([b"u" * 32])
GATEWAYS = Capabilities([b"g" * 32])
PARTITIONS = 1
CHARGE = RunCharged(
    run_id=ids.run_id("acme", "k"), tenant="acme", source="gateway-1", total_usd=Decimal("0.5")
)


@pytest.mark.parametrize(("key", "is_believed"), [(USAGE, True), (GATEWAYS, False)])
def test_a_charge_that_is_sealed_by_another_usage_key_is_left_out_and_the_log_says_which_key_to_set(
    key: Capabilities, is_believed: bool
) -> None:
    posts = LogPosts(NOBODY, OURS, partitions=PARTITIONS, usage_seals=USAGE)
    reader = EventReader(0, partitions=PARTITIONS, bus=NOBODY, posts=posts)
    body = CHARGE.model_dump_json().encode()
    message = LogMessage(1, "m", 1.0, "charged", body, key.seal("charged", body))

    with structlog.testing.capture_logs() as lines:
        believed = list(reader.believed((cast(Any, CHARGE),), message))

    assert believed == ([CHARGE] if is_believed else [])
    reasons = [line["reason"] for line in lines]
    assert [("HOCKET_USAGE_KEY" in reason) for reason in reasons] == [True] * (not is_believed)
