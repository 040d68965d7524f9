"""Requests without a key: how many are answered at once, of each address and of all, and how long their
bodies may take.

They have places of their own: strangers take none from tenants, and tenants none from people who want to
sign in. The fewer places are free, the fewer one address may have, so that a few addresses never keep
all others out for longer than their requests last.
"""

import asyncio
from math import ceil

from starlette.types import Message, Receive, Scope

from hocket.admin.held_places import HeldPlaces
from hocket.kit.web_requests import counted_address
from hocket.schemas.errors import ErrorClass, HocketError

MAX_STRANGERS = 512
"""The maximum number of concurrent requests without a key."""
MAX_OF_ADDRESS = 16
FREE_SHARE = 1 / 8
"""An address may have at most MAX_OF_ADDRESS places, and this share of those that are free."""
BODY_S = 5.0
"""How long the body of a request without a key may take to arrive."""
MAX_BODY_BYTES = 32_768
"""The maximum size of such a body: a key, and the page to return to."""


class StrangersFull(HocketError):
    """The API is already answering {limit} requests without a key at once. Try again after
    `Retry-After`, or send a key."""

    code = "strangers_full"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class AddressApiFull(HocketError):
    """The API is already answering {held} requests without a key of this address at once. Try again
    after `Retry-After`, or send a key."""

    code = "address_api_full"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class BodyTooSlow(HocketError):
    """The body did not arrive within {timeout_s} s. Send it faster."""

    code = "body_too_slow"
    error_class = ErrorClass.INVALID


class StrangersPlaces(HeldPlaces):
    """The places of requests without a key, by the address that they come from."""

    def __init__(self, places: int = MAX_STRANGERS) -> None:
        super().__init__(places)

    def refused(self, address: str) -> HocketError | None:
        """Return why there is no place for another request of an address; None if there is."""
        free, held = self._places - self._taken, self._held[address]
        if free <= 0:
            return StrangersFull(limit=self._places)
        if held >= min(MAX_OF_ADDRESS, ceil(free * FREE_SHARE)):
            return AddressApiFull(held=held)
        return None


def address_of(scope: Scope) -> str:
    """Return the address that a request counts for, which a trusted proxy may tell; of IPv6, the
    network."""
    return counted_address(str((scope.get("client") or ("",))[0]))


def hurried(receive: Receive) -> Receive:
    """Return a `receive` that raises BodyTooSlow if the body has not arrived BODY_S after it was first
    waited for."""
    until_s: float | None = None
    is_whole = False

    async def received() -> Message:
        nonlocal until_s, is_whole
        if is_whole:
            return await receive()
        if until_s is None:
            until_s = asyncio.get_running_loop().time() + BODY_S
        try:
            async with asyncio.timeout_at(until_s):
                message = await receive()
        except TimeoutError:
            raise BodyTooSlow(timeout_s=BODY_S) from None
        is_whole = not message.get("more_body", False)
        return message

    return received
