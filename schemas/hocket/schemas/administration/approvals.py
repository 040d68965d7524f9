"""Approvals that wait for a person."""

from datetime import datetime

from hocket.schemas.rest import Reply


class Approval(Reply):
    """An approval that a run is waiting for; send it with `POST /v1/runs/{run_id}/signals`, where
    `name` is `step`. `input` is the beginning of what is to be approved, as JSON text; it ends with `…`
    if there is more, and is withheld from keys without `content.read`."""

    run_id: str
    step: str
    pipeline: str
    version: int
    since: datetime
    prompt: str
    input: str | None = None


class ApprovalList(Reply):
    """The longest-waiting approvals; `next` is the `after` of the next page, null on the last."""

    approvals: tuple[Approval, ...]
    next: str | None = None
