"""The port of the API, if another process takes it at the same moment."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from hocket.admin.__main__ import ApiPortTaken, begin_to_listen


@pytest.fixture
def bound() -> Iterator[list[socket.socket]]:
    """Two sockets that are bound to one port, as those of processes that start together may be."""
    with ExitStack() as stack:
        port, found = 0, []
        for _ in range(2):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", port))
            port = one.getsockname()[1]
            found.append(one)
        yield found


def test_of_two_processes_that_bound_a_port_the_second_says_that_it_is_taken(
    bound: list[socket.socket],
) -> None:
    first, second = bound
    begin_to_listen(first)
    with pytest.raises(ApiPortTaken, match=f"127.0.0.1:{first.getsockname()[1]}"):
        begin_to_listen(second)
    assert second.fileno() == -1
