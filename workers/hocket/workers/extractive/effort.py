"""How work in a thread is stopped once nobody waits for it. Pure."""

from collections.abc import Callable

Check = Callable[[], None]
"""Called again and again during long work; it raises GivenUp if nobody waits for the result."""


class GivenUp(Exception):
    """Nobody waits for the result any more."""


def unbounded() -> None:
    """Never stop."""
