"""Finds the key of a request: a platform key (from the key book), a key from the configuration, or
an identity provider's token. If the configuration opens the door, which it may only on a loopback
address, no key is needed."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

from hocket.gateway.api.http.identity import TENANT
from hocket.gateway.core.config.access import Access, Key
from hocket.kit.access.key_book import KeyBook
from hocket.kit.access.key_store import MAX_KEYS
from hocket.kit.access.rate_limits import RateLimits
from hocket.kit.identity.bearers import TokenBearers
from hocket.kit.identity.tokens import is_token
from hocket.kit.process import clock
from hocket.schemas.access.keys import PREFIX, Principal, sent_key
from hocket.schemas.errors import HocketError

STRANGERS_PER_S = 20.0
"""How many requests per second one address may send for resources that need no key."""


class DoorKeys:
    """The keys of one door.

    `per_s` is the rate limit of keys without their own; `may_open` tells whether the configuration
    may open the door.
    """

    def __init__(
        self,
        access: Callable[[], Access],
        book: KeyBook,
        *,
        per_s: float,
        may_open: bool,
        tokens: TokenBearers | None = None,
    ) -> None:
        self._access = access
        self._book = book
        self._per_s = per_s
        self._may_open = may_open
        self._tokens = tokens
        self._limits = RateLimits("key")
        self._strangers = RateLimits("address")
        self._of: dict[str, Key] = {}
        """The recently used platform keys, by id."""

    async def key(self, headers: Mapping[str, str]) -> Key | None:
        """Return the key of a request; None if none is needed.

        Raises KeyMissing, KeyRefused, KeysNotLoaded or TooManyRequests, and for tokens whatever
        TokenBearers raises.
        """
        access = self._access()
        if access.open and self._may_open:
            return None
        sent = sent_key(headers)
        if self._tokens is not None and is_token(sent):
            return self._limited(_key_of(await self._tokens.bearer(sent, headers.get(TENANT))))
        if not sent.startswith(PREFIX):
            return self._limited(access.key(sent))
        try:
            bearer = self._book.known(sent)  # the usual case, without another coroutine
        except HocketError:
            bearer = await self._book.bearer(sent)
        key = self._of.get(bearer.key_id)
        if key is None or key.bearer is not bearer:
            if len(self._of) >= MAX_KEYS:
                self._of.clear()
            key = self._of[bearer.key_id] = _key_of(bearer)
        return self._limited(key)

    def limit_stranger(self, address: str) -> None:
        """Count a request that needs no key, or raise TooManyRequests."""
        if not (self._access().open and self._may_open):
            self._strangers.take(address, STRANGERS_PER_S, clock.now_ms() / 1000)

    def open(self, key: Key | None) -> AbstractContextManager[None]:
        """Cancel the current task if the key is revoked inside the block; KeyRefused is then raised."""
        if key is None or key.bearer is None:
            return nullcontext()
        return self._book.open(key.bearer)

    def _limited(self, key: Key) -> Key:
        self._limits.take(key.name, key.requests_per_s or self._per_s, clock.now_ms() / 1000)
        return key


def _key_of(bearer: Principal) -> Key:
    return Key(
        name=bearer.key_id,
        tenant=bearer.tenant,
        models=bearer.models,
        permissions=bearer.permissions,
        requests_per_s=bearer.requests_per_s,
        bearer=bearer,
    )
