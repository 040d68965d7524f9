"""The forms of a new schedule, and of one that is changed."""

from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import RedirectResponse, Response

from hocket.admin.console.creation import schedule_fields as fields
from hocket.admin.console.creation.choices import active_pipelines, time_zones
from hocket.admin.console.creation.form import Form
from hocket.admin.console.creation.posted import TAKES_FORM, FormMalformed, Typed, typed_in
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import href, render
from hocket.admin.context import Context, Ctx
from hocket.admin.requests.etags import ANY, etag
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.schedules import changes, store
from hocket.admin.schedules.endpoints import preview_schedule
from hocket.schemas.access.roles import Permission
from hocket.schemas.messages import Priority

COMING = 5
"""Times in a preview."""
PREVIEW = "preview"
"""What the button that only shows the coming times sends as `do`."""
FIELDS = frozenset({*fields.LABELS, "revision", "do"})
PLACES = {
    "pipeline_unknown": "task.pipeline",
    "pipeline_archived": "task.pipeline",
    "payload_too_large": "task.input",
}
"""The fields that errors of the API are about."""
TAKEN = (
    "name",
    "There is a schedule of this name already. Choose another name, or change that one.",
)
CHANGED = (
    "",
    "The schedule was changed in the meantime. Open this page again, and repeat your change.",
)

Name = Annotated[str, Path(max_length=64)]

router = page_router()


@router.get("/new/schedule")
@needs(Permission.SCHEDULES_MANAGE, Permission.RUNS_SUBMIT, Permission.SCHEDULES_READ)
async def console_new_schedule(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    pipeline: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """Show the form of a new schedule."""
    form = Form(fields.LABELS, fields.new_schedule(pipeline))
    return await _page(request, context, caller, form)


@router.post("/new/schedule", openapi_extra=TAKES_FORM)
@needs(Permission.SCHEDULES_MANAGE, Permission.RUNS_SUBMIT, Permission.SCHEDULES_READ)
async def console_create_schedule(request: Request, context: Ctx, caller: CallerDep) -> Response:
    """Create a schedule, unless there is one of its name; or show the form again with what is wrong, or
    with the coming times."""
    typed = await typed_in(request, FIELDS)
    form = Form(fields.LABELS, typed)
    if typed.text("do") == PREVIEW:
        return await _preview(request, context, caller, form)
    with form.refusing(PLACES, TAKEN):
        name, body = fields.read_schedule(typed, is_new=True)
        await changes.put(context, caller, name, body, if_match=None, if_none_match=ANY)
        return RedirectResponse(href(request, f"/schedules/{name}"), status_code=303)
    return await _page(request, context, caller, form)


@router.get("/schedules/{name}/edit")
@needs(
    Permission.SCHEDULES_MANAGE,
    Permission.RUNS_SUBMIT,
    Permission.SCHEDULES_READ,
    Permission.CONTENT_READ,
)
async def console_edit_schedule(
    request: Request, name: Name, context: Ctx, caller: CallerDep
) -> Response:
    """Show the form of a schedule. It contains the input of its task, so the caller must see content."""
    schedule = store.shown(
        await store.find(context.pool, caller.tenant, name), None, with_input=True
    )
    typed = fields.typed_of(schedule)
    if typed is None:
        values = {"section": "Schedules", "name": name}
        return render(request, caller, "schedule_too_long.html", values)
    form = Form(fields.LABELS, typed)
    return await _page(request, context, caller, form, name, schedule.revision)


@router.post("/schedules/{name}/edit", openapi_extra=TAKES_FORM)
@needs(
    Permission.SCHEDULES_MANAGE,
    Permission.RUNS_SUBMIT,
    Permission.SCHEDULES_READ,
    Permission.CONTENT_READ,
)
async def console_change_schedule(
    request: Request, name: Name, context: Ctx, caller: CallerDep
) -> Response:
    """Change a schedule, unless somebody else has changed it since its form was opened."""
    await store.find(context.pool, caller.tenant, name)
    typed = await typed_in(request, FIELDS)
    form, revision = Form(fields.LABELS, typed), _revision(typed)
    if typed.text("do") == PREVIEW:
        return await _preview(request, context, caller, form, name, revision)
    with form.refusing(PLACES, CHANGED):
        _, body = fields.read_schedule(typed, is_new=False)
        seen = etag(revision)
        await changes.put(context, caller, name, body, if_match=seen, if_none_match=None)
        return RedirectResponse(href(request, f"/schedules/{name}"), status_code=303)
    return await _page(request, context, caller, form, name, revision)


def _revision(typed: Typed) -> int:
    text = typed.text("revision")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise FormMalformed(reason="it does not say which revision it changes")
    return int(text)


async def _preview(
    request: Request,
    context: Context,
    caller: Caller,
    form: Form,
    name: str = "",
    revision: int = 0,
) -> Response:
    """Show the form with the coming times, or with what is wrong with them."""
    with form.refusing(PLACES):
        found = await preview_schedule(fields.read_timing(form.typed), context, caller, COMING)
        return await _page(request, context, caller, form, name, revision, coming=found.times)
    return await _page(request, context, caller, form, name, revision)


async def _page(
    request: Request,
    context: Context,
    caller: Caller,
    form: Form,
    name: str = "",
    revision: int = 0,
    coming: Any = None,
) -> Response:
    """Return the page of the form: of a new schedule, or of the one of this name."""
    values = {
        "section": "Schedules",
        "form": form,
        "name": name,
        "revision": revision,
        "coming": coming,
        "pipelines": await active_pipelines(context, caller),
        "zones": await time_zones(),
        "overlaps": fields.OVERLAPS,
        "catch_ups": fields.CATCH_UPS,
        "classes": [one.value for one in Priority],
        "opens_more": form.is_wrong(*fields.MORE) or fields.has_more(form.typed),
    }
    return render(request, caller, "schedule_form.html", values, status=form.status)
