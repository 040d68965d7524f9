"""Acknowledgements of steps, sent a little later together with something else.

A write to the socket costs more than all the rest of a small step; nobody waits for these. They go
out with the next result, and after ACK_DELAY_S at the latest; a worker killed in between has its
steps delivered again, as it would a moment earlier.
"""

import asyncio

from hocket.kit.bus import Bus

ACK_DELAY_S = 0.005
MAX_WAITING = 256


class Acks:
    """Acknowledgements that wait to be sent over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, ack_subject: str) -> None:
        """Acknowledge a message soon."""
        self._waiting.append(ack_subject)
        if len(self._waiting) >= MAX_WAITING:
            self.send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ACK_DELAY_S, self.send)

    def send(self) -> None:
        """Send what waits, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for ack_subject in waiting:
            self._bus.ack(ack_subject)
