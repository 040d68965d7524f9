"""Which lane a step goes to."""

import pytest

from hocket.coordinator.core.scheduling.lanes import URGENT_SLACK_MS, lane_of
from hocket.schemas.messages import Priority


@pytest.mark.parametrize(
    ("priority", "slack_ms", "lane"),
    [
        (Priority.BATCH, -1.0, "batch"),
        (Priority.INTERACTIVE, 1e9, "urgent"),
        (Priority.STANDARD, URGENT_SLACK_MS - 1, "urgent"),
        (Priority.STANDARD, URGENT_SLACK_MS, "normal"),
    ],
)
def test_batch_steps_overtake_nobody_and_those_in_a_hurry_go_first(
    priority: Priority, slack_ms: float, lane: str
) -> None:
    assert lane_of(priority, slack_ms) == lane
