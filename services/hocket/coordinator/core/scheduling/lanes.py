"""Which lane of the stream STEPS a step goes to, by its run's priority and its slack."""

from hocket.schemas.messages import Priority

URGENT_SLACK_MS = 1_000.0
"""With less slack than this, a step of any run but a batch run goes into the urgent lane."""


def lane_of(priority: Priority, slack_ms: float) -> str:
    """Return the lane on STEPS: batch work never overtakes, short slack goes first."""
    if priority is Priority.BATCH:
        return "batch"
    if priority is Priority.INTERACTIVE or slack_ms < URGENT_SLACK_MS:
        return "urgent"
    return "normal"
