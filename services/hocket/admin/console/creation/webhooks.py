"""The form of a new webhook, and its secret, which is shown once."""

from fastapi import Request
from fastapi.responses import Response

from hocket.admin.console.creation.choices import active_pipelines
from hocket.admin.console.creation.form import Form, Reading
from hocket.admin.console.creation.posted import TAKES_FORM, Typed, typed_in
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.context import Context, Ctx
from hocket.admin.requests.etags import ANY
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.webhooks import changes, store
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.webhooks import RUN_EVENTS, WebhookBody

LABELS = {
    "name": "Name",
    "description": "Description",
    "url": "Address",
    "events": "Events",
    "pipelines": "Pipelines",
    "labels": "Labels",
    "content": "Content",
}
"""The fields in the order of the form, named as in the REST API, with what people read."""
EVENTS = {
    "run.succeeded": "a run has given its result",
    "run.degraded": "a run has given a result with parts missing",
    "run.failed": "a run has failed",
    "run.expired": "a run has missed its deadline without a result",
    "run.cancelled": "a run was cancelled",
    "run.waiting": "a run waits for an approval",
}
TAKEN = ("name", "There is a webhook of this name already. Choose another name.")

router = page_router()


@router.get("/new/webhook")
@needs(Permission.WEBHOOKS_MANAGE)
async def console_new_webhook(request: Request, context: Ctx, caller: CallerDep) -> Response:
    """Show the form of a new webhook."""
    return await _page(request, context, caller, Form(LABELS, Typed({"events": RUN_EVENTS})))


@router.post("/new/webhook", openapi_extra=TAKES_FORM)
@needs(Permission.WEBHOOKS_MANAGE)
async def console_create_webhook(request: Request, context: Ctx, caller: CallerDep) -> Response:
    """Create a webhook, unless there is one of its name, and show its secret; or show the form again,
    with what is wrong."""
    typed = await typed_in(request, frozenset(LABELS))
    form = Form(LABELS, typed)
    with form.refusing({}, TAKEN):
        name, body = _read(typed)
        row, secret = await changes.put(
            context, caller, name, body, if_match=None, if_none_match=ANY
        )
        values = {"section": "Webhooks", "webhook": store.shown(row), "secret": secret}
        return render(request, caller, "webhook_made.html", values, status=201)
    return await _page(request, context, caller, form)


def _read(typed: Typed) -> tuple[str, WebhookBody]:
    """Return the name and the body that a form stands for; raise InvalidInput with all that is wrong."""
    reading = Reading(typed)
    name = reading.name()
    if not typed.all("events"):
        reading.add("events", "none is chosen", "Choose at least one.")
    pipelines = " ".join(typed.all("pipelines")).replace(",", " ").split()
    body = {
        "url": typed.text("url"),
        "description": typed.text("description"),
        "events": typed.all("events"),
        "pipelines": pipelines or None,
        "labels": reading.labels("labels"),
        "content": bool(typed.text("content")),
    }
    made = reading.model(WebhookBody, body)
    reading.check()
    assert made is not None, "nothing is wrong"
    return name, made


async def _page(request: Request, context: Context, caller: Caller, form: Form) -> Response:
    values = {
        "section": "Webhooks",
        "form": form,
        "events": {name: EVENTS[name] for name in RUN_EVENTS},
        "pipelines": await active_pipelines(context, caller),
    }
    return render(request, caller, "webhook_form.html", values, status=form.status)
