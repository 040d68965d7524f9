"""Interim answers of a service: signs of life are taken, a flood ends the connection."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import ClientConnectionError

from hocket.workers.http.connections import INTERIM_PER_S, MAX_INTERIM, BoundedHandler


class Connection:
    """A handler of answers whose time the test sets."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.aborted = 0
        self.handler = BoundedHandler(asyncio.get_running_loop(), clock=lambda: self.now_s)
        self.handler.transport = cast(Any, SimpleNamespace(abort=self._abort))
        self.handler.set_response_params()

    def _abort(self) -> None:
        self.aborted += 1

    def receive(self, status: int, times: int = 1) -> None:
        for _ in range(times):
            self.handler.feed_data((SimpleNamespace(code=status), None))


async def test_signs_of_life_are_taken_for_as_long_as_the_request_may_last() -> None:
    one = Connection()
    for _ in range(1_000):
        one.now_s += 10
        one.receive(102)
    assert (one.aborted, one.handler.exception()) == (0, None)


async def test_interim_answers_beyond_the_rate_end_the_connection() -> None:
    one = Connection()
    one.receive(100, MAX_INTERIM)
    one.now_s += 3
    one.receive(100, 3 * INTERIM_PER_S)
    assert (one.aborted, one.handler.exception()) == (0, None)
    one.receive(100)
    assert one.aborted == 1
    with pytest.raises(ClientConnectionError, match="more than 20 interim answers and 2 for each"):
        raise one.handler.exception() or AssertionError


async def test_each_request_of_a_connection_has_an_allowance_of_its_own() -> None:
    one = Connection()
    one.now_s += 1_000
    one.receive(100, MAX_INTERIM)
    one.receive(200)
    one.handler.set_response_params()
    one.receive(100, MAX_INTERIM)
    assert one.aborted == 0
    one.receive(100)
    assert one.aborted == 1
