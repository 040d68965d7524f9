"""Access control: requests from other sites' web pages are refused, and all others need a key, except
for public paths.

The cheapest checks come first, before anything else of a request is examined. Each key has a request
rate, and so has each address that requests public paths.
"""

from collections.abc import Collection, Mapping, Sequence
from urllib.parse import quote, urlencode

from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hocket.admin.console.error_pages import refusal, wants_page
from hocket.admin.console.rendering import ASSETS, SIGN_IN, chosen_tenant, render
from hocket.admin.console.sessions import Sessions
from hocket.admin.requests.identity import BEARER, DEFAULT_TENANT, TENANT, TENANT_HEADER
from hocket.admin.requests.strangers import hurried
from hocket.kit.access.key_book import KeyBook
from hocket.kit.access.rate_limits import RateLimits
from hocket.kit.identity.bearers import TokenBearers
from hocket.kit.identity.tokens import is_token
from hocket.kit.process import clock
from hocket.kit.web_requests import WebRules
from hocket.schemas.access.group_roles import TenantNotNamed
from hocket.schemas.access.keys import PREFIX, KeyMissing, KeyRefused, Principal, sent_key
from hocket.schemas.errors import HocketError

PUBLIC_PER_S = 20.0
"""Requests for public paths that one address may send per second without a key."""
_TENANT = TENANT_HEADER.lower()
_QUERY_CHARS = "!$%&'()*+,/:;=?@[]~"
"""Characters that stay as they are in the query of an address."""
PROBES = frozenset({"/healthz", "/readyz"})
"""Public paths without a rate limit: probes must not be turned away."""


class _Sent(dict[str, str]):
    """The headers that identify the caller, the first of each name, read in one pass: looking each of
    them up separately took longer than checking the key."""

    NAMES = {
        name.encode(): name
        for name in (
            "host", "origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest",
            "authorization", "x-api-key", "cookie", "accept", _TENANT,
        )
    }  # fmt: skip

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._more: list[tuple[str, str]] = []
        names = self.NAMES
        for sent, value in scope["headers"]:
            name = names.get(sent)
            if name is None:
                continue
            if name in self:
                self._more.append((name, value.decode("latin-1")))
            else:
                self[name] = value.decode("latin-1")

    def every(self, name: str) -> Sequence[str]:
        """Return all values sent under a name."""
        first = (self[name],) if name in self else ()
        return (*first, *(value for other, value in self._more if other == name))


class AccessControl:
    """ASGI middleware: passes a request on with its bearer and tenant in its scope, or refuses it.
    `public` are the paths that need no key; `per_s` is the rate of keys without a rate of their own."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        book: KeyBook,
        web: WebRules,
        public: Collection[str],
        per_s: float,
        sessions: Sessions,
        tokens: TokenBearers | None = None,
    ) -> None:
        self._app = app
        self._book = book
        self._web = web
        self._public = frozenset(public)
        self._per_s = per_s
        self._sessions = sessions
        self._tokens = tokens
        self._limits = RateLimits("key")
        self._strangers = RateLimits("address")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _Sent(scope)
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                _keep_from_caches(message)
            await send(message)

        try:
            self._check_page(scope, headers)
            if scope["path"] in self._public or scope["path"].startswith(ASSETS):
                self._limit_stranger(scope)
                await self._app(scope, hurried(receive), send)
                return
            tenant = headers.get(_TENANT) or chosen_tenant(scope)
            bearer = self._known(headers) or await self._bearer(headers, tenant)
            scope[BEARER] = bearer
            scope[TENANT] = bearer.acts_for(tenant, DEFAULT_TENANT)
            with self._book.open(bearer):
                await self._app(scope, receive, noted)
        except HocketError as error:
            if not begun:  # a stream whose key is revoked simply ends
                await _refusal(scope, headers, error)(scope, receive, send)

    def _check_page(self, scope: Scope, headers: "_Sent") -> None:
        self._web.check(
            scope["method"],
            host=headers.every("host"),
            origin=headers.every("origin"),
            fetch_site=headers.get("sec-fetch-site"),
            fetch_mode=headers.get("sec-fetch-mode"),
            fetch_dest=headers.get("sec-fetch-dest"),
        )

    def _limit_stranger(self, scope: Scope) -> None:
        if scope["path"] not in PROBES and not scope["path"].startswith(ASSETS):
            address = (scope.get("client") or ("",))[0]
            self._strangers.take(address, PUBLIC_PER_S, clock.now_ms() / 1000)

    def _known(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the bearer of a cached key, the usual case; None if a slower check is needed."""
        key = sent_key(headers)
        if not key.startswith(PREFIX):
            return None
        try:
            bearer = self._book.known(key)
        except HocketError:
            return None
        return self._limited(bearer)

    async def _bearer(self, headers: Mapping[str, str], tenant: str | None) -> Principal:
        key = sent_key(headers)
        cookies: Mapping[str, str] = {} if key else cookie_parser(headers.get("cookie", ""))
        session = self._sessions.cookie_in(cookies)
        if session:
            bearer = await self._sessions.bearer(session, tenant)
        elif self._tokens is not None and is_token(key):
            bearer = await self._tokens.bearer(key, tenant)
        else:
            bearer = await self._book.bearer(key)
        return self._limited(bearer)

    def _limited(self, bearer: Principal) -> Principal:
        per_s = bearer.requests_per_s or self._per_s
        self._limits.take(bearer.key_id, per_s, clock.now_ms() / 1000)
        return bearer


def _keep_from_caches(message: Message) -> None:
    """Forbid storing an answer, unless it says how: it is for the bearer and the tenant of its request,
    and caches between do not know `X-Api-Key` and `X-Hocket-Tenant`."""
    headers = message.get("headers", ())
    if all(name.lower() != b"cache-control" for name, _ in headers):
        message["headers"] = [*headers, (b"cache-control", b"no-store")]


def _refusal(scope: Scope, headers: Mapping[str, str], error: HocketError) -> Response:
    """Return the answer to a refused request: people at the console are sent to the sign-in page."""
    root = scope.get("root_path", "")
    if not wants_page(scope):
        return refusal(scope, error)
    if isinstance(error, TenantNotNamed):
        parts = scope["query_string"].decode("latin-1").split("&")
        query = "&".join(part for part in parts if part != "tenant=")
        named = urlencode({"tenant": error.fields["tenants"].split(", ")[0]})
        address = f"{root}{quote(scope['path'])}?{query}{'&' if query else ''}{named}"
        return RedirectResponse(address, status_code=303)
    if not isinstance(error, KeyMissing | KeyRefused):
        return refusal(scope, error)
    own = root + _own_address(scope)
    if isinstance(error, KeyMissing) and _follows_link(scope["method"], headers):
        return render(Request(scope), None, "from_elsewhere.html", {"address": own})
    return RedirectResponse(f"{root}{SIGN_IN}?{urlencode({'back': own})}", status_code=303)


def _own_address(scope: Scope) -> str:
    """Return the path and the query of a request."""
    query = quote(scope["query_string"], safe=_QUERY_CHARS)
    return quote(scope["path"]) + (f"?{query}" if query else "")


def _follows_link(method: str, headers: Mapping[str, str]) -> bool:
    """Tell whether a person follows a link on another site. Browsers send no session's cookie with
    such a request, but they do with the next one, which a page of ours makes."""
    site, mode, place = (headers.get(f"sec-fetch-{name}") for name in ("site", "mode", "dest"))
    return (method, site, mode, place) == ("GET", "cross-site", "navigate", "document")
