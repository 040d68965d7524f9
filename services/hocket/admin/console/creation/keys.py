"""The form of a new key, and its text, which is shown once."""

import re
from datetime import datetime

from fastapi import Request
from fastapi.responses import Response

from hocket.admin.console.creation.form import Form, Reading
from hocket.admin.console.creation.posted import TAKES_FORM, Typed, typed_in
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.context import Ctx
from hocket.admin.keys.endpoints import create_key
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.permissions import needs
from hocket.kit.access.key_store import WORKER
from hocket.schemas.access.bodies import KeyBody
from hocket.schemas.access.roles import Permission

LABELS = {
    "name": "Name",
    "role": "Role",
    "all_tenants": "Tenant",
    "expires_at": "Expires (UTC)",
    "scopes": "Scopes",
    "models": "Models",
    "pools": "Pools",
    "requests_per_s": "Requests per second",
}
"""The fields in the order of the form, named as in the REST API, with what people read."""
ROLE_WORDS = {
    "viewer": "viewer: reads, but no inputs and outputs",
    "developer": "developer: reads, with inputs and outputs; applies and runs pipelines",
    "operator": "operator: runs pipelines and controls the platform, but reads no inputs and outputs",
    "auditor": "auditor: reads keys and the audit log, but no inputs and outputs",
    "admin": "admin: may do everything, and creates keys",
    "worker": "worker: takes the steps of its pools",
}
MORE = ("scopes", "models", "pools", "requests_per_s")
"""The fields that are folded up."""
PLACES = {"role_beyond_own": "role"}
"""The fields that errors of the API are about."""
_PICKED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?", re.ASCII)
"""A time as browsers send it."""

router = page_router()


@router.get("/new/key")
@needs(Permission.KEYS_MANAGE)
async def console_new_key(request: Request, caller: CallerDep) -> Response:
    """Show the form of a new key."""
    return _page(request, caller, Form(LABELS, Typed()))


@router.post("/new/key", openapi_extra=TAKES_FORM)
@needs(Permission.KEYS_MANAGE)
async def console_create_key(request: Request, context: Ctx, caller: CallerDep) -> Response:
    """Create a key and show its text, or show the form again with what is wrong."""
    typed = await typed_in(request, frozenset(LABELS))
    form = Form(LABELS, typed)
    with form.refusing(PLACES):
        made = await create_key(_read(typed, context.now()), context, caller)
        values = {"section": "System", "made": made}
        return render(request, caller, "key_made.html", values, status=201)
    return _page(request, caller, form)


def _read(typed: Typed, now: datetime) -> KeyBody:
    """Return the body that a form stands for; raise InvalidInput with all that is wrong."""
    reading = Reading(typed)
    body = {
        "name": typed.text("name"),
        "role": typed.text("role"),
        "all_tenants": typed.text("all_tenants") == "true",
        "expires_at": _moment(typed, reading),
        "scopes": typed.all("scopes") or None,
        "models": _lines(typed, "models"),
        "pools": _lines(typed, "pools"),
        "requests_per_s": reading.number("requests_per_s"),
    }
    made = reading.model(KeyBody, body)
    if made is not None and made.expires_at is not None and made.expires_at <= now:
        reason = "the key would already have expired"
        reading.add("expires_at", reason, "Choose a time in the future, or none.")
    if made is not None and made.role == WORKER and not made.all_tenants:
        reason = "steps of a node type come from all tenants"
        reading.add("all_tenants", reason, "Choose all tenants, or another role.")
    reading.check()
    assert made is not None, "nothing is wrong"
    return made


def _moment(typed: Typed, reading: Reading) -> str | None:
    text = typed.text("expires_at")
    if not text:
        return None
    found = _PICKED.fullmatch(text)
    if found is None:
        reading.add("expires_at", "it is not a time", "Write it as `2026-12-31T23:59`, in UTC.")
        return None
    return f"{text}Z" if found[1] else f"{text}:00Z"


def _lines(typed: Typed, name: str) -> list[str] | None:
    lines = [line.strip() for line in typed.text(name).splitlines()]
    return [line for line in lines if line] or None


def _page(request: Request, caller: Caller, form: Form) -> Response:
    own, wide = caller.bearer.permissions, caller.bearer.tenant is None
    values = {
        "section": "System",
        "form": form,
        "roles": {role: words for role, words in ROLE_WORDS.items() if wide or role != WORKER},
        "permissions": [one.value for one in Permission if one in own],
        "opens_more": form.is_wrong(*MORE) or any(form.typed.text(name) for name in MORE),
    }
    return render(request, caller, "key_form.html", values, status=form.status)
