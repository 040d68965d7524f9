"""Sessions of the console: a cookie stands for a key that was shown once.

A cookie names the key, when it ends, and carries a keyed hash of both and of what is kept of the key's
secret. No process remembers sessions: a key that is revoked, expires or is rotated ends its sessions at
every process, and so does the platform's own secret when it is changed.
"""

import hmac
import secrets
from hashlib import sha256

from hocket.kit.access.key_book import KeyBook
from hocket.kit.process import clock
from hocket.schemas.access.keys import KeyRefused, Principal
from hocket.schemas.capabilities import Capabilities

COOKIE = "hocket_session"
SESSION_S = 12 * 3_600
"""How long one lasts."""
TICKET_S = 60
"""How long a ticket of `hocket console` may be used."""
ENDED = "the session has ended; sign in again"


class Sessions:
    """Makes and knows sessions. Without the platform's secret they are of this process alone."""

    def __init__(self, book: KeyBook, capabilities: Capabilities | None) -> None:
        self.book = book
        self._capabilities = capabilities or Capabilities([secrets.token_bytes(32)])

    def begin(self, bearer: Principal) -> str:
        """Return the cookie of a new session."""
        return self._made("session", bearer, SESSION_S)

    def ticket(self, bearer: Principal) -> str:
        """Return what `redeem` takes for TICKET_S."""
        return self._made("ticket", bearer, TICKET_S)

    def bearer(self, cookie: str) -> Principal:
        """Return whose session a cookie is, or raise KeyRefused."""
        return self._known("session", cookie)

    def redeem(self, ticket: str) -> Principal:
        """Return whose ticket this is, or raise KeyRefused."""
        return self._known("ticket", ticket)

    def _made(self, kind: str, bearer: Principal, seconds: int) -> str:
        ends = int(clock.now_ms() / 1000) + seconds
        return f"{bearer.key_id}.{ends}.{self._tag(kind, bearer, ends)}"

    def _known(self, kind: str, text: str) -> Principal:
        key_id, _, rest = text.partition(".")
        moment, _, tag = rest.partition(".")
        if not (moment.isascii() and moment.isdigit() and len(moment) < 16 and tag.isascii()):
            raise KeyRefused(reason=ENDED)
        ends = int(moment)
        bearer = self.book.holder(key_id)
        is_ours = hmac.compare_digest(tag, self._tag(kind, bearer, ends))
        if not is_ours or clock.now_ms() / 1000 >= min(ends, bearer.expires_at_s):
            raise KeyRefused(reason=ENDED)
        return bearer

    def _tag(self, kind: str, bearer: Principal, ends: int) -> str:
        secret = sha256(bearer.secret_sha256).digest()
        return self._capabilities.seal(f"console {kind} {bearer.key_id} {ends}", secret)
