"""Sessions of the console: a cookie stands for a key that was shown once.

A cookie contains the key's id, its expiry, and a keyed hash (MAC) of both and of the stored hash of the
key's secret. No process stores sessions: revoking, expiry or rotation of a key ends its sessions at
every process, and so does withdrawing the platform's own secret. A session that somebody begins with
the secret before the last rotation ends with that secret.

A person who signed in at an identity provider has a row among the keys instead (`people_store`); what
their session may do is derived from their groups at each request.
"""

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b, sha256

from hocket.kit.access.key_book import KeyBook, KeysNotLoaded
from hocket.kit.identity.authorization_code import AuthorizationCode, Flow
from hocket.kit.identity.errors import SignInRefused
from hocket.kit.process import clock
from hocket.schemas.access.group_roles import NoRole, acting
from hocket.schemas.access.keys import KeyRefused, Principal
from hocket.schemas.capabilities import Capabilities

COOKIE = "hocket_session"
"""How the names of session cookies begin. Browsers send cookies to all ports of a host, so those of a
platform have names of their own: signing in to one platform leaves the sessions of others."""
SESSION_S = 12 * 3_600
"""How long a session lasts."""
PERSON_SESSION_S = 3_600
"""How long a session from an identity provider lasts: after it, groups are read again."""
FLOW_COOKIE = "hocket_sign_in"
"""How the names of the cookies of sign-ins at an identity provider begin; the same holds for them."""
FLOW_S = 600
"""How long a sign-in at an identity provider may take."""
MAX_BACK_CHARS = 2_000
TICKET_S = 60
"""How long a ticket of `hocket console` is valid."""
ENDED = "the session has ended; sign in again"


class Sessions:
    """Creates and verifies sessions. Without the platform's secret, they are valid only at this
    process. `public_url` is where browsers reach it, if that is known."""

    def __init__(
        self,
        book: KeyBook,
        capabilities: Capabilities | None,
        sign_in: AuthorizationCode | None = None,
        public_url: str | None = None,
    ) -> None:
        self.book = book
        self.sign_in = sign_in
        self.public_url = public_url or (None if sign_in is None else sign_in.public_url)
        self.cookie_names = _cookie_names(COOKIE, capabilities)
        """A session may be in the cookie of each; the first one is set."""
        self.flow_cookie_names = _cookie_names(FLOW_COOKIE, capabilities)
        self._capabilities = capabilities or Capabilities([secrets.token_bytes(32)])

    def cookie_in(self, cookies: Mapping[str, str]) -> str | None:
        """Return the session cookie among those of a request."""
        return next((cookies[name] for name in self.cookie_names if cookies.get(name)), None)

    def flow_cookie_in(self, cookies: Mapping[str, str], state: str) -> str:
        """Return the cookie of the sign-in with this state among those of a request; without it, that of
        another sign-in, or nothing."""
        sent = [cookies[name] for name in self.flow_cookie_names if cookies.get(name)]
        same = (cookie for cookie in sent if cookie.partition(".")[0] == state)
        return next(same, sent[0] if sent else "")

    def begin(self, bearer: Principal) -> str:
        """Return the cookie of a new session, which lasts no longer than the secret that was shown."""
        ends_s = min(clock.now_ms() / 1000 + lasting_s(bearer), bearer.expires_at_s)
        held = self.book.of(bearer.key_id) or bearer
        is_former = held.secret_sha256 != bearer.secret_sha256
        return self._made("session by former" if is_former else "session", bearer, ends_s)

    def ticket(self, bearer: Principal) -> str:
        """Return a ticket that `redeem` accepts for TICKET_S."""
        return self._made("ticket", bearer, clock.now_ms() / 1000 + TICKET_S)

    async def bearer(self, cookie: str, tenant: str | None = None) -> Principal:
        """Return the bearer of a session cookie in a request, which may name a tenant; raise KeyRefused,
        TenantForbidden or TenantNotNamed."""
        try:
            row, ends = self._known("session", cookie)
        except (KeyRefused, KeysNotLoaded):
            await self.book.present(cookie.partition(".")[0])  # it may have begun elsewhere
            row, ends = self._known("session", cookie)
        if row.subject:
            return self.person(row, tenant, ends)
        return replace(row, session_ends_at_s=ends)

    def person(self, row: Principal, tenant: str | None, ends_at_s: float) -> Principal:
        """Return the principal for a person who has a row among the keys."""
        if self.sign_in is None:
            raise KeyRefused(reason=ENDED)
        try:
            role = acting(self.sign_in.tokens.roles_of(row.groups), tenant)
        except NoRole:
            raise KeyRefused(reason=ENDED) from None
        return replace(
            row,
            key_id=row.subject,
            row_id=row.key_id,
            tenant=role.tenant,
            role=role.role,
            permissions=role.permissions,
            expires_at_s=ends_at_s,
            is_token=True,
        )

    def redeem(self, ticket: str) -> Principal:
        """Return the bearer of a ticket, or raise KeyRefused."""
        return self._known("ticket", ticket)[0]

    def begin_flow(self, back: str, redirect_uri: str) -> tuple[str, Flow]:
        """Return the cookie of a new sign-in at the identity provider, and the sign-in."""
        state, ends = secrets.token_urlsafe(24), int(clock.now_ms() / 1000) + FLOW_S
        told = urlsafe_b64encode(back.encode()).decode()
        tag = self._capabilities.seal("console sign-in", f"{state}.{ends}.{told}".encode())
        return f"{state}.{ends}.{told}.{tag}", _flow(state, tag, redirect_uri)

    def flow_of(self, cookie: str, redirect_uri: str) -> tuple[Flow, str]:
        """Return the sign-in of a cookie, and the path to go back to; raise SignInRefused."""
        text, _, tag = cookie.rpartition(".")
        if not cookie.isascii() or not self._capabilities.is_sealed(
            tag, "console sign-in", text.encode()
        ):
            raise SignInRefused(reason="it was not started in this browser")
        state, ends, told = text.split(".")
        if clock.now_ms() / 1000 >= int(ends):
            raise SignInRefused(reason=f"it took longer than {FLOW_S // 60} minutes")
        return _flow(state, tag, redirect_uri), urlsafe_b64decode(told).decode()

    def _made(self, kind: str, bearer: Principal, ends_s: float) -> str:
        ends = int(ends_s)
        tag = self._capabilities.seal(*_sealed_as(kind, bearer, ends))
        return f"{bearer.key_id}.{ends}.{tag}"

    def _known(self, kind: str, text: str) -> tuple[Principal, float]:
        key_id, _, rest = text.partition(".")
        moment, _, tag = rest.partition(".")
        if not (moment.isascii() and moment.isdigit() and len(moment) < 16 and tag.isascii()):
            raise KeyRefused(reason=ENDED)
        ends, held = int(moment), self.book.holder(key_id)
        by_former = "ticket" if kind == "ticket" else "session by former"
        for how, bearer in ((kind, held), (by_former, held.by_former())):
            named, secret = _sealed_as(how, bearer, ends)
            is_ours = self._capabilities.is_sealed(tag, named, secret)
            if is_ours and clock.now_ms() / 1000 < min(ends, bearer.expires_at_s):
                return bearer, float(ends)
        raise KeyRefused(reason=ENDED)


def _flow(state: str, tag: str, redirect_uri: str) -> Flow:
    """Return a sign-in, whose secrets are derived from the seal of its cookie: any process that accepts
    the cookie finds the same ones, whichever of the platform's secrets is its first."""
    nonce, *verifier = (
        blake2b(f"console {purpose}".encode(), key=tag.encode(), digest_size=16).hexdigest()
        for purpose in ("nonce", "verifier 1", "verifier 2")
    )
    return Flow(state, nonce, "".join(verifier), redirect_uri)


def _cookie_names(prefix: str, capabilities: Capabilities | None) -> tuple[str, ...]:
    """Return the names for each of the platform's secrets, which may be known to a browser."""
    if capabilities is None:
        return (prefix,)
    return tuple(f"{prefix}_{key[:4].hex()}" for key in capabilities.derived("console cookie"))


def _sealed_as(kind: str, bearer: Principal, ends: int) -> tuple[str, bytes]:
    """Return what the tag of a session or ticket is the seal of."""
    return f"console {kind} {bearer.key_id} {ends}", sha256(bearer.secret_sha256).digest()


def lasting_s(bearer: Principal) -> int:
    """Return how long a bearer's session lasts, in seconds."""
    return PERSON_SESSION_S if bearer.subject else SESSION_S
