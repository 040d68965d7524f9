"""Signs people in and out."""

from collections.abc import Iterable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import Field

from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import href, render
from hocket.admin.console.sessions import Sessions, lasting_s
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs, public
from hocket.schemas.access.keys import KeyMissing, Principal, sent_key
from hocket.schemas.access.roles import Permission
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.rest import Request as Body


def _sessions(request: Request) -> Sessions:
    found = request.app.state.sessions
    assert isinstance(found, Sessions)
    return found


SessionsDep = Annotated[Sessions, Depends(_sessions)]


OPENED = "none"
"""The value of `Sec-Fetch-Site` if a person, or `hocket console`, opened a URL directly."""


class TicketOfPage(HocketError):
    """Another page led here with a ticket; it could start a session with its own key and see what you
    enter. Run `hocket console`, or copy the address into the browser yourself."""

    code = "ticket_of_page"
    error_class = ErrorClass.INVALID


class TicketOfToken(HocketError):
    """A ticket stands for a key, but this request came with a token of the identity provider. Open the
    console in a browser, and sign in at the provider there."""

    code = "ticket_of_token"
    error_class = ErrorClass.INVALID


class SignIn(Body):
    """What the page of `sign-in` sends."""

    key: str = Field(max_length=200)
    back: str = Field("", max_length=2_000)


router = page_router()


@router.get("/sign-in")
@public
async def console_sign_in(
    request: Request,
    sessions: SessionsDep,
    ticket: Annotated[str, Query(max_length=200)] = "",
    back: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """Ask for a key; who comes with a ticket from `hocket console` has shown one."""
    values = {"section": "", "back": own_path(back), "provider": _provider(sessions)}
    answer: Response = render(request, None, "sign_in.html", values)
    if ticket:
        if request.headers.get("sec-fetch-site", OPENED) not in (OPENED, "same-origin"):
            raise TicketOfPage
        bearer = sessions.redeem(ticket)
        answer = RedirectResponse(href(request, "/runs"), status_code=303)
        begin_session(request, answer, sessions, bearer)
    return answer


@router.post("/sign-in")
@public
async def console_begin_session(request: Request, body: SignIn, sessions: SessionsDep) -> Response:
    """Begin a session for the bearer of a key."""
    answer = JSONResponse({"back": own_path(body.back)})
    begin_session(request, answer, sessions, await sessions.book.bearer(body.key.strip()))
    return answer


@router.post("/tickets")
@needs(Permission.RUNS_READ)
async def console_ticket(request: Request, sessions: SessionsDep, caller: CallerDep) -> Response:
    """Return a ticket that begins a session for the bearer of this request's key, for a minute. The
    request must send the key: with a ticket for its cookie, a session could go on for ever."""
    if not sent_key(request.headers):
        raise KeyMissing
    if caller.bearer.is_token:
        raise TicketOfToken
    return JSONResponse({"ticket": sessions.ticket(caller.bearer)})


@router.post("/sign-out")
@public
async def console_end_session(request: Request, sessions: SessionsDep) -> Response:
    """End the session of this browser. Rotating or revoking its key ends it everywhere."""
    answer = JSONResponse({"back": ""})
    end_session(request, answer, sessions.cookie_names)
    return answer


def begin_session(
    request: Request, answer: Response, sessions: Sessions, bearer: Principal
) -> None:
    """Set the cookie of a new session."""
    name, *others = sessions.cookie_names
    end_session(request, answer, [other for other in others if other in request.cookies])
    answer.set_cookie(
        name,
        sessions.begin(bearer),
        max_age=lasting_s(bearer),
        path=request.scope.get("root_path", "") or "/",
        secure=is_secure(request, sessions),
        httponly=True,
        samesite="strict",
    )


def end_session(request: Request, answer: Response, names: Iterable[str]) -> None:
    """Delete session cookies."""
    for name in names:
        answer.delete_cookie(name, path=request.scope.get("root_path", "") or "/")


def own_path(path: str) -> str:
    """Return the path to go back to if it is one of the console's own; otherwise the default."""
    plain = path.startswith("/") and not path.startswith("//") and path.isprintable()
    return path if plain and "\\" not in path else ""


def is_secure(request: Request, sessions: Sessions) -> bool:
    """Tell whether browsers connect by https."""
    return (sessions.public_url or str(request.url)).lower().startswith("https:")


def _provider(sessions: Sessions) -> str:
    """Return the name of the identity provider; empty if there is none."""
    if sessions.sign_in is None:
        return ""
    return urlsplit(sessions.sign_in.tokens.provider.issuer).netloc
