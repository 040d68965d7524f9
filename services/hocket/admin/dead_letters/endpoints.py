"""`/v1/dead-letters`: list, redrive and drop messages that could not be handled: those of the caller's
tenant, or those that belong to no known tenant (`unattributed`)."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import Field

from hocket.admin.audit.recording import record
from hocket.admin.context import Ctx
from hocket.admin.dead_letters import reads
from hocket.admin.pages import DEFAULT_PAGE, Limit
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.parameters import WHOLE, Switch
from hocket.admin.requests.permissions import needs
from hocket.kit.nats import dead_letters
from hocket.schemas import subjects
from hocket.schemas.access.roles import Permission
from hocket.schemas.rest import DeadLetter, DeadLetterList, Redriven

MAX_SEQ = 2**63 - 1

Source = Annotated[
    Literal["task", "step", "log", "run", "usage"] | None,
    Query(description="Only dead letters from this source."),
]
After = Annotated[
    str | None,
    Query(
        max_length=19,
        pattern="^[1-9][0-9]*$",
        description="Cursor: `next` of the previous page.",
    ),
]
Seq = Annotated[
    Annotated[int, Field(ge=1, le=MAX_SEQ), WHOLE],
    Path(description="Number of the dead letter."),
]


def _owner(
    caller: CallerDep,
    unattributed: Annotated[
        Switch,
        Query(description="List dead letters that name no tenant, instead of the tenant's own."),
    ] = False,
) -> str:
    if not unattributed:
        return caller.tenant
    caller.check_all_tenants()
    return subjects.UNATTRIBUTED


Owner = Annotated[str, Depends(_owner)]

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])


@router.get("")
@needs(Permission.DEAD_LETTERS_READ)
async def list_dead_letters(
    context: Ctx,
    caller: CallerDep,
    owner: Owner,
    limit: Limit = DEFAULT_PAGE,
    source: Source = None,
    after: After = None,
) -> DeadLetterList:
    """List the tenant's dead letters, newest first, with the beginning of each payload. A page with
    large payloads has fewer letters than `limit`; `next` continues."""
    before = None if after is None else int(after)
    async with context.long_reads.place(caller.tenant):
        found = await reads.list_latest(context.bus, owner, limit, source, before)
    letters = tuple(visible(letter, caller) for letter in found.dead_letters)
    return DeadLetterList(dead_letters=letters, next=found.next)


@router.get("/{seq}")
@needs(Permission.DEAD_LETTERS_READ)
async def show_dead_letter(seq: Seq, context: Ctx, caller: CallerDep, owner: Owner) -> DeadLetter:
    """Show a dead letter with its full payload and headers."""
    return visible(await reads.show(context.bus, owner, seq), caller)


@router.post("/{seq}/redrive")
@needs(Permission.DEAD_LETTERS_MANAGE)
async def redrive_dead_letter(seq: Seq, context: Ctx, caller: CallerDep, owner: Owner) -> Redriven:
    """Publish a dead letter again on its original subject, then remove it here. Fails with 409 for a
    step whose run has continued without it: retry the run instead. A usage record is booked
    regardless of who wrote it."""
    letter = await reads.show(context.bus, owner, seq)
    await record(context, caller, "dead_letters.redrive", f"dead_letter:{seq}", tenant=owner)
    await dead_letters.redrive(
        context.bus,
        seq,
        tenant=owner,
        capabilities=context.capabilities,
        usage_seals=context.usage_seals,
    )
    return Redriven(seq=seq, subject=letter.subject)


@router.delete("/{seq}", status_code=204)
@needs(Permission.DEAD_LETTERS_MANAGE)
async def drop_dead_letter(seq: Seq, context: Ctx, caller: CallerDep, owner: Owner) -> Response:
    """Permanently remove a dead letter."""
    await record(context, caller, "dead_letters.drop", f"dead_letter:{seq}", tenant=owner)
    await dead_letters.drop(context.bus, seq, tenant=owner)
    return Response(status_code=204)


def visible(letter: DeadLetter, caller: Caller) -> DeadLetter:
    """Return a letter as its caller may see it."""
    if caller.sees_content:
        return letter
    hidden = {"payload": "", "payload_truncated": True, "headers": {}, "withheld": True}
    return letter.model_copy(update=hidden)
