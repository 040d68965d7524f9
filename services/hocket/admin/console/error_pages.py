"""Shows people at the console what went wrong, and what to do."""

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from hocket.admin.console.rendering import BASE, chosen_tenant, render
from hocket.admin.requests.errors import error_response
from hocket.admin.requests.identity import BEARER, DEFAULT_TENANT, TENANT, Caller, caller_of
from hocket.schemas.access.keys import TenantForbidden
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import HocketError

HTML = "text/html"
MAX_SHOWN_CHARS = 100


def wants_page(scope: Scope) -> bool:
    """Tell from its path and its `Accept` whether a request is for a page of the console."""
    path = scope["path"]
    if path != BASE and not path.startswith(f"{BASE}/"):
        return False
    return HTML in Headers(scope=scope).get("accept", "")


def refusal(scope: Scope, error: HocketError) -> Response:
    """Return the answer to a refused request: a page of the console, otherwise a problem."""
    problem = error_response(error.info())
    if not wants_page(scope):
        return problem
    page = error_page(scope, problem.status_code, error)
    for name, value in problem.headers.items():
        if not name.startswith("content-"):
            page.headers[name] = value
    return page


def error_page(scope: Scope, status: int, error: HocketError | str) -> Response:
    """Return an error's page with this status. Callers who are known are offered to sign out."""
    text = error if isinstance(error, str) else error.info().message
    if isinstance(error, TenantForbidden):
        named = chosen_tenant(scope)
        if named:
            text = f"Your key does not cover the tenant `{shown_text(named, MAX_SHOWN_CHARS)}`."
        scope = {**scope, "query_string": b""}  # links that keep the tenant would lead here again
    title = "Not found" if status == 404 else "That did not work"
    values = {"section": "", "title": title, "text": text}
    return render(Request(scope), _caller(scope), "error.html", values, status=status)


def _caller(scope: Scope) -> Caller | None:
    """Return the caller as far as it is known: its tenant may have been refused."""
    bearer = scope.get(BEARER)
    if bearer is None:
        return None
    return caller_of({TENANT: bearer.tenant or DEFAULT_TENANT, **scope})
