"""The status messages of a pull request. Pure.

Source: NATS ADR-13.
"""

from collections.abc import Mapping

HEARTBEAT = "100"
EXPIRED = frozenset({"404", "408"})
PENDING_MESSAGES = "Nats-Pending-Messages"


def status_of(headers: Mapping[str, str] | None) -> str | None:
    """Return the code of a status message, None for a step."""
    return headers.get("Status") if headers else None


def unfilled(headers: Mapping[str, str]) -> int | None:
    """Return how many steps of an ended pull request did not come; None where it is not said."""
    count = headers.get(PENDING_MESSAGES)
    return int(count) if count is not None and count.isdigit() else None
