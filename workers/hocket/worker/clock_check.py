"""Compares this machine's clock with the one of NATS: deadlines and waits are moments, which a worker
whose clock is wrong takes to be later or earlier than they are."""

from datetime import datetime

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.clock import now_ms

MAX_DIFFERENCE_MS = 1_000.0
TIMEOUT_MS = 5_000.0
log = structlog.get_logger(__name__)


async def compare_clocks(bus: Bus) -> None:
    """Log a warning if the clocks differ by more than MAX_DIFFERENCE_MS; do nothing if NATS does not
    tell its time."""
    asked_at_ms = now_ms()
    try:
        answer = await bus.api("STREAM.INFO.STEPS", {}, timeout_ms=TIMEOUT_MS)
        server_ms = datetime.fromisoformat(answer["ts"]).timestamp() * 1000
    except (BusUnavailable, KeyError, TypeError, ValueError):
        return
    ahead_ms = surely_ahead_ms(server_ms, asked_at_ms, now_ms())
    if abs(ahead_ms) > MAX_DIFFERENCE_MS:
        log.warning(
            "clock_differs",
            ahead_ms=round(ahead_ms),
            reason="This machine's clock is not that of the platform: deadlines and waits of its steps"
            " are off by as much. Let NTP set it.",
        )


def surely_ahead_ms(server_ms: float, asked_at_ms: float, answered_at_ms: float) -> float:
    """Return how far this clock is ahead of the server's (behind it if negative) at least, because the
    server read its clock at some moment between the request and the answer."""
    if asked_at_ms > server_ms:
        return asked_at_ms - server_ms
    return min(0.0, answered_at_ms - server_ms)
