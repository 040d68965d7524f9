"""The start of a gateway."""

import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.service import serve


class Away(Exception):
    """There is no NATS to connect to."""


async def test_a_hangup_does_not_end_a_gateway_that_still_waits_for_nats() -> None:
    taken: list[Any] = []

    async def bus(**_: Any) -> None:
        taken.append(signal.getsignal(signal.SIGHUP))
        raise Away

    telemetry = SimpleNamespace(registry=CollectorRegistry())
    service = cast(Any, SimpleNamespace(settings=None, telemetry=telemetry, bus=bus))
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
    try:
        with pytest.raises(Away):
            await serve(service)
        assert taken[0] not in (before, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
