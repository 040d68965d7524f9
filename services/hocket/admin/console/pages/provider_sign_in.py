"""Signs in at the identity provider, and signs out of every browser."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from hocket.admin.console.page_route import page_router
from hocket.admin.console.pages.sign_in import (
    SessionsDep,
    begin_session,
    end_session,
    is_secure,
    own_path,
)
from hocket.admin.console.rendering import SIGN_IN, href, render, root_of
from hocket.admin.console.sessions import (
    FLOW_S,
    MAX_BACK_CHARS,
    PERSON_SESSION_S,
    Sessions,
)
from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs, public, takes_any_query
from hocket.kit.access import people_store
from hocket.kit.identity.authorization_code import AuthorizationCode, ProviderAnswer
from hocket.kit.process import clock
from hocket.schemas.access.group_roles import NoRole
from hocket.schemas.access.keys import AccessDenied
from hocket.schemas.access.roles import Permission

CALLBACK = "/sign-in/callback"
MAX_CODE_CHARS = 4_096


class NoProvider(AccessDenied):
    """This platform has no identity provider. {cure}"""

    code = "no_provider"
    cure = "Sign in with a key; an operator configures a provider with HOCKET_OIDC_ISSUER."


router = page_router()


@router.get("/sign-in/provider")
@public
async def console_go_to_provider(
    request: Request,
    sessions: SessionsDep,
    back: Annotated[str, Query(max_length=MAX_BACK_CHARS)] = "",
) -> Response:
    """Send the browser to the identity provider."""
    sign_in = _sign_in(sessions)
    cookie, flow = sessions.begin_flow(own_path(back), _redirect_uri(request, sign_in))
    answer = RedirectResponse(await sign_in.address(flow), status_code=303)
    answer.headers["Cache-Control"] = "no-store"
    answer.set_cookie(
        sessions.flow_cookie_names[0],
        cookie,
        max_age=FLOW_S,
        path=_flow_path(request),
        secure=is_secure(request, sessions),
        httponly=True,
        samesite="lax",  # the cookie is needed when the provider redirects back here
    )
    return answer


@router.get(CALLBACK)
@public
@takes_any_query
async def console_come_from_provider(
    request: Request,
    sessions: SessionsDep,
    context: Ctx,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=MAX_CODE_CHARS)] = "",
    iss: Annotated[str | None, Query(max_length=2_000)] = None,
    error: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """Begin a session for somebody whom the identity provider sent back."""
    sign_in = _sign_in(sessions)
    cookie = sessions.flow_cookie_in(request.cookies, state)
    flow, back = sessions.flow_of(cookie, _redirect_uri(request, sign_in))
    claims = await sign_in.claims(flow, ProviderAnswer(state, code, iss, error))
    person = sign_in.tokens.person_of(claims)
    ends_at_s = clock.now_ms() / 1000 + PERSON_SESSION_S
    client = request.scope.get("client") or ("", 0)
    async with context.pool.acquire() as connection:
        row_id = await people_store.sign_in(
            connection, person.subject_id, person.name, person.groups, ends_at_s, client[0]
        )
    if not person.groups:
        raise NoRole
    await sessions.book.looked()
    tenants = sorted({role.tenant or "" for role in sign_in.tokens.roles_of(person.groups)})
    # After a redirect, browsers would treat the request as coming from the provider and withhold the
    # cookie.
    choices = [tenant for tenant in tenants if tenant] if "" not in tenants else []
    first = choices[0] if len(choices) > 1 else None
    values = {
        "section": "",
        "back": back or href(request, "/runs", tenant=first),
        "choices": [(name, href(request, "/runs", tenant=name)) for name in choices],
    }
    answer = render(request, None, "signed_in.html", values)
    begin_session(request, answer, sessions, sessions.book.holder(row_id))
    for name in sessions.flow_cookie_names:
        if name in request.cookies:
            answer.delete_cookie(name, path=_flow_path(request))
    return answer


@router.post("/sign-out-everywhere")
@needs(Permission.RUNS_READ)
async def console_sign_out_everywhere(
    request: Request, context: Ctx, caller: CallerDep, sessions: SessionsDep
) -> Response:
    """End every session of somebody who signed in at the identity provider."""
    if caller.bearer.subject:
        async with context.pool.acquire() as connection:
            subject = caller.bearer.subject
            await people_store.sign_out_everywhere(connection, subject, caller.actor)
    answer = JSONResponse({"back": ""})
    end_session(request, answer, sessions.cookie_names)
    return answer


def _sign_in(sessions: Sessions) -> AuthorizationCode:
    if sessions.sign_in is None:
        raise NoProvider
    return sessions.sign_in


def _redirect_uri(request: Request, sign_in: AuthorizationCode) -> str:
    origin = sign_in.public_url or f"{request.url.scheme}://{request.url.netloc}"
    return origin.rstrip("/") + root_of(request) + CALLBACK


def _flow_path(request: Request) -> str:
    return str(request.scope.get("root_path", "")) + SIGN_IN
